/* keep.c - `muster keep`: a head of jobs that is started again when it is killed */
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/jobs/jobs.h"
#include "cli/out.h"
#include "io/proc.h"
#include "io/sock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

/* `muster keep FD WORD...` runs `muster head --listen 127.0.0.1:PORT WORD...`. A head that was
 * killed is started again; one that ends by itself ends this too. FD is closed when the head
 * has said where it listens, or gets a sentence that says why it does not; "-": nobody waits
 * for that. SIGTERM is passed on. */

/* A head that lived less long has not come up: it is started again later each time. */
#define SOON_NS  (5 * MS_NS_PER_S)
#define PAUSE_NS (200 * MS_NS_PER_MS)

enum { SOON_MAX = 8, WHY_MAX = 512 };

struct keep {
    int port_fd; /* holds the port while no head has it */
    char listen[32];
    int signal_fd, said_fd; /* said_fd: what the head says first; -1: it has */
    sigset_t before;
    pid_t head;
    bool is_ending;
};

/* ---- the supervisor ---------------------------------------------------------------- */

static void run_head(const struct keep *k, char *const *words, int out)
{
    char path[PATH_MAX] = "";
    const char *argv[64] = {"muster", "head", "--listen", k->listen};
    size_t n = 4;

    for (size_t i = 0; words[i] && n + 1 < MS_COUNT(argv); i++)
        argv[n++] = words[i];
    sigprocmask(SIG_SETMASK, &k->before, NULL);
    if (dup2(out, STDOUT_FILENO) < 0 || dup2(out, STDERR_FILENO) < 0 ||
        readlink("/proc/self/exe", path, sizeof path - 1) < 0)
        _exit(1);
    execv(path, (char *const *)(uintptr_t)argv);
    _exit(1);
}

static int start_head(struct keep *k, char *const *words)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    k->head = fork();
    if (k->head == 0)
        run_head(k, words, ends[1]);
    close(ends[1]);
    k->said_fd = ends[0];
    return k->head < 0 ? -errno : 0;
}

static void on_signals(struct keep *k)
{
    struct signalfd_siginfo info;

    while (read(k->signal_fd, &info, sizeof info) == sizeof info)
        if (info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT) {
            k->is_ending = true;
            if (k->head > 0)
                kill(k->head, SIGTERM);
        }
}

/* What the head says; the first line goes to who waits, or where we print. */
static void on_said(struct keep *k, int *ready_fd)
{
    char text[WHY_MAX];
    ssize_t n = read(k->said_fd, text, sizeof text - 1);

    if (n <= 0) {
        ms_fd_close(&k->said_fd);
        return;
    }
    text[n] = 0;
    if (!strstr(text, "listening") &&
        write(*ready_fd >= 0 ? *ready_fd : STDERR_FILENO, text, (size_t)n) < 0)
        n = 0;
    ms_fd_close(ready_fd);
}

/* Until the head has ended. */
static int wait_head(struct keep *k, int *ready_fd)
{
    int status;

    while (waitpid(k->head, &status, WNOHANG) != k->head) {
        struct pollfd p[] = {{.fd = k->signal_fd, .events = POLLIN},
                             {.fd = k->said_fd, .events = POLLIN}};

        poll(p, MS_COUNT(p), -1);
        if (p[0].revents)
            on_signals(k);
        if (p[1].revents)
            on_said(k, ready_fd);
    }
    while (k->said_fd >= 0)
        on_said(k, ready_fd);
    k->head = 0;
    return status;
}

static void pause_some(struct keep *k, unsigned times)
{
    struct pollfd p = {.fd = k->signal_fd, .events = POLLIN};

    poll(&p, 1, (int)((PAUSE_NS << times) / MS_NS_PER_MS));
    on_signals(k);
}

/* Agents dial this port again when the head has been started again. It is bound here for
 * all that time, and never listened on: with SO_REUSEADDR on both sockets the head can bind it
 * too, and nobody else can. 0 or a negative errno. */
static int hold_port(struct keep *k)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int one = 1;

    k->port_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (k->port_fd < 0 ||
        setsockopt(k->port_fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) < 0 ||
        bind(k->port_fd, (struct sockaddr *)&at, len) < 0 ||
        getsockname(k->port_fd, (struct sockaddr *)&at, &len) < 0)
        return -errno;
    snprintf(k->listen, sizeof k->listen, "127.0.0.1:%u", ntohs(at.sin_port));
    return 0;
}

enum ms_exit ms_cmd_keep(const struct ms_cli *cli)
{
    static const int watched[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP, 0};
    struct keep k = {.said_fd = -1};
    bool has_waiter = cli->args[0] && strcmp(cli->args[0], "-") != 0;
    int ready_fd = has_waiter ? atoi(cli->args[0]) : -1, status = 0;
    unsigned soon = 0;
    bool has_come_up = false;

    if (!cli->args[0] || (has_waiter && ready_fd < 3))
        return ms_out_fail(cli, MS_EXIT_USAGE, "it is for `muster submit`");
    if (has_waiter)
        ms_fd_set_cloexec(ready_fd, true);
    if (hold_port(&k) < 0)
        return ms_out_fail(
            cli, MS_EXIT_FAILED, "no port of loopback can be had: %s", strerror(errno));
    ms_proc_set_name("muster-keep");
    k.signal_fd = ms_signals_open(watched, &k.before);
    while (!k.is_ending && soon < SOON_MAX) {
        int64_t begun_ns = ms_now_ns();

        if (start_head(&k, cli->args + 1) < 0)
            return MS_EXIT_FAILED;
        status = wait_head(&k, &ready_fd);
        /* one that came up once and cannot again (a full disk, its port) may later */
        if (!WIFSIGNALED(status) && (WEXITSTATUS(status) == 0 || !has_come_up))
            break;
        has_come_up = has_come_up || (has_waiter && ready_fd < 0);
        soon = ms_now_ns() - begun_ns < SOON_NS ? soon + 1 : 0;
        if (!k.is_ending)
            pause_some(&k, soon);
    }
    return WIFEXITED(status) ? (enum ms_exit)WEXITSTATUS(status) : MS_EXIT_FAILED;
}
