#include "agent/launch.h"
#include "base/cleanup.h"
#include "io/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { EXIT_NOT_EXECUTED = 127 };

enum stage {
    STAGE_CGROUP,
    STAGE_GROUP,
    STAGE_FOLDER,
    STAGE_FDS,
    STAGE_LIMIT,
    STAGE_EXEC
};

struct problem {
    enum stage stage;
    int code; /* negative errno */
};

static int enter_cgroup(int fd)
{
    if (fd < 0)
        return 0;
    return write(fd, "0", 1) < 0 ? -errno : 0;
}

static int enter_group(const struct ms_launch *l)
{
    if (l->new_session)
        return setsid() < 0 ? -errno : 0;
    return setpgid(0, 0) < 0 ? -errno : 0;
}

/* Handlers become defaults at exec by themselves; what was ignored would stay so. */
static void reset_signals(void)
{
    struct sigaction standard = {.sa_handler = SIG_DFL};
    sigset_t none;

    for (int sig = 1; sig < NSIG; sig++)
        sigaction(sig, &standard, NULL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* First out of the way of each other, then to their places. */
static int place_fds(const struct ms_launch *l)
{
    int from[MS_LAUNCH_FDS];

    for (int i = 0; i < MS_LAUNCH_FDS; i++) {
        from[i] = -1;
        if (l->fds[i] < 0 && i > 2)
            continue;
        from[i] = l->fds[i] >= 0 ? fcntl(l->fds[i], F_DUPFD_CLOEXEC, MS_LAUNCH_FDS)
                                 : open("/dev/null", O_RDWR | O_CLOEXEC);
        if (from[i] < 0)
            return -errno;
    }
    for (int i = 0; i < MS_LAUNCH_FDS; i++)
        if (from[i] >= 0 && dup2(from[i], i) < 0)
            return -errno;
    return 0;
}

/* dup2 onto itself would leave close-on-exec set: /dev/null may have got number 0. */
static void keep_fds(const struct ms_launch *l)
{
    for (int i = 0; i < MS_LAUNCH_FDS; i++)
        if (i < 3 || l->fds[i] >= 0)
            ms_fd_set_cloexec(i, false);
}

static struct problem prepare(const struct ms_launch *l)
{
    int rc = enter_cgroup(l->cgroup_fd);

    if (rc < 0)
        return (struct problem){STAGE_CGROUP, rc};
    rc = enter_group(l);
    if (rc < 0)
        return (struct problem){STAGE_GROUP, rc};
    if (l->working_dir && *l->working_dir && chdir(l->working_dir) < 0)
        return (struct problem){STAGE_FOLDER, -errno};
    rc = place_fds(l);
    if (rc < 0)
        return (struct problem){STAGE_FDS, rc};
    keep_fds(l);
    if (l->nofile && setrlimit(RLIMIT_NOFILE, l->nofile) < 0)
        return (struct problem){STAGE_LIMIT, -errno};
    return (struct problem){STAGE_EXEC, 0};
}

static void die_with_parent(const struct ms_launch *l, pid_t parent)
{
    if (!l->death_signal)
        return;
    prctl(PR_SET_PDEATHSIG, l->death_signal, 0, 0, 0);
    if (getppid() != parent) /* it was too late */
        _exit(EXIT_NOT_EXECUTED);
}

static void run_child(const struct ms_launch *l, int problem_fd, pid_t parent)
{
    struct problem p;
    int fd = fcntl(problem_fd, F_DUPFD_CLOEXEC, MS_LAUNCH_FDS);
    ssize_t n;

    die_with_parent(l, parent);
    reset_signals();
    p = prepare(l);
    if (p.code == 0) {
        environ = (char **)(uintptr_t)l->env;
        execvp(l->argv[0], l->argv);
        p = (struct problem){STAGE_EXEC, -errno};
    }
    n = write(fd, &p, sizeof p);
    (void)n; /* nobody is left to tell */
    _exit(EXIT_NOT_EXECUTED);
}

pid_t ms_launch(const struct ms_launch *l, int *problem_fd, struct ms_error *err)
{
    int fds[2];
    pid_t parent = getpid(), pid;

    if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
        return ms_error_sys(err, -errno, "cannot make a pipe for '%s'", l->argv[0]);
    pid = fork();
    if (pid == 0)
        run_child(l, fds[1], parent);
    close(fds[1]);
    if (pid < 0) {
        int code = -errno;

        close(fds[0]);
        return ms_error_sys(err, code, "cannot fork for '%s'", l->argv[0]);
    }
    /* also here: whoever signals the group next must find it */
    if (!l->new_session)
        setpgid(pid, pid);
    *problem_fd = fds[0];
    return pid;
}

static int explain(const struct ms_launch *l, struct problem p, struct ms_error *err)
{
    switch (p.stage) {
    case STAGE_CGROUP:
        return ms_error_sys(err, p.code, "cannot enter its memory control group");
    case STAGE_GROUP:
        return ms_error_sys(err, p.code, "cannot enter its process group");
    case STAGE_FOLDER:
        return ms_error_sys(
            err, p.code, "cannot enter the working folder '%s'", l->working_dir);
    case STAGE_FDS:
        return ms_error_sys(err, p.code, "cannot place its descriptors");
    case STAGE_LIMIT:
        return ms_error_sys(err, p.code, "cannot set its limit of descriptors");
    case STAGE_EXEC:
        break;
    }
    return ms_error_sys(err, p.code, "cannot execute '%s'", l->argv[0]);
}

int ms_launch_result(const struct ms_launch *l, int problem_fd, struct ms_error *err)
{
    struct problem p;
    ssize_t n;

    do
        n = read(problem_fd, &p, sizeof p);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    if (n == 0)
        return 0;
    if (n != sizeof p || p.code >= 0)
        return ms_error_set(err, -EIO, "'%s' could not be started", l->argv[0]);
    return explain(l, p, err);
}
