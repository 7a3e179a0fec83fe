/* exec.c - fork and execute a child; why that failed comes back on a pipe */
#include "agent/exec.h"
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
static int place_fds(const struct ms_exec *x)
{
    int from[MS_EXEC_FDS];

    for (int i = 0; i < MS_EXEC_FDS; i++) {
        from[i] = -1;
        if (x->fds[i] < 0 && i > 2)
            continue;
        from[i] = x->fds[i] >= 0 ? fcntl(x->fds[i], F_DUPFD_CLOEXEC, MS_EXEC_FDS)
                                 : open("/dev/null", O_RDWR | O_CLOEXEC);
        if (from[i] < 0)
            return -errno;
    }
    for (int i = 0; i < MS_EXEC_FDS; i++)
        if (from[i] >= 0 && dup2(from[i], i) < 0)
            return -errno;
    return 0;
}

/* dup2 onto itself would leave close-on-exec set: /dev/null may have got number 0. */
static void keep_fds(const struct ms_exec *x)
{
    for (int i = 0; i < MS_EXEC_FDS; i++)
        if (i < 3 || x->fds[i] >= 0)
            ms_fd_set_cloexec(i, false);
}

/* Returns only on failure. */
static int execute(const struct ms_exec *x, struct ms_error *err)
{
    if (x->cgroup_fd >= 0 && write(x->cgroup_fd, "0", 1) < 0)
        return ms_error_sys(err, -errno, "cannot enter its memory control group");
    if ((x->new_session ? setsid() : setpgid(0, 0)) < 0)
        return ms_error_sys(err, -errno, "cannot enter its process group");
    if (x->working_dir && *x->working_dir && chdir(x->working_dir) < 0)
        return ms_error_sys(
            err, -errno, "cannot enter the working folder '%s'", x->working_dir);
    if (place_fds(x) < 0)
        return ms_error_sys(err, -errno, "cannot place its descriptors");
    keep_fds(x);
    if (x->nofile && setrlimit(RLIMIT_NOFILE, x->nofile) < 0)
        return ms_error_sys(err, -errno, "cannot set its limit of descriptors");
    environ = (char **)(uintptr_t)x->env;
    execvp(x->argv[0], x->argv);
    return ms_error_sys(err, -errno, "cannot execute '%s'", x->argv[0]);
}

static void die_with_parent(const struct ms_exec *x, pid_t parent)
{
    if (!x->death_signal)
        return;
    prctl(PR_SET_PDEATHSIG, x->death_signal, 0, 0, 0);
    if (getppid() != parent) /* it was too late */
        _exit(EXIT_NOT_EXECUTED);
}

static void run_child(const struct ms_exec *x, int problem_fd, pid_t parent)
{
    struct ms_error why = {0};
    int fd = fcntl(problem_fd, F_DUPFD_CLOEXEC, MS_EXEC_FDS);
    ssize_t n;

    die_with_parent(x, parent);
    reset_signals();
    execute(x, &why);
    n = write(fd, &why, sizeof why);
    (void)n; /* the parent has gone: there is no reader */
    _exit(EXIT_NOT_EXECUTED);
}

pid_t ms_exec_start(const struct ms_exec *x, int *problem_fd, struct ms_error *err)
{
    int fds[2];
    pid_t parent = getpid(), pid;

    if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
        return ms_error_sys(err, -errno, "cannot make a pipe for '%s'", x->argv[0]);
    pid = fork();
    if (pid == 0)
        run_child(x, fds[1], parent);
    close(fds[1]);
    if (pid < 0) {
        int code = -errno;

        close(fds[0]);
        return ms_error_sys(err, code, "cannot fork for '%s'", x->argv[0]);
    }
    /* also here: the group must exist before it is signalled */
    if (!x->new_session)
        setpgid(pid, pid);
    *problem_fd = fds[0];
    return pid;
}

int ms_exec_result(int problem_fd, struct ms_error *err)
{
    struct ms_error why;
    ssize_t n;

    do
        n = read(problem_fd, &why, sizeof why);
    while (n < 0 && errno == EINTR);
    if (n <= 0)
        return n < 0 ? -errno : 0;
    if (n != sizeof why || why.code >= 0)
        return ms_error_set(err, -EIO, "it could not be started");
    return ms_error_set(err, why.code, "%s", why.text);
}
