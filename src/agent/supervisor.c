/* supervisor.c - the process above an agent: it ends what an agent that was killed has left */
#include "agent/supervisor.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "io/proc.h"
#include "io/spawn.h"
#include "io/supervised.h"
#include "io/supervised_group.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

struct supervisor {
    pid_t agent;
    int signal_fd, end_with_fd; /* -1: none, or it has ended */
    bool is_over;               /* the agent has ended, with `status` */
    int status;
    int64_t kill_ns;  /* when the agent is killed; MS_NEVER: it is not */
    int64_t sweep_ns; /* when to look for what others have left; MS_NEVER: done */
    struct ms_supervised_group group;
};

static void sweep(struct supervisor *s)
{
    s->sweep_ns = MS_NEVER;
    ms_supervised_sweep();
}

/* ---- while the agent lives -------------------------------------------------------- */

static void reap(struct supervisor *s)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (pid != s->agent)
            continue;
        s->is_over = true;
        s->status = status;
    }
}

/* What a terminal sends reaches the agent by itself: it is in the same process group. */
static void pass_on(const struct supervisor *s, const struct signalfd_siginfo *info)
{
    if (info->ssi_signo == SIGCHLD || info->ssi_code == SI_KERNEL || s->is_over)
        return;
    kill(s->agent, info->ssi_signo == SIGQUIT ? SIGKILL : (int)info->ssi_signo);
}

static void on_signals(struct supervisor *s)
{
    struct signalfd_siginfo info[8];
    ssize_t n = read(s->signal_fd, info, sizeof info);

    reap(s);
    for (ssize_t i = 0; i < n / (ssize_t)sizeof info[0]; i++)
        pass_on(s, &info[i]);
}

static void on_end_with(struct supervisor *s)
{
    ms_fd_close(&s->end_with_fd);
    kill(s->agent, SIGCONT);
    s->kill_ns = ms_now_ns() + MS_SUPERVISOR_NS;
}

static int wait_ms(const struct supervisor *s)
{
    int64_t until_ns = s->kill_ns < s->sweep_ns ? s->kill_ns : s->sweep_ns, left_ns;

    if (until_ns == MS_NEVER)
        return -1;
    left_ns = until_ns - ms_now_ns();
    return left_ns <= 0 ? 0 : (int)(left_ns / MS_NS_PER_MS) + 1;
}

static void step(struct supervisor *s)
{
    struct pollfd at[] = {{.fd = s->signal_fd, .events = POLLIN},
                          {.fd = s->end_with_fd, .events = POLLIN}};

    poll(at, MS_COUNT(at), wait_ms(s));
    if (at[0].revents)
        on_signals(s);
    if (at[1].revents)
        on_end_with(s);
    if (ms_now_ns() >= s->kill_ns) {
        s->kill_ns = MS_NEVER;
        kill(s->agent, SIGKILL);
    }
    if (ms_now_ns() >= s->sweep_ns)
        sweep(s);
}

/* ---- its end ---------------------------------------------------------------------- */

/* The process that started us sees how the agent ended. */
static void end_alike(int status)
{
    struct rlimit no_core = {0, 0};
    sigset_t none;

    if (WIFSIGNALED(status)) {
        setrlimit(RLIMIT_CORE, &no_core);
        signal(WTERMSIG(status), SIG_DFL);
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        kill(getpid(), WTERMSIG(status));
    }
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

static void run(struct supervisor *s)
{
    int keep[] = {s->signal_fd, s->end_with_fd};

    ms_proc_set_name("muster-superv");
    ms_proc_close_others(keep, MS_COUNT(keep));
    s->sweep_ns = ms_now_ns() + MS_SUPERVISOR_SWEEP_NS;
    while (!s->is_over)
        step(s);
    ms_proc_end_children(ms_now_ns() + MS_SUPERVISOR_NS);
    ms_supervised_group_end(&s->group);
    if (s->sweep_ns != MS_NEVER)
        sweep(s);
    end_alike(s->status);
}

/* ---- the start -------------------------------------------------------------------- */

static int begin(struct supervisor *s, pid_t end_with, sigset_t *before)
{
    static const int watched[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT, 0};
    char name[MS_SUPERVISOR_NAME_MAX];
    int rc = ms_supervisor_name(getpid(), name);

    s->signal_fd = ms_signals_open(watched, before);
    if (rc < 0 || s->signal_fd < 0)
        return rc < 0 ? rc : s->signal_fd;
    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0 ||
        setenv(MS_SUPERVISOR_VARIABLE, name, 1) < 0)
        return -errno;
    if (end_with > 0)
        s->end_with_fd = ms_process_open(end_with); /* else the agent says so */
    ms_supervised_group_create(&s->group, name);
    return 0;
}

/* A stopped agent whose supervisor is gone must go on, to end. */
static pid_t become_agent(struct supervisor *s, pid_t supervisor)
{
    ms_fd_close(&s->signal_fd);
    ms_fd_close(&s->end_with_fd);
    prctl(PR_SET_PDEATHSIG, SIGCONT, 0, 0, 0);
    if (getppid() != supervisor)
        _exit(1); /* it was too late */
    return supervisor;
}

pid_t ms_supervise(pid_t end_with)
{
    struct supervisor s = {
        .signal_fd = -1, .end_with_fd = -1, .kill_ns = MS_NEVER, .sweep_ns = MS_NEVER};
    pid_t self = getpid(), rc;
    sigset_t before;

    rc = begin(&s, end_with, &before);
    if (rc == 0) {
        s.agent = ms_supervised_group_fork(&s.group);
        if (s.agent > 0)
            run(&s);
        rc = s.agent == 0 ? become_agent(&s, self) : -errno;
    }
    ms_fd_close(&s.signal_fd);
    ms_fd_close(&s.end_with_fd);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return rc;
}
