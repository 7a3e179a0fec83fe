/* change.c - `suspend`, `resume`, `scale`, `restart`, `stop job` and `delete` */
#include "base/cleanup.h"
#include "base/proto.h"
#include "cli/jobs/jobs.h"
#include "cli/out.h"
#include "cli/selector.h"

#include <stdlib.h>
#include <string.h>

/* One that was over is gone with its deletion. */
static enum ms_exit report(const struct ms_cli *cli, const Muster__JobStatus *s)
{
    bool is_gone = s->is_over && strcmp(cli->command->name, "delete") == 0;

    if (ms_cli_has(cli, MS_OPT_JSON))
        return ms_out_json(ms_jobs_json(s));
    printf("job '%s' is %s\n", s->name, is_gone ? "deleted" : s->stage);
    return MS_EXIT_OK;
}

static enum ms_exit change(const struct ms_cli *cli,
                           const char *job,
                           Muster__DriverToHead__BodyCase what,
                           const ProtobufCMessage *want)
{
    MS_CLEANUP(ms_target_finish) struct ms_target t = {0};
    ProtobufCMessage *answer = NULL;
    enum ms_exit code = ms_jobs_target(&t, cli, job, false);

    if (!code)
        code = ms_jobs_ask(&t, what, want, &answer);
    if (code)
        return code;
    code = report(cli, (const Muster__JobStatus *)answer);
    protobuf_c_message_free_unpacked(answer, NULL);
    return code;
}

static enum ms_exit change_named(const struct ms_cli *cli,
                                 const char *name,
                                 Muster__DriverToHead__BodyCase what)
{
    Muster__JobRef want = MUSTER__JOB_REF__INIT;

    want.name = ms_field_text(name);
    want.reason = ms_field_text(cli->values[MS_OPT_REASON]);
    return change(cli, name, what, &want.base);
}

static enum ms_exit change_one(const struct ms_cli *cli,
                               Muster__DriverToHead__BodyCase what)
{
    if (cli->operand_count != 1)
        return ms_out_fail(
            cli, MS_EXIT_USAGE, "which job? muster %s NAME", cli->command->name);
    return change_named(cli, cli->operands[0], what);
}

enum ms_exit ms_cmd_suspend(const struct ms_cli *cli)
{
    return change_one(cli, MUSTER__DRIVER_TO_HEAD__BODY_SUSPEND_JOB);
}

enum ms_exit ms_cmd_resume(const struct ms_cli *cli)
{
    return change_one(cli, MUSTER__DRIVER_TO_HEAD__BODY_RESUME_JOB);
}

/* Of one that is elsewhere nothing is left here, also if its head is gone. */
enum ms_exit ms_cmd_delete(const struct ms_cli *cli)
{
    enum ms_exit code = change_one(cli, MUSTER__DRIVER_TO_HEAD__BODY_DELETE_JOB);
    bool is_named = ms_target_is_remote(cli) || ms_cli_has(cli, MS_OPT_SESSION);
    struct ms_job_elsewhere e;

    if (is_named || cli->operand_count != 1 ||
        ms_jobs_elsewhere_find(cli->operands[0], &e) < 0)
        return code;
    explicit_bzero(&e.head, sizeof e.head);
    if (code == MS_EXIT_UNREACHABLE) {
        fprintf(stderr,
                "muster delete: it is forgotten here; what is left of it, if anything, "
                "is in %s\n",
                e.where);
        code = MS_EXIT_OK;
    }
    if (code == MS_EXIT_OK || code == MS_EXIT_NOT_FOUND)
        ms_jobs_elsewhere_remove(e.job);
    return code;
}

enum ms_exit ms_jobs_stop(const struct ms_cli *cli, const char *name)
{
    return change_named(cli, name, MUSTER__DRIVER_TO_HEAD__BODY_STOP_JOB);
}

/* NAME ROLE=N */
enum ms_exit ms_cmd_scale(const struct ms_cli *cli)
{
    Muster__ScaleJob want = MUSTER__SCALE_JOB__INIT;
    MS_CLEANUP(ms_cleanup_free)
    char *role = cli->operand_count == 2 ? strdup(cli->operands[1]) : NULL;
    char *equals = role ? strchr(role, '=') : NULL;
    size_t digits = equals ? strspn(equals + 1, "0123456789") : 0;

    if (!digits || digits > 9 || equals[1 + digits])
        return ms_out_fail(cli, MS_EXIT_USAGE, "say what: muster scale NAME ROLE=N");
    *equals = 0;
    want.name = (char *)(uintptr_t)cli->operands[0];
    want.role = role;
    want.count = (uint32_t)strtoul(equals + 1, NULL, 10);
    return change(
        cli, cli->operands[0], MUSTER__DRIVER_TO_HEAD__BODY_SCALE_JOB, &want.base);
}

/* NAME[/ROLE[/RANK]] */
enum ms_exit ms_cmd_restart(const struct ms_cli *cli)
{
    Muster__RestartJob want = MUSTER__RESTART_JOB__INIT;
    MS_CLEANUP(ms_cleanup_free)
    char *text = cli->operand_count == 1 ? strdup(cli->operands[0]) : NULL;
    char *role = text ? strchr(text, '/') : NULL;
    char *rank = role ? strchr(role + 1, '/') : NULL;
    size_t len = rank ? strlen(rank + 1) : 0;

    if (!text || (rank && ms_rank_parse(rank + 1, len, &want.rank) != len))
        return ms_out_fail(
            cli, MS_EXIT_USAGE, "say what: muster restart NAME[/ROLE[/RANK]]");
    if (rank)
        *rank = 0;
    if (role)
        *role = 0;
    want.name = text;
    if (role)
        want.role = role + 1;
    want.one_rank = rank != NULL;
    return change(cli, text, MUSTER__DRIVER_TO_HEAD__BODY_RESTART_JOB, &want.base);
}
