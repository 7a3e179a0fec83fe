/* timeline.c - `muster timeline`: what happened when, as a trace for Perfetto */
#include "io/session/timeline.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/out.h"
#include "cli/target.h"
#include "cli/timeline/trace.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static void file_close(FILE **f)
{
    if (*f)
        fclose(*f);
}

/* The file that is named, or that of the session. */
static enum ms_exit open_lines(const struct ms_cli *cli, FILE **out)
{
    MS_CLEANUP(ms_sessions_finish) struct ms_sessions sessions = {0};
    char path[MS_SESSION_DIR_MAX + sizeof "/logs/" MS_TIMELINE_NAME];
    const struct ms_session *s;
    enum ms_exit code;

    if (cli->operand_count) {
        *out = fopen(cli->operands[0], "re");
        return *out ? MS_EXIT_OK
                    : ms_out_fail(cli,
                                  MS_EXIT_NOT_FOUND,
                                  "%s: %s",
                                  cli->operands[0],
                                  strerror(errno));
    }
    code = ms_sessions_init(&sessions, cli);
    if (!code)
        code = ms_target_session(cli, &sessions, false, &s);
    if (code)
        return code;
    snprintf(path, sizeof path, "%s/logs/" MS_TIMELINE_NAME, s->dir);
    *out = fopen(path, "re");
    if (*out)
        return MS_EXIT_OK;
    return ms_out_fail(cli,
                       MS_EXIT_NOT_FOUND,
                       "session '%s' has recorded no timeline: its driver calls "
                       "muster.timeline.start(), or has MUSTER_TIMELINE=1 in its "
                       "environment",
                       s->name);
}

static enum ms_exit
read_lines(const struct ms_cli *cli, FILE *lines, struct ms_trace *t)
{
    MS_CLEANUP(ms_cleanup_free) char *line = NULL;
    size_t room = 0;
    ssize_t len;
    int rc = 0;

    while (rc == 0 && (len = getline(&line, &room, lines)) > 0)
        rc = ms_trace_add(t, line, (size_t)len);
    if (rc == 0 && ferror(lines))
        rc = -EIO;
    if (rc < 0)
        return ms_out_fail(
            cli, MS_EXIT_FAILED, "cannot read the timeline: %s", strerror(-rc));
    if (!t->count)
        return ms_out_fail(cli,
                           MS_EXIT_NOT_FOUND,
                           t->unreadable ? "this is no timeline of Muster's"
                                         : "the timeline has no events yet");
    if (t->unreadable) /* such as the last line of what is being written */
        fprintf(stderr,
                "muster timeline: %zu lines could not be read and are left out\n",
                t->unreadable);
    return MS_EXIT_OK;
}

static enum ms_exit fail_write(const struct ms_cli *cli, const char *path, int rc)
{
    return ms_out_fail(cli, MS_EXIT_FAILED, "cannot write %s: %s", path, strerror(-rc));
}

static enum ms_exit
tell(const struct ms_cli *cli, const struct ms_trace *t, const char *path)
{
    int64_t length = ms_trace_length_ns(t);
    char text[24];

    if (ms_cli_has(cli, MS_OPT_JSON))
        return ms_out_json(
            MS_JSON({"file", ms_json_string(path)},
                    {"spans", json_integer((json_int_t)t->spans)},
                    {"events", json_integer((json_int_t)t->count)},
                    {"tracks", json_integer((json_int_t)t->track_count)},
                    {"seconds", json_real((double)length / (double)MS_NS_PER_S)}));
    printf("%s: %zu spans of %zu tracks over %s; open it in https://ui.perfetto.dev\n",
           path,
           t->spans,
           t->track_count,
           ms_out_moment((uint64_t)length, text));
    return MS_EXIT_OK;
}

/* Written beside it and then renamed: what is there is whole. */
static enum ms_exit
write_file(const struct ms_cli *cli, struct ms_trace *t, const char *path)
{
    char part[4096];
    FILE *out;
    int rc;

    if ((size_t)snprintf(part, sizeof part, "%s.part", path) >= sizeof part)
        return fail_write(cli, path, -ENAMETOOLONG);
    out = fopen(part, "we");
    if (!out)
        return fail_write(cli, path, -errno);
    rc = ms_trace_write(t, out);
    if (fclose(out) != 0 && rc == 0)
        rc = -errno;
    if (rc == 0 && rename(part, path) != 0)
        rc = -errno;
    if (rc == 0)
        return tell(cli, t, path);
    unlink(part);
    return fail_write(cli, path, rc);
}

enum ms_exit ms_cmd_timeline(const struct ms_cli *cli)
{
    MS_CLEANUP(ms_trace_finish) struct ms_trace t = {0};
    MS_CLEANUP(file_close) FILE *lines = NULL;
    enum ms_exit code = open_lines(cli, &lines);
    int rc;

    if (code)
        return code;
    if (ms_trace_init(&t) < 0)
        return ms_out_fail(cli, MS_EXIT_FAILED, "out of memory");
    code = read_lines(cli, lines, &t);
    if (code)
        return code;
    if (ms_cli_has(cli, MS_OPT_OUTPUT))
        return write_file(cli, &t, cli->values[MS_OPT_OUTPUT]);
    rc = ms_trace_write(&t, stdout);
    return rc < 0 ? fail_write(cli, "the trace", rc) : MS_EXIT_OK;
}
