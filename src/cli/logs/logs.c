/* logs.c - `muster logs`: what workers have printed */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/timestamp.h"
#include "cli/jobs/jobs.h"
#include "cli/logs/remote.h"
#include "cli/logs/view.h"
#include "cli/out.h"
#include "cli/target.h"
#include "io/proc.h"
#include "io/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>

/* ---- waiting for more ------------------------------------------------------------ */

/* Event-driven: inotify on the logs folder, and a thread that waits for the session's lock,
 * which the kernel gives it when the last holder is gone, however it went. */
struct watch {
    int inotify;
    int ended; /* readable when the session has ended */
};

enum watch_event {
    WRITTEN, /* a file has grown */
    NEW,     /* there may be new files as well */
    ENDED    /* nothing more will be written */
};

static void watch_close(struct watch *f)
{
    ms_fd_close(&f->inotify);
    ms_fd_close(&f->ended);
}

struct waiter {
    int lock, ended; /* ours: its own descriptors */
};

static void *wait_for_lock(void *arg)
{
    struct waiter *w = arg;
    uint64_t one = 1;

    while (flock(w->lock, LOCK_SH) < 0 && errno == EINTR)
        ;
    close(w->lock);
    while (write(w->ended, &one, sizeof one) < 0 && errno == EINTR)
        ;
    close(w->ended);
    free(w);
    return NULL;
}

/* The thread is never joined: it ends with the session or with us. Takes `lock` on
 * success. */
static int start_waiter(int lock, int ended)
{
    struct waiter *w = malloc(sizeof *w);
    pthread_t thread = 0;
    int rc;

    if (!w)
        return -ENOMEM;
    *w = (struct waiter){.lock = lock, .ended = fcntl(ended, F_DUPFD_CLOEXEC, 0)};
    rc = w->ended < 0 ? errno : pthread_create(&thread, NULL, wait_for_lock, w);
    if (rc != 0) {
        ms_fd_close(&w->ended);
        free(w);
        return -rc;
    }
    pthread_detach(thread);
    return 0;
}

static int watch_end(struct watch *f, const struct ms_session *session)
{
    char path[MS_SESSION_DIR_MAX + sizeof "/lock"];
    MS_CLEANUP(ms_cleanup_fd) int lock = -1;
    uint64_t one = 1;
    int rc;

    snprintf(path, sizeof path, "%s/lock", session->dir);
    lock = open(path, O_RDONLY | O_CLOEXEC);
    if (lock < 0 && errno != ENOENT)
        return -errno;
    if (lock < 0) /* the lock goes last: it has ended */
        return write(f->ended, &one, sizeof one) < 0 ? -errno : 0;
    rc = start_waiter(lock, f->ended);
    if (rc == 0)
        (void)MS_TAKE_FD(lock);
    return rc;
}

/* `logs` is the path of the folder. A session that has ended already is fine: the first wait
 * says so. 0 or a negative errno. */
static int watch_open(struct watch *f,
                      const struct ms_session *session,
                      const char *logs,
                      struct ms_error *err)
{
    int rc = 0;

    f->inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    f->ended = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (f->inotify < 0 || f->ended < 0 ||
        inotify_add_watch(f->inotify, logs, IN_MODIFY | IN_CREATE | IN_MOVED_TO) < 0)
        rc = -errno;
    if (rc == 0)
        rc = watch_end(f, session);
    if (rc == 0)
        return 0;
    watch_close(f);
    return ms_error_sys(err, rc, "cannot follow '%s'", logs);
}

/* Take all events that are there. */
static int drain(int inotify)
{
    _Alignas(struct inotify_event) char events[16 << 10];
    int found = WRITTEN;
    ssize_t n;

    while ((n = read(inotify, events, sizeof events)) > 0)
        for (char *p = events; p < events + n;) {
            const struct inotify_event *e = (const void *)p;

            if (e->mask & ~(uint32_t)IN_MODIFY) /* also: events were lost */
                found = NEW;
            p += sizeof *e + e->len;
        }
    return n < 0 && errno != EAGAIN && errno != EINTR ? -errno : found;
}

/* Several things that have happened are one event, the greatest. A negative errno on failure. */
static int watch_wait(struct watch *f)
{
    struct pollfd fds[] = {{.fd = f->inotify, .events = POLLIN},
                           {.fd = f->ended, .events = POLLIN}};
    int rc;

    do
        rc = poll(fds, MS_COUNT(fds), -1);
    while (rc < 0 && errno == EINTR);
    if (rc < 0)
        return -errno;
    if (fds[1].revents)
        return ENDED;
    return drain(f->inotify);
}

/* ---- the command ----------------------------------------------------------------- */

static enum ms_exit parse_which(const struct ms_cli *cli, struct ms_logview *v)
{
    enum ms_exit code = MS_EXIT_OK;

    if (ms_cli_has(cli, MS_OPT_JOB) &&
        (ms_cli_has(cli, MS_OPT_AGENT) || cli->operand_count))
        return ms_out_fail(cli,
                           MS_EXIT_USAGE,
                           "--job shows all of a job: no %s with it",
                           cli->operand_count ? "operand" : "--agent");
    v->job = cli->values[MS_OPT_JOB];
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

/* The lines that are wanted. `grep` is for the caller to free, if the view has it. */
static enum ms_exit
parse_lines(const struct ms_cli *cli, struct ms_logview *v, regex_t *grep)
{
    const char *since = cli->values[MS_OPT_SINCE], *pattern = cli->values[MS_OPT_GREP];
    char why[128];
    int rc;

    if (since && ms_since_parse(since, ms_wall_ns(), &v->since_ns) < 0)
        return ms_out_fail(cli,
                           MS_EXIT_USAGE,
                           "--since is '%s', not a time such as 10m, 2h, 2026-11-18 or "
                           "2026-11-18T05:00",
                           since);
    if (!pattern)
        return MS_EXIT_OK;
    rc = regcomp(grep, pattern, REG_EXTENDED);
    if (rc != 0) {
        regerror(rc, grep, why, sizeof why);
        return ms_out_fail(
            cli,
            MS_EXIT_USAGE,
            "--grep is '%s', which is no extended regular expression: %s",
            pattern,
            why);
    }
    v->grep = grep;
    return MS_EXIT_OK;
}

static enum ms_exit fail_nothing(const struct ms_cli *cli,
                                 const struct ms_logview *v,
                                 const struct ms_session *s)
{
    if (v->single)
        return ms_out_fail(cli,
                           MS_EXIT_NOT_FOUND,
                           "session '%s' has no %s: nothing %s printed%s",
                           s->name,
                           v->single,
                           s->alive ? "has been" : "was",
                           s->alive ? " yet" : "");
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
follow(const struct ms_cli *cli, struct ms_logview *v, struct watch *f)
{
    int rc = 0, event = WRITTEN;

    v->lines_max = -1; /* of what is new, everything */
    while (rc >= 0 && event != ENDED) {
        fflush(stdout);
        if (ferror(stdout))
            return MS_EXIT_FAILED;
        event = rc = watch_wait(f);
        if (event >= NEW)
            rc = ms_logview_scan(v);
        if (rc >= 0)
            rc = ms_logview_print(v);
    }
    if (rc < 0)
        return ms_out_fail(cli, MS_EXIT_FAILED, "cannot follow: %s", strerror(-rc));
    return MS_EXIT_OK;
}

struct nodes {
    struct ms_logview *view;
    const char *session;
};

/* SESSION@NODE is a folder of an agent of this machine that had joined the session. */
static int open_node(void *arg, int root, const char *name)
{
    const struct nodes *n = arg;
    size_t len = strlen(n->session);
    char path[NAME_MAX + sizeof "/logs"];
    int rc;

    if (strncmp(name, n->session, len) != 0 || name[len] != '@')
        return 0;
    snprintf(path, sizeof path, "%s/logs", name);
    rc = ms_logview_open(n->view, root, path);
    return rc == -ENOENT || rc == -ENOTDIR ? 0 : rc;
}

/* Of a session that has ended nobody else can tell. */
static int open_nodes(struct ms_logview *v, const struct ms_session *s)
{
    struct nodes n = {v, s->name};
    char root[MS_SESSION_DIR_MAX];
    MS_CLEANUP(ms_cleanup_fd) int fd = -1;
    struct ms_error err = {0};
    int rc = ms_session_root(root, &err);

    if (rc < 0)
        return rc;
    fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : ms_tree_each(fd, open_node, &n);
}

static int
open_folders(struct ms_logview *v, const struct ms_session *s, const char *logs)
{
    int rc = ms_logview_open(v, AT_FDCWD, logs);

    if ((rc == 0 || rc == -ENOENT) && !s->alive) {
        int other = open_nodes(v, s);

        rc = other < 0 ? other : v->dir_count ? 0 : rc;
    }
    return rc;
}

static enum ms_exit
show(const struct ms_cli *cli, struct ms_logview *v, const struct ms_session *s)
{
    bool following = ms_cli_has(cli, MS_OPT_FOLLOW) && s->alive;
    char path[MS_SESSION_DIR_MAX + sizeof "/logs"];
    struct watch f = {-1, -1};
    struct ms_error err = {0};
    enum ms_exit code;
    int rc;

    snprintf(path, sizeof path, "%s/logs", s->dir);
    rc = open_folders(v, s, path);
    if (rc == -ENOENT)
        return fail_nothing(cli, v, s);
    if (rc < 0)
        return ms_out_fail(
            cli, MS_EXIT_FAILED, "cannot open '%s': %s", path, strerror(-rc));
    /* watch first: what is written while we read is an event then */
    if (following && watch_open(&f, s, path, &err) < 0)
        return ms_out_fail(cli, MS_EXIT_FAILED, "%s", err.text);
    code = print_first(cli, v, s);
    if (!code && following)
        code = follow(cli, v, &f);
    if (!code)
        ms_logview_end(v);
    watch_close(&f);
    return code;
}

/* Through the head: nothing of it is in a folder of this machine. */
static enum ms_exit show_remote(const struct ms_cli *cli, struct ms_logview *v)
{
    MS_CLEANUP(ms_target_finish) struct ms_target t = {0};
    enum ms_exit code = ms_target_init(&t, cli);

    v->merged = v->single && strcmp(v->single, MS_LOGVIEW_MERGED) == 0;
    return code ? code : ms_remote_logs_show(&t, v, NULL);
}

/* A job of the same name that was deleted has printed before this one was submitted. */
static enum ms_exit show_job(const struct ms_cli *cli, struct ms_logview *v)
{
    MS_CLEANUP(ms_target_finish) struct ms_target t = {0};
    Muster__JobRef want = MUSTER__JOB_REF__INIT;
    ProtobufCMessage *answer = NULL;
    const Muster__JobStatus *job;
    enum ms_exit code = ms_jobs_target(&t, cli, v->job, false);

    want.name = (char *)(uintptr_t)v->job;
    if (!code)
        code =
            ms_jobs_ask(&t, MUSTER__DRIVER_TO_HEAD__BODY_GET_JOB, &want.base, &answer);
    if (code)
        return code;
    job = (const Muster__JobStatus *)answer;
    v->merged = true;
    if (v->since_ns < (int64_t)job->submitted_ns)
        v->since_ns = (int64_t)job->submitted_ns;
    code = ms_remote_logs_show(&t, v, job);
    protobuf_c_message_free_unpacked(answer, NULL);
    return code;
}

static enum ms_exit find_and_show(const struct ms_cli *cli, struct ms_logview *v)
{
    MS_CLEANUP(ms_sessions_finish) struct ms_sessions all = {0};
    const struct ms_session *session = NULL;
    enum ms_exit code;

    if (v->job)
        return show_job(cli, v);
    if (ms_target_is_remote(cli))
        return show_remote(cli, v);
    code = ms_sessions_init(&all, cli);
    if (!code)
        code = ms_target_session(cli, &all, false, &session);
    if (!code && session->is_daemon)
        return show_remote(cli, v);
    return code ? code : show(cli, v, session);
}

enum ms_exit ms_cmd_logs(const struct ms_cli *cli)
{
    MS_CLEANUP(ms_logview_close)
    struct ms_logview v = {.lines_max = ms_cli_number(cli, MS_OPT_LINES, -1),
                           .json = ms_cli_has(cli, MS_OPT_JSON),
                           .timestamps = ms_cli_has(cli, MS_OPT_TIMESTAMPS)};
    enum ms_exit code = parse_which(cli, &v);
    struct rlimit original;
    regex_t grep;

    ms_nofile_raise(&original); /* a file for each worker is open */
    if (!code)
        code = parse_lines(cli, &v, &grep);
    if (!code)
        code = find_and_show(cli, &v);
    if (v.grep)
        regfree(&grep);
    return code;
}
