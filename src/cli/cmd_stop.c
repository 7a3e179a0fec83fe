/* cmd_stop.c - `muster stop`: end a cluster, all clusters, or a session */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/nearest.h"
#include "cli/jobs/jobs.h"
#include "cli/target.h"
#include "cli/view.h"
#include "io/spawn.h"

#include <poll.h>
#include <string.h>

enum { GRACE_S = 3 };

/* What is to be stopped, and what that would end. */
struct stop {
    const struct ms_cli *cli;
    struct ms_target target;
    const char *cluster; /* NULL: all of them */
    bool session;        /* and the head, if it is a daemon */
    int64_t grace_ns;
    size_t clusters, workers; /* that would end */
    bool is_daemon;
};

static enum ms_exit parse(struct stop *j)
{
    const char *const *words = j->cli->operands;
    size_t count = j->cli->operand_count;
    bool all = ms_cli_has(j->cli, MS_OPT_ALL);

    j->grace_ns = ms_cli_number(j->cli, MS_OPT_GRACE, GRACE_S) * MS_NS_PER_S;
    if (count == 2 && strcmp(words[0], "cluster") == 0)
        j->cluster = words[1];
    else if (count == 1 && strcmp(words[0], "session") == 0)
        j->session = true;
    else if (count || !all)
        return ms_out_fail(j->cli,
                           MS_EXIT_USAGE,
                           "say what to end: cluster NAME, job NAME, --all "
                           "(clusters), or session");
    if (all && count)
        return ms_out_fail(j->cli, MS_EXIT_USAGE, "--all or '%s', not both", words[0]);
    return MS_EXIT_OK;
}

/* With several sessions here, the one to stop must be named. */
static enum ms_exit check_only(const struct stop *j)
{
    const struct ms_sessions *all = &j->target.sessions;
    char names[512] = "";
    size_t len = 0;

    if (!j->target.session || ms_cli_has(j->cli, MS_OPT_SESSION) ||
        ms_target_others(&j->target) == 0)
        return MS_EXIT_OK;
    for (size_t i = 0; i < all->count && len < sizeof names; i++)
        if (all->all[i].alive)
            len += (size_t)snprintf(names + len,
                                    sizeof names - len,
                                    "%s%s",
                                    len ? ", " : "",
                                    all->all[i].name);
    return ms_out_fail(j->cli,
                       MS_EXIT_USAGE,
                       "several sessions run here: %s; say which with --session",
                       names);
}

static enum ms_exit count(struct stop *j)
{
    struct ms_nearest near = {.word = j->cluster ? j->cluster : ""};
    MS_CLEANUP(ms_status_cleanup) Muster__Status *s = NULL;
    enum ms_exit code = ms_target_status(&j->target, &s);

    if (code)
        return code;
    for (size_t i = 0; i < s->n_clusters; i++) {
        struct ms_view_workers n = ms_view_count_workers(s->clusters[i]);

        if (j->cluster && strcmp(s->clusters[i]->name, j->cluster) != 0) {
            ms_nearest_consider(&near, s->clusters[i]->name);
            continue;
        }
        j->clusters++;
        j->workers += n.running + n.starting;
    }
    j->is_daemon = s->is_daemon;
    if (!j->cluster || j->clusters)
        return MS_EXIT_OK;
    return ms_out_fail(j->cli,
                       MS_EXIT_NOT_FOUND,
                       near.best ? "there is no cluster '%s'; did you mean '%s'?"
                                 : "there is no cluster '%s'",
                       j->cluster,
                       near.best);
}

/* Ask for "y" or "yes", if there is a terminal. */
static enum ms_exit confirm(const struct stop *j)
{
    char answer[16] = "";

    if (ms_cli_has(j->cli, MS_OPT_YES) || !isatty(STDIN_FILENO) ||
        !isatty(STDERR_FILENO) || (j->clusters == 0 && !j->session))
        return MS_EXIT_OK;
    fprintf(stderr,
            "end %zu cluster%s with %zu living worker%s%s of %s? [y/N] ",
            j->clusters,
            j->clusters == 1 ? "" : "s",
            j->workers,
            j->workers == 1 ? "" : "s",
            j->session && j->is_daemon ? ", all agents and the head" : "",
            j->target.who);
    fflush(stderr);
    if (fgets(answer, sizeof answer, stdin) &&
        (strcasecmp(answer, "y\n") == 0 || strcasecmp(answer, "yes\n") == 0))
        return MS_EXIT_OK;
    return ms_out_fail(j->cli, MS_EXIT_FAILED, "nothing was ended");
}

static enum ms_exit report(const struct stop *j, const Muster__Stopped *done)
{
    if (ms_cli_has(j->cli, MS_OPT_JSON))
        return ms_out_json(MS_JSON({"clusters", json_integer(done->clusters)},
                                   {"workers", json_integer(done->workers)},
                                   {"head", json_boolean(done->head)}));
    printf("ended %u cluster%s, %u worker%s%s\n",
           done->clusters,
           done->clusters == 1 ? "" : "s",
           done->workers,
           done->workers == 1 ? "" : "s",
           done->head ? ", and the head" : "");
    if (j->session && !done->head)
        printf("the driver (process %d) goes on: the session ends with it\n",
               j->target.session ? (int)j->target.session->driver_pid : 0);
    return MS_EXIT_OK;
}

/* It has answered, and ends: of this machine we see when it is gone. */
static void wait_head(const struct stop *j)
{
    const struct ms_session *s = j->target.session;
    struct pollfd head = {.fd = s ? ms_process_open(s->driver_pid) : -1,
                          .events = POLLIN};

    if (head.fd < 0)
        return;
    poll(&head, 1, (int)(j->target.timeout_ns / MS_NS_PER_MS));
    close(head.fd);
}

static enum ms_exit end(struct stop *j)
{
    Muster__StopRequest want = MUSTER__STOP_REQUEST__INIT;
    ProtobufCMessage *answer = NULL;
    Muster__Stopped *done;
    enum ms_exit code;
    char text[64];

    if (j->cluster)
        want.cluster = (char *)(uintptr_t)j->cluster;
    want.head = j->session;
    want.grace_ns = (uint64_t)j->grace_ns;
    snprintf(text,
             sizeof text,
             "ending %zu worker%s",
             j->workers,
             j->workers == 1 ? "" : "s");
    j->target.doing = text;
    code = ms_target_ask(&j->target,
                         MUSTER__DRIVER_TO_HEAD__BODY_STOP,
                         &want.base,
                         ms_deadline_ns(j->target.timeout_ns, j->grace_ns),
                         &answer);
    j->target.doing = NULL;
    if (code)
        return code;
    done = (Muster__Stopped *)answer;
    if (done->head)
        wait_head(j);
    code = report(j, done);
    muster__stopped__free_unpacked(done, NULL);
    return code;
}

enum ms_exit ms_cmd_stop(const struct ms_cli *cli)
{
    struct stop j = {.cli = cli};
    enum ms_exit code;

    if (cli->operand_count == 2 && strcmp(cli->operands[0], "job") == 0)
        return ms_jobs_stop(cli, cli->operands[1]);
    if (ms_cli_has(cli, MS_OPT_REASON))
        return ms_out_fail(cli, MS_EXIT_USAGE, "--reason belongs to `stop job`");
    code = parse(&j);

    if (!code)
        code = ms_target_init(&j.target, cli);
    if (!code)
        code = check_only(&j);
    if (!code)
        code = count(&j);
    if (!code)
        code = confirm(&j);
    if (!code)
        code = end(&j);
    ms_target_finish(&j.target);
    return code;
}
