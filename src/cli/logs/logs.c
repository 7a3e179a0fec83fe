/* logs.c - `muster logs`: what workers have printed */
#include "base/cleanup.h"
#include "cli/args.h"
#include "cli/logs/remote.h"
#include "cli/logs/view.h"
#include "cli/logs/watch.h"
#include "cli/out.h"
#include "cli/target.h"
#include "io/proc.h"

#include <errno.h>
#include <string.h>

enum { LINES_MAX = 1000000000 };

static enum ms_exit parse(const struct ms_cli *cli, struct ms_logview *v)
{
    struct ms_error err = {0};
    enum ms_exit code = MS_EXIT_OK;

    *v = (struct ms_logview){
        .dir = -1, .lines_max = -1, .json = ms_cli_has(cli, MS_OPT_JSON)};
    if (ms_args_number(cli, MS_OPT_LINES, 0, LINES_MAX, &v->lines_max, &err) < 0)
        return ms_out_fail(cli, MS_EXIT_USAGE, "%s", err.text);
    if (ms_cli_has(cli, MS_OPT_AGENT) && cli->operand_count)
        return ms_out_fail(
            cli, MS_EXIT_USAGE, "--agent or '%s', not both", cli->operands[0]);
    if (ms_cli_has(cli, MS_OPT_AGENT))
        v->single = "agent.log";
    else if (cli->operand_count == 0)
        v->single = MS_LOGVIEW_MERGED;
    else
        code = ms_cli_selector_parse(cli, cli->operands[0], &v->selector);
    v->labels = !v->single && !v->selector.has_rank;
    return code;
}

static enum ms_exit fail_nothing(const struct ms_cli *cli,
                                 const struct ms_logview *v,
                                 const struct ms_session *s)
{
    if (v->single)
        return ms_out_fail(cli,
                           MS_EXIT_NOT_FOUND,
                           "session '%s' has no %s: nothing has been printed yet",
                           s->name,
                           v->single);
    return ms_out_fail(
        cli,
        MS_EXIT_NOT_FOUND,
        "session '%s' has no logs of '%s'; `muster %s` shows what there is",
        s->name,
        cli->operands[0],
        s->alive ? "status" : "logs");
}

/* Without -f it is an error if there is nothing; with it, it may still come. */
static enum ms_exit
print_first(const struct ms_cli *cli, struct ms_logview *v, const struct ms_session *s)
{
    bool may_come = ms_cli_has(cli, MS_OPT_FOLLOW) && s->alive;
    int rc = ms_logview_scan(v);

    if (rc == 0 && !may_come)
        return fail_nothing(cli, v, s);
    rc = rc < 0 ? rc : ms_logview_print(v);
    if (rc < 0)
        return ms_out_fail(cli,
                           MS_EXIT_FAILED,
                           "cannot read the logs of session '%s': %s",
                           s->name,
                           strerror(-rc));
    return MS_EXIT_OK;
}

static enum ms_exit
follow(const struct ms_cli *cli, struct ms_logview *v, struct ms_logwatch *f)
{
    int rc = 0, event = MS_LOGWATCH_WRITTEN;

    v->lines_max = -1; /* of what is new, everything */
    while (rc >= 0 && event != MS_LOGWATCH_ENDED) {
        fflush(stdout);
        if (ferror(stdout))
            return MS_EXIT_FAILED;
        event = rc = ms_logwatch_wait(f);
        if (event >= MS_LOGWATCH_NEW)
            rc = ms_logview_scan(v);
        if (rc >= 0)
            rc = ms_logview_print(v);
    }
    if (rc < 0)
        return ms_out_fail(cli, MS_EXIT_FAILED, "cannot follow: %s", strerror(-rc));
    return MS_EXIT_OK;
}

static enum ms_exit
show(const struct ms_cli *cli, struct ms_logview *v, const struct ms_session *s)
{
    bool following = ms_cli_has(cli, MS_OPT_FOLLOW);
    char path[MS_SESSION_DIR_MAX + sizeof "/logs"];
    struct ms_logwatch f = {-1, -1};
    struct ms_error err = {0};
    enum ms_exit code;
    int rc;

    snprintf(path, sizeof path, "%s/logs", s->dir);
    rc = ms_logview_open(v, path);
    if (rc == -ENOENT)
        return fail_nothing(cli, v, s);
    if (rc < 0)
        return ms_out_fail(
            cli, MS_EXIT_FAILED, "cannot open '%s': %s", path, strerror(-rc));
    /* watch first: what is written while we read is an event then */
    if (following && ms_logwatch_open(&f, s, path, &err) < 0)
        return ms_out_fail(cli, MS_EXIT_FAILED, "%s", err.text);
    code = print_first(cli, v, s);
    if (!code && following)
        code = follow(cli, v, &f);
    if (!code)
        ms_logview_end(v);
    ms_logwatch_close(&f);
    return code;
}

/* Through the head: nothing of it is in a folder of this machine. */
static enum ms_exit show_remote(const struct ms_cli *cli, struct ms_logview *v)
{
    MS_CLEANUP(ms_target_finish) struct ms_target t = {0};
    enum ms_exit code = ms_target_init(&t, cli);

    v->merged = v->single && strcmp(v->single, MS_LOGVIEW_MERGED) == 0;
    return code ? code : ms_remote_logs_show(&t, v);
}

enum ms_exit ms_cmd_logs(const struct ms_cli *cli)
{
    MS_CLEANUP(ms_sessions_finish) struct ms_sessions all = {0};
    MS_CLEANUP(ms_logview_close) struct ms_logview v;
    const struct ms_session *session = NULL;
    enum ms_exit code = parse(cli, &v);
    struct rlimit original;

    ms_nofile_raise(&original); /* a file for each worker is open */
    if (!code && ms_target_is_remote(cli))
        return show_remote(cli, &v);
    if (!code)
        code = ms_sessions_init(&all, cli);
    if (!code)
        code = ms_target_session(cli, &all, false, &session);
    if (!code && session->is_daemon)
        return show_remote(cli, &v);
    return code ? code : show(cli, &v, session);
}
