/* host.c - which head hosts jobs, and asking it */
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/jobs/jobs.h"
#include "cli/out.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* How long a head that is being started again may take. */
#define BACK_NS (30 * MS_NS_PER_S)
#define LOOK_NS (100 * MS_NS_PER_MS)

enum { ANSWER_S = 10 };

/* 0: it is there, with its name. */
static int look(const struct ms_cli *cli,
                char name[MS_NAME_MAX + 1],
                struct ms_jobs_absent *absent)
{
    MS_CLEANUP(ms_sessions_finish) struct ms_sessions all = {0};
    const struct ms_session *s;

    if (ms_sessions_init(&all, cli))
        return -EIO;
    s = ms_jobs_session(all.all, all.count, absent);
    if (!s)
        return -ENOENT;
    memcpy(name, s->name, MS_NAME_MAX + 1);
    return 0;
}

/* A new one, and wait until it is there. 0, or a negative errno that was said. */
static int start_head(const struct ms_cli *cli, char name[MS_NAME_MAX + 1])
{
    int64_t until_ns = ms_now_ns() + BACK_NS;
    struct ms_error err = {0};
    const char *kept_by = "";
    struct ms_jobs_absent absent = {0};
    int rc = ms_keep_start(&kept_by, &err);

    if (rc < 0 && look(cli, name, &absent) == 0)
        return 0; /* another command has started one at the same time */
    if (rc < 0) {
        ms_out_fail(cli, MS_EXIT_FAILED, "%s", err.text);
        return rc;
    }
    while ((rc = look(cli, name, &absent)) == -ENOENT && ms_now_ns() < until_ns) {
        struct timespec pause = ms_timespec(LOOK_NS);

        nanosleep(&pause, NULL);
    }
    if (rc < 0)
        ms_out_fail(cli, MS_EXIT_FAILED, "the head has not started within 30 s");
    else if (!ms_cli_has(cli, MS_OPT_JSON))
        fprintf(stderr,
                "muster %s: a head for jobs was started; %s starts it again if it is "
                "killed\n",
                cli->command->name,
                kept_by);
    return rc;
}

void ms_jobs_target_elsewhere(struct ms_target *t,
                              const struct ms_cli *cli,
                              const struct ms_job_elsewhere *e)
{
    *t = (struct ms_target){.cli = cli,
                            .timeout_ns = ms_cli_number(cli, MS_OPT_TIMEOUT, ANSWER_S) *
                                          MS_NS_PER_S};
    snprintf(t->address, sizeof t->address, "%s", e->head.address);
    snprintf(t->who, sizeof t->who, "the head in %s", e->where);
    memcpy(t->secret, e->head.secret, sizeof t->secret);
}

enum ms_exit ms_jobs_target(struct ms_target *t,
                            const struct ms_cli *cli,
                            const char *job,
                            bool start)
{
    struct ms_job_elsewhere elsewhere;
    struct ms_jobs_absent absent = {.since_ns = ms_now_ns()};
    struct ms_error why = {0};
    char name[MS_NAME_MAX + 1];
    int rc;

    *t = (struct ms_target){.cli = cli};
    if (ms_target_is_remote(cli) || ms_cli_has(cli, MS_OPT_SESSION))
        return ms_target_init(t, cli);
    if (job && ms_jobs_elsewhere_find(job, &elsewhere) == 0) {
        ms_jobs_target_elsewhere(t, cli, &elsewhere);
        explicit_bzero(&elsewhere, sizeof elsewhere);
        return MS_EXIT_OK;
    }
    while ((rc = look(cli, name, &absent)) == -ENOENT && ms_jobs_may_come(&absent) &&
           (absent.is_kept || !start)) {
        struct timespec pause = ms_timespec(LOOK_NS);

        nanosleep(&pause, NULL);
    }
    if (rc == -ENOENT && start && !absent.is_kept) {
        if (start_head(cli, name) < 0)
            return MS_EXIT_FAILED;
        rc = 0;
    }
    if (rc == -ENOENT) {
        ms_jobs_explain(&absent, &why);
        return ms_out_fail(cli, MS_EXIT_NOT_RUNNING, "%s", why.text);
    }
    if (rc < 0)
        return MS_EXIT_FAILED; /* it was said why */
    return ms_target_init_named(t, cli, name);
}

int ms_jobs_try(const struct ms_target *t,
                Muster__DriverToHead__BodyCase what,
                const ProtobufCMessage *want,
                int64_t timeout_ns,
                ProtobufCMessage **answer,
                struct ms_error *err)
{
    return ms_jobs_head_try(t->address, t->secret, what, want, timeout_ns, answer, err);
}

enum ms_exit ms_jobs_fail(const struct ms_target *t, int rc, const struct ms_error *err)
{
    if (rc != -EREMOTEIO)
        return ms_out_fail(
            t->cli, MS_EXIT_UNREACHABLE, "%s does not answer: %s", t->who, err->text);
    return ms_out_fail(t->cli,
                       err->code == -ENXIO ? MS_EXIT_NOT_FOUND : MS_EXIT_FAILED,
                       "%s",
                       err->text);
}

enum ms_exit ms_jobs_ask(const struct ms_target *t,
                         Muster__DriverToHead__BodyCase what,
                         const ProtobufCMessage *want,
                         ProtobufCMessage **answer)
{
    struct ms_error err = {0};
    int rc = ms_jobs_head_ask(
        t->address, t->secret, what, want, t->timeout_ns, answer, &err);

    if (rc == -EPIPE || rc == -ECONNRESET)
        return ms_out_fail(t->cli,
                           MS_EXIT_UNREACHABLE,
                           "%s was killed while it was asked; look whether it was done "
                           "(`muster list jobs`) before you ask again",
                           t->who);
    return rc < 0 ? ms_jobs_fail(t, rc, &err) : MS_EXIT_OK;
}
