/* spawn.c - start processes by posix_spawn, and wait for them by pidfds */
#include "io/spawn.h"
#include "base/cleanup.h"
#include "io/sock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* waitid's id type of a pidfd; older headers have no name for it. */
enum { ID_PIDFD = 3 };

/* Copies above every number that the child will use, so that no mapping overwrites the
 * source of a later one. */
struct sources {
    int fds[MS_SPAWN_FDS_MAX];
    size_t count;
};

static void sources_finish(struct sources *s)
{
    while (s->count)
        close(s->fds[--s->count]);
}

static int sources_init(struct sources *src, const struct ms_spawn *s)
{
    for (size_t i = 0; i < s->fd_count; i++) {
        int fd = fcntl(s->fds[i].from, F_DUPFD_CLOEXEC, MS_SPAWN_FDS_MAX);

        if (fd < 0)
            return -errno;
        src->fds[src->count++] = fd;
    }
    return 0;
}

static bool is_mapped(const struct ms_spawn *s, int to)
{
    for (size_t i = 0; i < s->fd_count; i++)
        if (s->fds[i].to == to)
            return true;
    return false;
}

/* Descriptors that lie between the mapped ones would survive: close them one by one and
 * all above with one call. */
static int add_closes(posix_spawn_file_actions_t *actions, const struct ms_spawn *s)
{
    int last = 2, rc = 0;

    for (size_t i = 0; i < s->fd_count; i++)
        if (s->fds[i].to > last)
            last = s->fds[i].to;
    for (int fd = 3; fd < last && rc == 0; fd++)
        if (!is_mapped(s, fd))
            rc = posix_spawn_file_actions_addclose(actions, fd);
    return rc ? rc : posix_spawn_file_actions_addclosefrom_np(actions, last + 1);
}

static int add_actions(posix_spawn_file_actions_t *actions,
                       const struct ms_spawn *s,
                       const struct sources *src)
{
    int rc = 0;

    for (size_t i = 0; i < s->fd_count && rc == 0; i++)
        rc = posix_spawn_file_actions_adddup2(actions, src->fds[i], s->fds[i].to);
    for (int fd = 0; fd < 3 && rc == 0; fd++)
        if (!is_mapped(s, fd))
            rc = posix_spawn_file_actions_addopen(actions, fd, "/dev/null", O_RDWR, 0);
    if (rc == 0)
        rc = add_closes(actions, s);
    if (rc == 0 && s->working_dir)
        rc = posix_spawn_file_actions_addchdir_np(actions, s->working_dir);
    return rc;
}

static int set_attributes(posix_spawnattr_t *attr, bool new_session)
{
    sigset_t all, none;
    int flags = POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK, rc;

    sigfillset(&all);
    sigemptyset(&none);
    if (new_session)
        flags |= POSIX_SPAWN_SETSID;
    rc = posix_spawnattr_setsigdefault(attr, &all);
    if (rc == 0)
        rc = posix_spawnattr_setsigmask(attr, &none);
    return rc ? rc : posix_spawnattr_setflags(attr, (short)flags);
}

/* posix_spawn wants pointers to non-const strings and changes none of them. */
static char *const *strings(const char *const *v)
{
    return (char *const *)(uintptr_t)v;
}

static int spawn_with(const struct ms_spawn *s, const struct sources *src, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    int rc = posix_spawn_file_actions_init(&actions);

    if (rc)
        return -rc;
    rc = posix_spawnattr_init(&attr);
    if (rc) {
        posix_spawn_file_actions_destroy(&actions);
        return -rc;
    }
    rc = add_actions(&actions, s, src);
    if (rc == 0)
        rc = set_attributes(&attr, s->new_session);
    if (rc == 0)
        rc = posix_spawn(
            pid, s->path, &actions, &attr, strings(s->argv), strings(s->env));
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&actions);
    return -rc;
}

static int check(const struct ms_spawn *s, struct ms_error *err)
{
    if (s->fd_count > MS_SPAWN_FDS_MAX)
        return ms_error_set(err, -EINVAL, "too many descriptors for '%s'", s->path);
    for (size_t i = 0; i < s->fd_count; i++)
        if (s->fds[i].to < 0 || s->fds[i].to >= MS_SPAWN_FDS_MAX)
            return ms_error_set(err,
                                -EINVAL,
                                "descriptor %d for '%s' is too high",
                                s->fds[i].to,
                                s->path);
    return 0;
}

int ms_spawn(const struct ms_spawn *s, struct ms_process *out, struct ms_error *err)
{
    MS_CLEANUP(sources_finish) struct sources src = {0};
    struct ms_process p = {.pidfd = -1};
    int rc = check(s, err);

    if (rc < 0)
        return rc;
    rc = sources_init(&src, s);
    if (rc < 0)
        return ms_error_sys(err, rc, "cannot pass descriptors to '%s'", s->path);
    rc = spawn_with(s, &src, &p.pid);
    if (rc < 0)
        return ms_error_sys(err, rc, "cannot execute '%s'", s->path);
    p.pidfd = ms_process_open(p.pid);
    if (p.pidfd < 0) {
        if (p.pidfd != -ESRCH) { /* ESRCH: it has ended and was reaped elsewhere */
            kill(p.pid, SIGKILL);
            waitpid(p.pid, NULL, 0);
        }
        return ms_error_sys(err, p.pidfd, "cannot watch '%s'", s->path);
    }
    *out = p;
    return 0;
}

int ms_process_open(pid_t pid)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);

    return fd < 0 ? -errno : fd;
}

int ms_process_signal(int pidfd, int sig)
{
    return syscall(SYS_pidfd_send_signal, pidfd, sig, NULL, 0) < 0 ? -errno : 0;
}

int ms_process_reap(int pidfd, struct ms_process_end *end)
{
    siginfo_t info = {0};
    int rc;

    do
        rc = waitid((idtype_t)ID_PIDFD, (id_t)pidfd, &info, WEXITED | WNOHANG) ? -errno
                                                                               : 0;
    while (rc == -EINTR);
    if (rc == 0 && info.si_pid == 0)
        return -EAGAIN;
    if (rc < 0 && rc != -ECHILD)
        return rc;
    *end = (struct ms_process_end){
        .known = rc == 0,
        .signaled = rc == 0 && info.si_code != CLD_EXITED,
        .code = rc == 0 ? info.si_status : 0,
    };
    return rc;
}

int ms_process_wait(int pidfd, int64_t deadline_ns, struct ms_process_end *end)
{
    struct pollfd p = {.fd = pidfd, .events = POLLIN};

    for (;;) {
        int n = ms_poll_until(&p, 1, deadline_ns);

        if (n > 0)
            return ms_process_reap(pidfd, end);
        if (n != -EINTR)
            return n < 0 ? n : -ETIMEDOUT;
    }
}

const char *
ms_process_end_print(const struct ms_process_end *end, char *out, size_t room)
{
    const char *name = end->signaled ? sigdescr_np(end->code) : NULL;

    if (!end->known)
        snprintf(out, room, "ended");
    else if (end->signaled)
        snprintf(out,
                 room,
                 "was killed by signal %d (%s)",
                 end->code,
                 name ? name : "unknown");
    else
        snprintf(out, room, "exited with code %d", end->code);
    return out;
}
