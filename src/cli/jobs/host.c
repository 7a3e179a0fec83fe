/* host.c - which head hosts jobs, and asking it */
#include "cli/jobs/jobs.h"
#include "cli/out.h"

#include <errno.h>
#include <string.h>

/* For the head of another command that starts one too. */
#define OTHERS_NS (2 * MS_NS_PER_S)

/* A new one, and wait until it is there. 0, or a negative errno with the reason. */
static int
start_head(const struct ms_cli *cli, struct ms_jobs_head *head, struct ms_error *err)
{
    struct ms_jobs_absent absent = {0};
    const char *watched_by = "";
    int rc = ms_watchdog_start(&watched_by, err);

    if (rc < 0) /* perhaps another command has started one at the same time */
        return ms_jobs_head_await(head, &absent, OTHERS_NS, NULL) == 0 ? 0 : rc;
    rc = ms_jobs_head_await(head, &absent, MS_TOOL_BACK_NS, err);
    if (rc == -ENOENT)
        ms_error_set(err, rc, "the head has not started within 30 s");
    if (rc == 0 && !ms_cli_has(cli, MS_OPT_JSON))
        fprintf(stderr,
                "muster %s: a head for jobs was started; %s starts it again if it is "
                "killed\n",
                cli->command->name,
                watched_by);
    return rc;
}

enum ms_exit ms_jobs_target(struct ms_target *t,
                            const struct ms_cli *cli,
                            const char *job,
                            bool start)
{
    struct ms_jobs_absent absent = {.starts = start};
    struct ms_jobs_head head = {0};
    struct ms_error why = {0};
    enum ms_exit code;
    int rc;

    *t = (struct ms_target){.cli = cli};
    if (ms_target_is_remote(cli) || ms_cli_has(cli, MS_OPT_SESSION))
        return ms_target_init(t, cli);
    rc = ms_jobs_head_find(job, &head, &absent, &why);
    if (rc == -ENOENT && start && !absent.is_watched)
        rc = start_head(cli, &head, &why);
    code = rc == 0         ? ms_target_init_jobs(t, cli, &head)
           : rc == -ENOENT ? MS_EXIT_NOT_RUNNING
                           : MS_EXIT_FAILED;
    explicit_bzero(&head, sizeof head);
    return rc < 0 ? ms_out_fail(cli, code, "%s", why.text) : code;
}

/* The head that `submit` starts was only on its way, and has not come up. */
static bool is_gone(const struct ms_target *t, struct ms_error *why)
{
    static const char socket[] = "/" MS_JOBS_SESSION "/head.sock";
    size_t len = strlen(t->address);
    struct ms_jobs_absent absent = {0};
    struct ms_jobs_head head = {0};
    int rc = -EINVAL;

    if (len >= sizeof socket && strcmp(t->address + len - strlen(socket), socket) == 0)
        rc = ms_jobs_head_find(NULL, &head, &absent, why);
    explicit_bzero(&head, sizeof head);
    return rc == -ENOENT;
}

enum ms_exit ms_jobs_ask(struct ms_target *t,
                         Muster__DriverToHead__BodyCase what,
                         const ProtobufCMessage *want,
                         ProtobufCMessage **answer)
{
    struct ms_error err = {0}, why = {0};
    int rc;

    t->tool.is_patient = true;
    rc = ms_target_try(t, what, want, t->timeout_ns, answer, &err);
    if (rc == 0)
        return MS_EXIT_OK;
    if (rc != -EREMOTEIO && is_gone(t, &why))
        return ms_out_fail(t->cli, MS_EXIT_NOT_RUNNING, "%s", why.text);
    if (rc != -EREMOTEIO)
        return ms_out_fail(
            t->cli, MS_EXIT_UNREACHABLE, "%s does not answer: %s", t->who, err.text);
    return ms_out_fail(t->cli,
                       err.code == -ENXIO ? MS_EXIT_NOT_FOUND : MS_EXIT_FAILED,
                       "%s",
                       err.text);
}
