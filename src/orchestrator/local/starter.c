/* starter.c - starts an agent as a child with a socket to us, and watches its process */
#include "orchestrator/local/starter.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "io/sock.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>

/* How long a process may take to vanish after SIGKILL. */
#define VANISH_NS (1 * MS_NS_PER_S)

/* Descriptors of the agent. */
enum { AGENT_LINK_FD = 3, AGENT_LOCK_FD = 4 };

struct ms_local_agent {
    struct ms_loop *loop;
    struct ms_process process;
    int link_fd; /* until it is handed over */
    int rc;
    struct ms_error why;
    struct ms_timer started;  /* tells the completion from the loop */
    struct ms_timer stopping; /* until it is killed whatever it is */
    struct ms_watch ended;
    const struct ms_agent_events *events;
    void *arg;
};

static void on_ended(void *arg, unsigned events)
{
    struct ms_local_agent *a = arg;
    struct ms_process_end end = {0};

    (void)events;
    if (ms_process_reap(a->process.pidfd, &end) == -EAGAIN)
        return;
    ms_watch_finish(&a->ended);
    ms_timer_cancel(&a->stopping);
    ms_fd_close(&a->process.pidfd);
    a->events->on_ended(a->arg, &end);
}

static void on_started(void *arg)
{
    struct ms_local_agent *a = arg;

    if (a->rc == 0)
        a->rc =
            ms_watch_init(&a->ended, a->loop, a->process.pidfd, MS_READ, on_ended, a);
    if (a->rc == 0) {
        a->events->on_started(a->arg, 0, MS_TAKE_FD(a->link_fd), a->process.pid, NULL);
        return;
    }
    if (!a->why.code)
        ms_error_sys(&a->why, a->rc, "cannot watch the agent");
    a->events->on_started(a->arg, a->rc, -1, 0, &a->why);
}

/* Its output, so that what it says before its own log is open is not lost. */
static int open_log(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);

    return fd < 0 ? -errno : fd;
}

static int spawn(struct ms_local_agent *a, const struct ms_agent_spec *spec, int theirs)
{
    static const char *const argv[] = {"muster", "agent", "--fd", "3", NULL};
    MS_CLEANUP(ms_cleanup_fd) int log = open_log(spec->log_path);
    struct ms_spawn_fd fds[4] = {{log, 1}, {log, 2}, {theirs, AGENT_LINK_FD}};
    size_t count = 3;

    if (log < 0)
        return ms_error_sys(&a->why, log, "cannot open '%s'", spec->log_path);
    if (spec->lock_fd >= 0)
        fds[count++] = (struct ms_spawn_fd){spec->lock_fd, AGENT_LOCK_FD};
    return ms_spawn(
        &(struct ms_spawn){
            .path = spec->path,
            .argv = argv,
            .env = spec->env,
            .working_dir = spec->working_dir,
            .fds = fds,
            .fd_count = count,
            .new_session = true,
        },
        &a->process,
        &a->why);
}

static int start_process(struct ms_local_agent *a, const struct ms_agent_spec *spec)
{
    int ends[2], rc = ms_unix_pair(SOCK_STREAM, ends);

    if (rc < 0)
        return ms_error_sys(&a->why, rc, "cannot make the agent's link");
    rc = spawn(a, spec, ends[1]);
    close(ends[1]);
    if (rc < 0)
        close(ends[0]);
    else
        a->link_fd = ends[0];
    return rc;
}

/* Its supervisor does not react: without it the agent ends by itself. */
static void on_stopping(void *arg)
{
    struct ms_local_agent *a = arg;

    ms_process_signal(a->process.pidfd, SIGKILL);
}

struct ms_local_agent *ms_local_agent_start(struct ms_loop *loop,
                                            const struct ms_agent_spec *spec,
                                            const struct ms_agent_events *events,
                                            void *arg)
{
    struct ms_local_agent *a = calloc(1, sizeof *a);

    if (!a)
        return NULL;
    *a = (struct ms_local_agent){
        .loop = loop,
        .process.pidfd = -1,
        .link_fd = -1,
        .events = events,
        .arg = arg,
    };
    if (ms_timer_init(&a->started, loop, on_started, a) < 0 ||
        ms_timer_init(&a->stopping, loop, on_stopping, a) < 0) {
        ms_timer_finish(&a->started);
        free(a);
        return NULL;
    }
    a->rc = start_process(a, spec);
    ms_timer_set(&a->started, 0);
    return a;
}

void ms_local_agent_stop(struct ms_local_agent *a)
{
    if (a->process.pidfd < 0)
        return;
    ms_process_signal(a->process.pidfd, SIGQUIT);
    ms_timer_set(&a->stopping, VANISH_NS);
}

void ms_local_agent_release(struct ms_local_agent *a)
{
    struct ms_process_end end;

    if (!a)
        return;
    ms_timer_finish(&a->started);
    ms_watch_finish(&a->ended);
    if (a->process.pidfd >= 0) {
        ms_process_signal(a->process.pidfd, SIGQUIT);
        if (ms_process_wait(a->process.pidfd, ms_now_ns() + VANISH_NS, &end) < 0) {
            ms_process_signal(a->process.pidfd, SIGKILL);
            ms_process_wait(a->process.pidfd, ms_now_ns() + VANISH_NS, &end);
        }
    }
    ms_timer_finish(&a->stopping);
    ms_fd_close(&a->process.pidfd);
    ms_fd_close(&a->link_fd);
    free(a);
}
