/* hold.c - `muster hold`: run a driver that ends with `muster run` */
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/out.h"
#include "io/proc.h"
#include "io/session/node_dir.h"
#include "io/session/session.h"
#include "io/spawn.h"
#include "io/tree.h"
#include "orchestrator/ray/site.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

/* `muster hold PID DIR WORD...` runs a driver for the process PID, its parent. It ends with
 * the driver's exit code (128 and the signal, if one ended the driver), and ends the driver
 * when PID ends. It is a subreaper: processes that the driver has left behind are ended too.
 * If PID ends first, the session in DIR is removed, or the folder of a local Ray. SIGTERM is
 * passed on, SIGUSR1 kills the driver, and SIGINT is left to the driver, which gets it from
 * the same terminal. */

/* How long those that the driver has left behind may take after SIGTERM. */
#define LEFT_GRACE_NS (3 * MS_NS_PER_S)

enum { SIGNALED = 128, CANNOT_RUN = 127, WORDS = 2 };

struct hold {
    pid_t driver;
    int code; /* of the driver; -1: it runs */
    int parent_fd, signal_fd;
    bool is_alone; /* the parent has ended */
    sigset_t before;
};

static void run_driver(const struct hold *h, char *const *words)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    sigprocmask(SIG_SETMASK, &h->before, NULL);
    execvp(words[0], words);
    fprintf(stderr,
            "muster run: cannot execute the driver '%s': %s\n",
            words[0],
            strerror(errno));
    _exit(CANNOT_RUN);
}

static void reap(struct hold *h)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        if (pid == h->driver)
            h->code =
                WIFSIGNALED(status) ? SIGNALED + WTERMSIG(status) : WEXITSTATUS(status);
}

/* How many there were. */
static int signal_children(int sig)
{
    MS_CLEANUP(ms_cleanup_free) pid_t *all = NULL;
    int count = ms_proc_children(&all);

    for (int i = 0; i < count; i++)
        kill(all[i], sig);
    return count > 0 ? count : 0;
}

static void on_signals(struct hold *h)
{
    struct signalfd_siginfo info;

    while (read(h->signal_fd, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGTERM && h->code < 0)
            kill(h->driver, SIGTERM);
        if (info.ssi_signo == SIGUSR1 && h->code < 0)
            kill(h->driver, SIGKILL);
    }
    reap(h);
}

/* Until something happens, or that time. */
static void wait_some(struct hold *h, int timeout_ms)
{
    struct pollfd p[] = {{.fd = h->signal_fd, .events = POLLIN},
                         {.fd = h->is_alone ? -1 : h->parent_fd, .events = POLLIN}};

    if (poll(p, MS_COUNT(p), timeout_ms) < 0)
        return;
    if (p[1].revents)
        h->is_alone = true;
    on_signals(h);
}

/* What is left below us: asked first, then by force. */
static void end_left(struct hold *h)
{
    int64_t until_ns = ms_now_ns() + LEFT_GRACE_NS;
    int count = signal_children(SIGTERM);

    while (count > 0 && ms_now_ns() < until_ns) {
        wait_some(h, (int)((until_ns - ms_now_ns()) / MS_NS_PER_MS + 1));
        count = signal_children(0);
    }
    while (signal_children(SIGKILL) > 0)
        wait_some(h, -1);
}

static int set_up(struct hold *h, pid_t parent)
{
    static const int watched[] = {SIGCHLD, SIGTERM, SIGUSR1, SIGINT, SIGHUP, 0};

    h->signal_fd = ms_signals_open(watched, &h->before);
    ms_proc_set_name("muster-hold");
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    h->parent_fd = ms_process_open(parent);
    return h->signal_fd < 0 || h->parent_fd < 0 || getppid() != parent ? -1 : 0;
}

enum ms_exit ms_cmd_hold(const struct ms_cli *cli)
{
    struct hold h = {.code = -1};
    char *const *args = cli->args;

    if (!args[0] || !args[1] || !args[WORDS])
        return ms_out_fail(cli, MS_EXIT_USAGE, "it is for `muster run`");
    if (set_up(&h, (pid_t)strtol(args[0], NULL, 10)) < 0)
        return ms_out_fail(cli, MS_EXIT_FAILED, "the process that ran it has ended");
    h.driver = fork();
    if (h.driver == 0)
        run_driver(&h, args + WORDS);
    if (h.driver < 0)
        return ms_out_fail(cli, MS_EXIT_FAILED, "cannot fork: %s", strerror(errno));
    while (h.code < 0 && !h.is_alone)
        wait_some(&h, -1);
    if (h.code < 0)
        kill(h.driver, SIGKILL);
    while (h.code < 0)
        wait_some(&h, -1);
    end_left(&h);
    if (h.is_alone) {
        const char *slash = strrchr(args[1], '/'), *name = slash ? slash + 1 : args[1];

        if (strncmp(name, MS_LOCAL_RAY_DIR, strlen(MS_LOCAL_RAY_DIR)) == 0) {
            ms_tree_remove(AT_FDCWD, args[1]);
        } else {
            ms_session_remove(args[1]);
            ms_node_dirs_sweep(name);
        }
    }
    return (enum ms_exit)h.code;
}
