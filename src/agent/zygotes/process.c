/* process.c - in a zygote: requests in, forks, and reports of them */
#include "agent/zygotes/process.h"
#include "agent/zygotes/spares.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "base/proto.h"
#include "io/proc.h"
#include "io/sock.h"
#include "io/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* How long after a death that nobody asked for its group is killed, and the next spare is
 * forked. Those who hear of it run first: a fork, and the end of the keeper, which frees the
 * worker's memory, would take a core from them for a millisecond or two. */
enum { SURPRISE_MS = 5 };

/* Deaths of that time; of more the groups are killed at once. */
enum { LATE_MAX = 16 };

#ifndef PIDFD_SIGNAL_PROCESS_GROUP
#define PIDFD_SIGNAL_PROCESS_GROUP (1U << 2) /* Linux 6.9 */
#endif

/* Facts of the process, set by the first ms_zygote_next. */
static struct {
    bool ready;
    int signal_fd; /* SIGCHLD */
    int late_ms;   /* until `late` and the next spare, if nothing is asked before */
    int late[LATE_MAX]; /* pidfds of dead workers whose groups are to be killed */
    int late_count;
    sigset_t mask_before;
    uint8_t *room;    /* MS_SPAWN_MAX bytes for a request */
    char *uid_digits; /* in the memory behind /proc/self/environ; NULL: none */
    char *args;       /* the memory behind /proc/self/cmdline; NULL: unknown */
    size_t args_len;
    pid_t pid; /* of the zygote; a spare keeps its parent's */
    struct ms_spares spares;
    bool is_spare;
    char name[16]; /* of a spare before it was one */
} side = {.signal_fd = -1};

/* ---- once ------------------------------------------------------------------------ */

/* Fields 48 to 51 of /proc/self/stat: where arguments and environment begin and end. */
static bool find_areas(uintptr_t at[4])
{
    char text[1024], *field;
    MS_CLEANUP(ms_cleanup_fd) int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);

    if (n <= 0)
        return false;
    text[n] = 0;
    field = strrchr(text, ')');
    for (int i = 2; field && i < 48; i++)
        field = strchr(field + 1, ' ');
    for (int i = 0; i < 4; i++) {
        if (!field)
            return false;
        at[i] = (uintptr_t)strtoull(field, &field, 10);
    }
    return at[0] && at[0] < at[1] && at[2] && at[2] < at[3];
}

static void remember_areas(void)
{
    static const char name[] = "MUSTER_WORKER_UID=";
    uintptr_t at[4];

    if (!find_areas(at))
        return;
    side.args = (char *)at[0];
    side.args_len = at[1] - at[0];
    for (char *e = (char *)at[2]; e < (char *)at[3]; e += strlen(e) + 1)
        if (!strncmp(e, name, sizeof name - 1) && strlen(e) == sizeof name - 1 + 16)
            side.uid_digits = e + sizeof name - 1;
}

static int begin(void)
{
    sigset_t mask;

    if (!side.room)
        side.room = malloc(MS_SPAWN_MAX);
    if (!side.room)
        return -ENOMEM;
    if (!side.args)
        remember_areas();
    sigemptyset(&mask);
    sigaddset(&mask, SIGCHLD);
    if (sigprocmask(SIG_BLOCK, &mask, &side.mask_before) < 0)
        return -errno;
    side.signal_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    if (side.signal_fd < 0)
        return -errno;
    ms_spares_init(&side.spares);
    side.pid = getpid();
    side.ready = true;
    return 0;
}

/* Undo `begin`, in a child. */
static void end(void)
{
    ms_spares_finish(&side.spares);
    side.is_spare = false;
    ms_fd_close(&side.signal_fd);
    if (side.ready)
        sigprocmask(SIG_SETMASK, &side.mask_before, NULL);
    side.ready = false;
}

/* ---- to the agent ---------------------------------------------------------------- */

/* Blocks until the agent has room. `body` is that of the case. */
static int send_event(int fd, Muster__ZygoteEvent__BodyCase body_case, const void *body)
{
    Muster__ZygoteEvent event = MUSTER__ZYGOTE_EVENT__INIT;
    MS_CLEANUP(ms_buf_finish) struct ms_buf data = {0};

    event.body_case = body_case;
    event.loaded = (Muster__LoadedFile *)(uintptr_t)body; /* a union of pointers */
    if (ms_proto_pack(&event.base, &data) < 0)
        return -ENOMEM;
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        ssize_t n = ms_fds_send(fd, data.data, data.len, NULL, 0);

        if (n != -EAGAIN)
            return n < 0 ? (int)n : 0;
        if (poll(&p, 1, -1) < 0 && errno != EINTR)
            return -errno;
    }
}

int ms_zygote_loaded(int fd, const char *path, uint64_t size, int64_t mtime_ns)
{
    Muster__LoadedFile file = MUSTER__LOADED_FILE__INIT;

    file.path = (char *)(uintptr_t)path;
    file.size = size;
    file.mtime_ns = mtime_ns;
    return send_event(fd, MUSTER__ZYGOTE_EVENT__BODY_LOADED, &file);
}

int ms_zygote_changed(int fd, const char *entry)
{
    Muster__ChangedVariable changed = MUSTER__CHANGED_VARIABLE__INIT;

    changed.entry = (char *)(uintptr_t)entry;
    return send_event(fd, MUSTER__ZYGOTE_EVENT__BODY_CHANGED, &changed);
}

int ms_zygote_ready(int fd, const char *problem, bool forkable)
{
    Muster__ZygoteReady ready = MUSTER__ZYGOTE_READY__INIT;
    /* a traceback may be long; a message is one packet */
    MS_CLEANUP(ms_cleanup_free) char *text = strndup(problem, MS_LOG_LINE_MAX);

    if (!text)
        return -ENOMEM;
    ready.pid = getpid();
    ready.problem = text;
    ready.forkable = forkable;
    return send_event(fd, MUSTER__ZYGOTE_EVENT__BODY_READY, &ready);
}

static int report_started(int fd, uint64_t uid, pid_t pid, int error)
{
    Muster__Spawned spawned = MUSTER__SPAWNED__INIT;

    spawned.uid = uid;
    spawned.pid = pid;
    spawned.error = error;
    return send_event(fd, MUSTER__ZYGOTE_EVENT__BODY_SPAWNED, &spawned);
}

int ms_zygote_started(int fd, uint64_t uid, pid_t pid, int error)
{
    if (!uid) {
        ms_spares_forked(&side.spares, pid);
        return 0;
    }
    if (pid > 0)
        setpgid(pid,
                pid); /* as the child does: its group can be signalled from now on */
    return report_started(fd, uid, pid, error);
}

static int report_reaped(int fd, pid_t pid, int status)
{
    Muster__Reaped reaped = MUSTER__REAPED__INIT;
    uint64_t lost = 0;
    int rc = 0;

    if (!ms_spares_reaped(&side.spares, pid, &lost))
        ms_spares_want(&side.spares);
    else if (lost)
        rc = report_started(fd, lost, 0, ECHILD);
    reaped.pid = pid;
    reaped.status = status;
    return rc < 0 ? rc : send_event(fd, MUSTER__ZYGOTE_EVENT__BODY_REAPED, &reaped);
}

static void drain_signals(void)
{
    struct signalfd_siginfo ignored[8];
    ssize_t n = read(side.signal_fd, ignored, sizeof ignored);

    (void)n;
}

/* Nobody has asked for this end, as far as we know. */
static bool is_surprise(const siginfo_t *info)
{
    return info->si_code != CLD_EXITED && info->si_status != SIGTERM;
}

static int signal_group(int pidfd, int sig)
{
    return (int)syscall(
        SYS_pidfd_send_signal, pidfd, sig, NULL, PIDFD_SIGNAL_PROCESS_GROUP);
}

static void kill_late(void)
{
    while (side.late_count > 0) {
        int fd = side.late[--side.late_count];

        signal_group(fd, SIGKILL);
        ms_fd_close(&fd);
    }
    side.late_ms = 0;
}

/* A pidfd names the group also when its leader was reaped and its number is used again.
 * False: there is no room, or the kernel cannot do that. */
static bool kill_later(pid_t pid)
{
    int fd = side.late_count < LATE_MAX ? ms_process_open(pid) : -1;

    if (fd >= 0 && signal_group(fd, 0) < 0)
        ms_fd_close(&fd);
    if (fd < 0)
        return false;
    side.late[side.late_count++] = fd;
    side.late_ms = SURPRISE_MS;
    return true;
}

/* As waitpid gives it. */
static int status_of(const siginfo_t *info)
{
    if (info->si_code == CLD_EXITED)
        return W_EXITCODE(info->si_status & 0xff, 0);
    return W_EXITCODE(0, info->si_status) |
           (info->si_code == CLD_DUMPED ? WCOREFLAG : 0);
}

/* Its group is killed while the dead leader still keeps its number. Of a surprise the agent
 * hears first: calls wait for that. */
static int reap_one(int fd, const siginfo_t *info)
{
    bool is_first = is_surprise(info);
    int rc = is_first ? report_reaped(fd, info->si_pid, status_of(info)) : 0;

    if (!is_first || !kill_later(info->si_pid))
        ms_proc_group_kill(info->si_pid, SIGKILL);
    if (waitpid(info->si_pid, NULL, 0) != info->si_pid)
        return -errno;
    return is_first ? rc : report_reaped(fd, info->si_pid, status_of(info));
}

/* Signals are taken when none is left, and then it is looked once more. */
static int reap(int fd)
{
    for (bool is_drained = false;; is_drained = true) {
        siginfo_t info = {0};
        int rc = 0;

        while (rc == 0 && waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
               info.si_pid) {
            rc = reap_one(fd, &info);
            info.si_pid = 0;
        }
        if (rc < 0 || is_drained)
            return rc;
        drain_signals();
    }
}

/* ---- from the agent -------------------------------------------------------------- */

static void request_finish(struct ms_zygote_request *r)
{
    muster__zygote_request__free_unpacked(r->message, NULL);
    for (size_t i = 0; i < r->fd_count; i++)
        ms_fd_close(&r->fds[i]);
    *r = (struct ms_zygote_request){0};
}

static size_t fds_expected(const Muster__ZygoteRequest *m)
{
    switch (m->body_case) {
    case MUSTER__ZYGOTE_REQUEST__BODY_SPAWN:
        return MS_SPAWN_CGROUP;
    case MUSTER__ZYGOTE_REQUEST__BODY_DERIVE:
        return 1;
    default:
        return 0;
    }
}

static int receive(int fd, struct ms_zygote_request *r)
{
    ssize_t n;

    r->fd_count = MS_SPAWN_FDS;
    n = ms_fds_recv(fd, side.room, MS_SPAWN_MAX, r->fds, &r->fd_count);
    if (n <= 0) {
        r->fd_count = 0;
        return n == -ECONNRESET ? 0 : (int)n;
    }
    r->message = muster__zygote_request__unpack(NULL, (size_t)n, side.room);
    if (!r->message || r->fd_count < fds_expected(r->message)) {
        request_finish(r);
        return -EPROTO;
    }
    return 1;
}

/* SIGCHLD tells of requests too (ms_zygote_flush): a message on the socket does not wake us,
 * only its end does. */
int ms_zygote_next(int fd, struct ms_zygote_request *r)
{
    int rc = side.ready ? 0 : begin();

    request_finish(r);
    while (rc == 0) {
        struct pollfd p[] = {{.fd = fd}, {.fd = side.signal_fd, .events = POLLIN}};

        rc = receive(fd, r);
        if (rc != -EAGAIN) {
            kill_late();
            return rc;
        }
        rc = poll(p, 2, side.spares.wanted || side.late_count ? side.late_ms : -1);
        if (rc < 0 && errno != EINTR)
            return -errno;
        if (rc == 0)
            kill_late();
        if (rc == 0 && ms_spares_begin(&side.spares))
            return MS_ZYGOTE_FORK_SPARE;
        rc = p[1].revents ? reap(fd) : 0;
        if (rc == -EPIPE || rc == -ECONNRESET)
            return 0;
    }
    return rc;
}

/* ---- a spare --------------------------------------------------------------------- */

uint64_t ms_zygote_request_uid(const Muster__ZygoteRequest *m)
{
    switch (m->body_case) {
    case MUSTER__ZYGOTE_REQUEST__BODY_SPAWN:
        return m->spawn->uid;
    case MUSTER__ZYGOTE_REQUEST__BODY_DERIVE:
        return m->derive->uid;
    default:
        return 0;
    }
}

static int wait_as_spare(int fd)
{
    struct pollfd p[] = {{.fd = fd}, {.fd = side.signal_fd, .events = POLLIN}};
    Muster__Spare spare = MUSTER__SPARE__INIT;
    int rc;

    spare.pid = getpid();
    rc = send_event(fd, MUSTER__ZYGOTE_EVENT__BODY_SPARE, &spare);
    if (rc < 0)
        return rc;
    if (poll(p, 2, -1) < 0 && errno != EINTR)
        return -errno;
    drain_signals();
    return 0;
}

/* Say which request we are about to read: if we die now it is known to be lost. Another may
 * read it first, then it is ours no more. */
static int announce(int fd)
{
    Muster__ZygoteRequest *m;
    ssize_t n = recv(fd, side.room, MS_SPAWN_MAX, MSG_PEEK | MSG_DONTWAIT);

    if (n < 0)
        return -errno;
    m = muster__zygote_request__unpack(NULL, (size_t)n, side.room);
    if (m) {
        ms_spares_take(&side.spares, ms_zygote_request_uid(m));
        muster__zygote_request__free_unpacked(m, NULL);
    }
    return 0;
}

static int take_request(int fd, struct ms_zygote_request *r)
{
    int rc = announce(fd);

    if (rc == 0)
        rc = receive(fd, r);
    ms_spares_take(&side.spares, rc == 1 ? ms_zygote_request_uid(r->message) : 0);
    return rc;
}

int ms_zygote_spare(int fd, struct ms_zygote_request *r)
{
    int rc = -EAGAIN;

    side.is_spare = true;
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    prctl(PR_GET_NAME, side.name, 0, 0, 0);
    ms_proc_set_name("muster-spare");
    while (rc == -EAGAIN) {
        if (getppid() != side.pid)
            return 0;
        rc = take_request(fd, r);
        if (rc == -EAGAIN && wait_as_spare(fd) < 0)
            return 0;
    }
    return rc == -ECONNRESET ? 0 : rc;
}

/* From now on it lives on without its zygote, as any worker. */
static void leave_spares(int fd, const struct ms_zygote_request *r)
{
    prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0);
    setpgid(0, 0);
    report_started(fd, ms_zygote_request_uid(r->message), getpid(), 0);
    ms_spares_reported(&side.spares);
}

/* ---- in the child ---------------------------------------------------------------- */

/* "muster-worker cluster/rank" where the interpreter's arguments were, and the short
 * name, whose 15 bytes keep the rank. */
static void set_names(const Muster__Spawn *s)
{
    char rank[16], name[32];
    int rank_len = snprintf(rank, sizeof rank, "/%u", s->rank);

    snprintf(name, sizeof name, "%.*s%s", 15 - rank_len, s->cluster, rank);
    ms_proc_set_name(name);
    if (!side.args)
        return;
    memset(side.args, 0, side.args_len);
    snprintf(side.args, side.args_len, "muster-worker %s%s", s->cluster, rank);
}

/* On the worker's own stderr, which is its log. */
static int explain(int code, const char *what, const char *name)
{
    dprintf(STDERR_FILENO,
            "[muster] cannot enter %s%s%s%s: %s\n",
            what,
            *name ? " '" : "",
            name,
            *name ? "'" : "",
            strerrordesc_np(code));
    return -code;
}

static int place(const struct ms_zygote_request *r, const Muster__Spawn *s)
{
    if (dup2(r->fds[MS_SPAWN_STDOUT], STDOUT_FILENO) < 0 ||
        dup2(r->fds[MS_SPAWN_STDERR], STDERR_FILENO) < 0)
        return -errno;
    setpgid(0, 0);
    if (r->fd_count > MS_SPAWN_CGROUP && write(r->fds[MS_SPAWN_CGROUP], "0", 1) < 0)
        return explain(errno, "its memory control group", "");
    if (*s->working_dir && chdir(s->working_dir) < 0)
        return explain(errno, "the working folder", s->working_dir);
    return 0;
}

static int be_worker(struct ms_zygote_request *r)
{
    const Muster__Spawn *s = r->message->spawn;
    int rc = place(r, s);

    ms_fd_close(&r->fds[MS_SPAWN_STDOUT]);
    ms_fd_close(&r->fds[MS_SPAWN_STDERR]);
    if (r->fd_count > MS_SPAWN_CGROUP)
        ms_fd_close(&r->fds[MS_SPAWN_CGROUP]);
    if (side.uid_digits) {
        char digits[17];

        snprintf(digits, sizeof digits, "%016" PRIx64, s->uid);
        memcpy(side.uid_digits, digits, 16);
    }
    set_names(s);
    return rc;
}

/* A zygote of its own: it goes when the one that made it goes. */
static int be_zygote(struct ms_zygote_request *r)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (*side.name)
        ms_proc_set_name(side.name);
    setpgid(0, 0);
    return MS_TAKE_FD(r->fds[0]);
}

int ms_zygote_child(int fd, struct ms_zygote_request *r)
{
    if (side.is_spare)
        leave_spares(fd, r);
    end();
    close(fd);
    switch (r->message ? r->message->body_case : 0) {
    case MUSTER__ZYGOTE_REQUEST__BODY_SPAWN:
        return be_worker(r);
    case MUSTER__ZYGOTE_REQUEST__BODY_DERIVE:
        return be_zygote(r);
    default:
        return -EINVAL;
    }
}
