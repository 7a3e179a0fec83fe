#include "cli/target.h"
#include "base/cleanup.h"
#include "base/name.h"
#include "cli/args.h"
#include "cli/nearest.h"
#include "cli/out.h"
#include "wire/frame.h"
#include "wire/tool.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

enum { TIMEOUT_S = 10, TIMEOUT_MAX_S = 86400, RANK_DIGITS_MAX = 9 };

/* ---- sessions -------------------------------------------------------------------- */

enum ms_exit ms_sessions_init(struct ms_sessions *s, const struct ms_cli *cli)
{
    struct ms_error err = {0};
    int count;

    *s = (struct ms_sessions){0};
    count = ms_session_list(&s->all, &err);
    if (count < 0)
        return ms_out_fail(cli, MS_EXIT_FAILED, "%s", err.text);
    s->count = (size_t)count;
    return MS_EXIT_OK;
}

void ms_sessions_finish(struct ms_sessions *s)
{
    if (s->all)
        explicit_bzero(s->all, s->count * sizeof *s->all); /* secrets */
    free(s->all);
    *s = (struct ms_sessions){0};
}

static enum ms_exit fail_unknown_session(const struct ms_cli *cli,
                                         const struct ms_sessions *s)
{
    struct ms_nearest near = {.word = cli->values[MS_OPT_SESSION]};

    for (size_t i = 0; i < s->count; i++)
        ms_nearest_consider(&near, s->all[i].name);
    if (near.best)
        return ms_out_fail(cli,
                           MS_EXIT_NOT_RUNNING,
                           "there is no session '%s'; did you mean '%s'?",
                           near.word,
                           near.best);
    return ms_out_fail(cli,
                       MS_EXIT_NOT_RUNNING,
                       "there is no session '%s'; leave --session out for the newest",
                       near.word);
}

static enum ms_exit find_named(const struct ms_cli *cli,
                               const struct ms_sessions *s,
                               bool alive,
                               const struct ms_session **out)
{
    const char *name = cli->values[MS_OPT_SESSION];

    for (size_t i = 0; i < s->count; i++) {
        if (strcmp(s->all[i].name, name) != 0)
            continue;
        if (alive && !s->all[i].alive)
            return ms_out_fail(
                cli,
                MS_EXIT_NOT_RUNNING,
                "session '%s' has ended; `muster logs --session %s` shows "
                "what it printed",
                name,
                name);
        *out = &s->all[i];
        return MS_EXIT_OK;
    }
    return fail_unknown_session(cli, s);
}

enum ms_exit ms_target_session(const struct ms_cli *cli,
                               const struct ms_sessions *s,
                               bool alive,
                               const struct ms_session **out)
{
    if (ms_cli_has(cli, MS_OPT_SESSION))
        return find_named(cli, s, alive, out);
    for (size_t i = 0; i < s->count; i++)
        if (s->all[i].alive) {
            *out = &s->all[i];
            return MS_EXIT_OK;
        }
    if (!alive && s->count) {
        *out = &s->all[0];
        return MS_EXIT_OK;
    }
    return ms_out_fail(cli,
                       MS_EXIT_NOT_RUNNING,
                       "nothing is running on this machine%s; a session begins when a "
                       "Python program calls muster.init()",
                       alive ? "" : ", and nothing has run");
}

/* ---- asking ---------------------------------------------------------------------- */

enum ms_exit ms_target_timeout(const struct ms_cli *cli, int64_t *timeout_ns)
{
    struct ms_error err = {0};
    long seconds = TIMEOUT_S;

    if (ms_args_number(cli, MS_OPT_TIMEOUT, 1, TIMEOUT_MAX_S, &seconds, &err) < 0)
        return ms_out_fail(cli, MS_EXIT_USAGE, "%s", err.text);
    *timeout_ns = seconds * MS_NS_PER_S;
    return MS_EXIT_OK;
}

enum ms_exit ms_target_status(const struct ms_cli *cli,
                              const struct ms_session *session,
                              int64_t timeout_ns,
                              Muster__Status **out)
{
    MS_CLEANUP(ms_cleanup_free) uint8_t *reply = NULL;
    char path[MS_SESSION_DIR_MAX + sizeof "/head.sock"];
    struct ms_error err = {0};
    size_t len;
    int rc;

    snprintf(path, sizeof path, "%s/head.sock", session->dir);
    rc = ms_tool_call(
        path, session->secret, MS_OP_STATUS, NULL, 0, timeout_ns, &reply, &len, &err);
    if (rc < 0)
        return ms_out_fail(
            cli,
            MS_EXIT_UNREACHABLE,
            "the head of session '%s' (driver: process %d) does not "
            "answer: %s; it may be just starting or ending, so try again",
            session->name,
            (int)session->driver_pid,
            err.text);
    *out = muster__status__unpack(NULL, len, reply);
    if (!*out)
        return ms_out_fail(
            cli,
            MS_EXIT_FAILED,
            "the answer of session '%s' cannot be read; is its Muster of "
            "another version than this %s?",
            session->name,
            MS_VERSION);
    return MS_EXIT_OK;
}

/* ---- clusters and ranks ---------------------------------------------------------- */

static int parse_rank(const char *text, size_t len, uint32_t *rank)
{
    uint32_t n = 0;

    if (len == 0 || len > RANK_DIGITS_MAX)
        return -EINVAL;
    for (size_t i = 0; i < len; i++) {
        if (!isdigit((unsigned char)text[i]))
            return -EINVAL;
        n = n * 10 + (uint32_t)(text[i] - '0');
    }
    *rank = n;
    return 0;
}

enum ms_exit
ms_selector_parse(const struct ms_cli *cli, const char *text, struct ms_selector *out)
{
    const char *slash = strchr(text, '/');
    size_t len = slash ? (size_t)(slash - text) : strlen(text);
    struct ms_selector s = {.has_rank = slash != NULL};
    struct ms_error err = {0};

    if (len > MS_NAME_MAX)
        return ms_out_fail(cli, MS_EXIT_USAGE, "'%s' is too long for a cluster", text);
    memcpy(s.cluster, text, len);
    if (ms_name_check(s.cluster, "cluster", &err) < 0)
        return ms_out_fail(cli, MS_EXIT_USAGE, "%s", err.text);
    if (slash && parse_rank(slash + 1, strcspn(slash + 1, "@"), &s.rank) < 0)
        return ms_out_fail(cli,
                           MS_EXIT_USAGE,
                           "'%s' has no rank behind the slash; write for example %s/0",
                           text,
                           s.cluster);
    *out = s;
    return MS_EXIT_OK;
}

bool ms_selector_matches(const struct ms_selector *s,
                         const char *cluster,
                         uint32_t rank)
{
    return (!s->cluster[0] || strcmp(s->cluster, cluster) == 0) &&
           (!s->has_rank || s->rank == rank);
}

const char *ms_target_exit(const Muster__Exit *e, char *out, size_t room)
{
    const char *signal = e->signaled ? sigabbrev_np(e->code) : NULL;
    bool detail = e->detail && e->detail[0];
    char what[64];

    if (e->requested)
        snprintf(what, sizeof what, "stopped");
    else if (e->signaled && signal)
        snprintf(what, sizeof what, "killed by SIG%s", signal);
    else if (e->signaled)
        snprintf(what, sizeof what, "killed by signal %d", e->code);
    else
        snprintf(what, sizeof what, "exit code %d", e->code);
    snprintf(out,
             room,
             "%s%s%s%s",
             what,
             e->out_of_memory ? " (out of memory)" : "",
             detail ? ": " : "",
             detail ? e->detail : "");
    return out;
}
