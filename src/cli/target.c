/* target.c - which head a command asks, and asking it */
#include "cli/target.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/nearest.h"
#include "cli/out.h"
#include "cli/progress.h"
#include "io/session/secret.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

enum { TIMEOUT_S = 10, TIMEOUT_MAX_S = 86400 };

/* ---- sessions of this machine --------------------------------------------------- */

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

/* ---- who ------------------------------------------------------------------------- */

/* NULL: none is given. */
static const char *given_address(const struct ms_cli *cli)
{
    const char *env = getenv("MUSTER_ADDRESS");

    if (ms_cli_has(cli, MS_OPT_HEAD))
        return cli->values[MS_OPT_HEAD];
    if (ms_cli_has(cli, MS_OPT_SESSION) || !env || !env[0] || strcmp(env, "auto") == 0)
        return NULL;
    return env;
}

bool ms_target_is_remote(const struct ms_cli *cli)
{
    return given_address(cli) != NULL;
}

/* MUSTER_ADDRESS=auto: that of this machine, as a driver would. */
static bool wants_daemon(const struct ms_cli *cli)
{
    const char *env = getenv("MUSTER_ADDRESS");

    return !ms_cli_has(cli, MS_OPT_SESSION) && env && strcmp(env, "auto") == 0;
}

static enum ms_exit take_session(struct ms_target *t, const struct ms_session *s)
{
    assert(s);
    t->session = s;
    memcpy(t->secret, s->secret, sizeof t->secret);
    snprintf(t->address, sizeof t->address, "%s/head.sock", s->dir);
    snprintf(t->who,
             sizeof t->who,
             "the head of session '%s' (process %d)",
             s->name,
             (int)s->driver_pid);
    return MS_EXIT_OK;
}

static const char *secret_file(const struct ms_cli *cli)
{
    const char *env = getenv(MS_SECRET_FILE_ENV);

    if (ms_cli_has(cli, MS_OPT_SECRET_FILE))
        return cli->values[MS_OPT_SECRET_FILE];
    return env && env[0] ? env : NULL;
}

/* The one session of this machine that runs: among daemons, if `daemon`. NULL: there is
 * none, or we cannot know which. */
static const struct ms_session *only_session(const struct ms_target *t, bool daemon)
{
    const struct ms_session *found = NULL;

    for (size_t i = 0; i < t->sessions.count; i++) {
        const struct ms_session *s = &t->sessions.all[i];

        if (!s->alive || (daemon && !s->is_daemon))
            continue;
        if (found)
            return NULL;
        found = s;
    }
    return found;
}

static enum ms_exit take_address(struct ms_target *t, const char *address)
{
    const char *path = secret_file(t->cli);
    const struct ms_session *here = only_session(t, true);
    struct ms_error err = {0};

    if (!here)
        here = only_session(t, false);
    if (strlen(address) >= sizeof t->address)
        return ms_out_fail(
            t->cli, MS_EXIT_USAGE, "the address of the head is too long");
    strcpy(t->address, address);
    snprintf(t->who, sizeof t->who, "the head at %s", address);
    if (path && ms_secret_read(path, t->secret, &err) < 0)
        return ms_out_fail(t->cli, MS_EXIT_FAILED, "%s", err.text);
    if (!path && here)
        memcpy(t->secret, here->secret, sizeof t->secret);
    if (!path && !here)
        return ms_out_fail(t->cli,
                           MS_EXIT_USAGE,
                           "%s wants its secret: give --secret-file with a copy of the "
                           "file `secret` in its session's folder",
                           t->who);
    return MS_EXIT_OK;
}

static enum ms_exit set_timeout(struct ms_target *t, const struct ms_cli *cli)
{
    int64_t seconds = ms_cli_number(cli, MS_OPT_TIMEOUT, TIMEOUT_S);

    *t = (struct ms_target){.cli = cli, .timeout_ns = seconds * MS_NS_PER_S};
    if (seconds > TIMEOUT_MAX_S)
        return ms_out_fail(cli,
                           MS_EXIT_USAGE,
                           "--timeout is '%lld', not a whole number from 1 to %d",
                           (long long)seconds,
                           TIMEOUT_MAX_S);
    return MS_EXIT_OK;
}

enum ms_exit ms_target_init_jobs(struct ms_target *t,
                                 const struct ms_cli *cli,
                                 const struct ms_jobs_head *head)
{
    enum ms_exit code = set_timeout(t, cli);

    memcpy(t->address, head->address, sizeof t->address);
    memcpy(t->secret, head->secret, sizeof t->secret);
    strcpy(t->who, head->who);
    return code;
}

enum ms_exit ms_target_init(struct ms_target *t, const struct ms_cli *cli)
{
    const char *address = given_address(cli);
    const struct ms_session *session = NULL;
    enum ms_exit code = set_timeout(t, cli);

    if (code)
        return code;
    if (ms_cli_has(cli, MS_OPT_HEAD) && ms_cli_has(cli, MS_OPT_SESSION))
        return ms_out_fail(cli, MS_EXIT_USAGE, "--head or --session, not both");
    code = ms_sessions_init(&t->sessions, cli);
    if (!code && address)
        return take_address(t, address);
    if (!code && wants_daemon(cli))
        session = only_session(t, true);
    if (!code && !session)
        code = ms_target_session(cli, &t->sessions, true, &session);
    return code ? code : take_session(t, session);
}

void ms_target_finish(struct ms_target *t)
{
    ms_tool_leave(&t->tool);
    ms_sessions_finish(&t->sessions);
    explicit_bzero(t->secret, sizeof t->secret);
}

size_t ms_target_others(const struct ms_target *t)
{
    size_t count = 0;

    for (size_t i = 0; i < t->sessions.count; i++)
        count += t->sessions.all[i].alive && &t->sessions.all[i] != t->session;
    return count;
}

/* ---- asking ---------------------------------------------------------------------- */

static const char *advice(const struct ms_target *t, int rc)
{
    switch (rc) {
    case -EACCES:
        return t->session ? "" : "; give the secret of that head with --secret-file";
    case -EPROTONOSUPPORT:
        return "; use the `muster` that was installed with it";
    case -ECONNREFUSED:
    case -ENOENT:
        return t->session ? "; it may be just starting or ending, so try again"
                          : "; is `muster head --listen` running there?";
    default:
        return t->session ? "; it may be just starting or ending, so try again" : "";
    }
}

static enum ms_exit fail_ask(const struct ms_target *t, int rc, const char *why)
{
    if (rc == -EREMOTEIO)
        return ms_out_fail(t->cli, MS_EXIT_FAILED, "%s refuses: %s", t->who, why);
    return ms_out_fail(t->cli,
                       MS_EXIT_UNREACHABLE,
                       "%s does not answer: %s%s",
                       t->who,
                       why,
                       advice(t, rc));
}

int ms_target_join(struct ms_target *t, struct ms_error *err)
{
    if (!t->tool.head)
        t->tool.at = (struct ms_head_address){t->address, t->secret, MS_TLS_AUTO};
    return ms_tool_join(&t->tool, t->timeout_ns, err);
}

int ms_target_try(struct ms_target *t,
                  Muster__DriverToHead__BodyCase what,
                  const ProtobufCMessage *want,
                  int64_t timeout_ns,
                  ProtobufCMessage **answer,
                  struct ms_error *err)
{
    int rc = ms_target_join(t, err);

    return rc < 0 ? rc : ms_tool_ask(&t->tool, what, want, timeout_ns, answer, err);
}

enum ms_exit ms_target_ask(struct ms_target *t,
                           Muster__DriverToHead__BodyCase what,
                           const ProtobufCMessage *want,
                           int64_t timeout_ns,
                           ProtobufCMessage **answer)
{
    char waiting[sizeof t->who + 32];
    struct ms_progress *progress;
    struct ms_error err = {0};
    int rc;

    snprintf(waiting, sizeof waiting, "waiting for %s", t->who);
    progress = ms_progress_start(t->cli, t->doing ? t->doing : waiting);
    rc = ms_target_try(t, what, want, timeout_ns, answer, &err);
    ms_progress_stop(progress);
    return rc < 0 ? fail_ask(t, rc, err.text) : MS_EXIT_OK;
}

static enum ms_exit ask_status(struct ms_target *t, bool activity, Muster__Status **out)
{
    Muster__StatusRequest want = MUSTER__STATUS_REQUEST__INIT;
    ProtobufCMessage *answer = NULL;
    enum ms_exit code;

    want.activity = activity;
    code = ms_target_ask(
        t, MUSTER__DRIVER_TO_HEAD__BODY_STATUS, &want.base, t->timeout_ns, &answer);
    *out = (Muster__Status *)answer;
    return code;
}

enum ms_exit ms_target_status(struct ms_target *t, Muster__Status **out)
{
    return ask_status(t, false, out);
}

enum ms_exit ms_target_activity(struct ms_target *t, Muster__Status **out)
{
    return ask_status(t, true, out);
}

enum ms_exit ms_target_look(struct ms_target *t,
                            const struct ms_cli *cli,
                            bool activity,
                            Muster__Status **out)
{
    enum ms_exit code = ms_target_init(t, cli);

    return code ? code : ask_status(t, activity, out);
}
