/* submit.c - `muster submit FILE`: checks a job's file and sends it to the head that hosts
 * jobs, which is started if there is none */
#include "base/cleanup.h"
#include "base/proto.h"
#include "cli/jobs/jobs.h"
#include "cli/out.h"
#include "io/session/program.h"
#include "session/env.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char *ms_jobs_read_text(const char *path)
{
    MS_CLEANUP(ms_cleanup_fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
    char *text = fd < 0 ? NULL : calloc(1, MS_YAML_FILE_MAX + 1);
    size_t len = 0;
    ssize_t n = 1;

    while (text && n > 0 && len < MS_YAML_FILE_MAX) {
        n = read(fd, text + len, MS_YAML_FILE_MAX - len);
        len += n > 0 ? (size_t)n : 0;
    }
    return text;
}

static enum ms_exit
send(const struct ms_cli *cli, struct ms_target *t, char *text, Muster__JobStatus **out)
{
    Muster__SubmitJob m = MUSTER__SUBMIT_JOB__INIT;
    Muster__DriverContext context = MUSTER__DRIVER_CONTEXT__INIT;
    MS_CLEANUP(ms_cleanup_free) char *here = getcwd(NULL, 0);
    char **env = ms_session_env((const char *const *)environ);
    const char *slash = strrchr(cli->operands[0], '/');
    ProtobufCMessage *answer = NULL;
    enum ms_exit code = MS_EXIT_FAILED;
    char python[PATH_MAX], *interpreter[] = {python};

    if (here && env) {
        m.file = ms_field_text(slash ? slash + 1 : cli->operands[0]);
        m.text = text;
        m.folder = here;
        m.name = ms_field_text(cli->values[MS_OPT_NAME]);
        m.on = ms_field_text(cli->values[MS_OPT_ON]);
        m.context = &context;
        context.env = env;
        context.n_env = ms_field_count((const char *const *)env);
        context.python = interpreter;
        /* for workers of a job whose driver is not in Python */
        context.n_python = ms_program_find_python(python) == 0;
        code =
            ms_jobs_ask(t, MUSTER__DRIVER_TO_HEAD__BODY_SUBMIT_JOB, &m.base, &answer);
    } else {
        ms_out_fail(cli, code, "out of memory, or this folder is gone");
    }
    ms_session_env_free(env);
    *out = (Muster__JobStatus *)answer;
    return code;
}

enum ms_exit ms_cmd_submit(const struct ms_cli *cli)
{
    MS_CLEANUP(ms_target_finish) struct ms_target t = {0};
    MS_CLEANUP(ms_job_finish) struct ms_job job = {0};
    MS_CLEANUP(ms_cleanup_free) char *text = NULL;
    Muster__JobStatus *status = NULL;
    enum ms_exit code = ms_jobs_check(cli, &job);

    if (code)
        return code;
    if (job.on && strcmp(job.on, "ray") == 0 && !ms_target_is_remote(cli) &&
        !ms_cli_has(cli, MS_OPT_SESSION))
        return ms_jobs_submit_on_ray(cli, &job);
    if (ms_cli_has(cli, MS_OPT_ADDRESS))
        return ms_out_fail(cli, MS_EXIT_USAGE, "--address belongs to --on ray");
    text = ms_jobs_read_text(cli->operands[0]);
    if (!text)
        return ms_out_fail(
            cli, MS_EXIT_USAGE, "%s: %s", cli->operands[0], strerror(errno));
    code = ms_jobs_target(&t, cli, NULL, true);
    if (!code)
        code = send(cli, &t, text, &status);
    if (code)
        return code;
    if (ms_cli_has(cli, MS_OPT_JSON))
        code = ms_out_json(ms_jobs_json(status));
    else
        printf("%s\n", status->name);
    muster__job_status__free_unpacked(status, NULL);
    return code;
}
