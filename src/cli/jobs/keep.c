/* keep.c - `muster keep`: a head of jobs that is started again when it is killed */
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/jobs/jobs.h"
#include "cli/out.h"
#include "io/proc.h"
#include "io/session/session.h"
#include "io/sock.h"
#include "io/tree.h"

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
#include <sys/stat.h>
#include <sys/wait.h>

/* `muster keep FD WORD...` runs `muster head --listen 127.0.0.1:PORT WORD...`. A head that was
 * killed is started again, soon and however often; one that cannot come up again (a damaged
 * journal, a full disk) is tried until its agents have given it up. One that ends by itself
 * ends this too. FD is closed when the head has said where it listens, or gets what says why
 * there will be none; "-": nobody waits for that. SIGTERM is passed on.
 *
 * While it runs, the file `watchdog` in the session's folder has its process and why the last
 * head has not come up, for commands that find no head. `port` has the port, for the next
 * watchdog, and logs/head.log what heads said and how they ended. */

/* A head that lived less long is started again later each time, up to PAUSE_NS << LATER_MAX,
 * or LATER_UP_MAX if it had come up. */
#define SOON_NS    (5 * MS_NS_PER_S)
#define PAUSE_NS   (200 * MS_NS_PER_MS)
#define GIVE_UP_NS (300 * MS_NS_PER_S) /* as agents give up a head */
#define PORT       "port"

enum {
    LOG_MAX = 1 << 20,
    LATER_MAX = 4,
    LATER_UP_MAX = 2,
    KILLED_MAX = 8,
    WHY_MAX = 512
};

struct keep {
    char program[PATH_MAX]; /* it may be replaced by another version meanwhile */
    int port_fd;            /* holds the port while no head has it */
    char listen[32];
    in_port_t port;
    int signal_fd, said_fd; /* said_fd: what the head says first; -1: it has */
    sigset_t before;
    pid_t head;
    bool is_ending;
    bool has_come_up;   /* the head of now */
    char said[WHY_MAX]; /* before that, or instead; the end of it */
    int64_t up_ns;      /* when one was last there; 0: never */
    unsigned later;     /* heads that lived shortly, one after the other */
};

/* ---- its files ---------------------------------------------------------------------- */

/* Of the session's folder. */
static int path_of(const char *name, char out[PATH_MAX])
{
    char root[MS_SESSION_DIR_MAX];
    int rc = ms_session_root(root, NULL);

    snprintf(out, PATH_MAX, "%s/" MS_JOBS_SESSION "/%s", root, name);
    return rc;
}

/* Without a folder there was no head yet. */
static int write_file(const char *name, long number, const char *text)
{
    char path[PATH_MAX], next[PATH_MAX + 8];
    FILE *f;

    if (path_of(name, path) < 0)
        return -1;
    snprintf(next, sizeof next, "%s.new", path);
    f = fopen(next, "we");
    if (!f)
        return -1;
    fprintf(f, "%ld\n%s\n", number, text);
    if (fclose(f) == 0 && rename(next, path) == 0)
        return 0;
    unlink(next);
    return -1;
}

static void remove_note(void)
{
    char path[PATH_MAX];

    if (path_of(MS_JOBS_WATCHDOG, path) == 0)
        unlink(path);
}

static void note(const char *why)
{
    if (write_file(MS_JOBS_WATCHDOG, getpid(), why) < 0 && !why[0])
        remove_note(); /* what it says hides the head that has come up */
}

/* The first line of what it said. */
static void note_why(const struct keep *k)
{
    char why[WHY_MAX];

    snprintf(why, sizeof why, "%.*s", (int)strcspn(k->said, "\n"), k->said);
    note(why);
}

/* What heads say after they have come up, or instead: how they ended. */
static void write_log(const char *text, size_t len)
{
    char path[PATH_MAX];
    struct stat st;
    int fd;

    if (path_of("logs/head.log", path) < 0)
        return;
    fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return;
    if (fstat(fd, &st) == 0 && st.st_size > LOG_MAX && ftruncate(fd, 0) < 0)
        len = 0;
    if (len && write(fd, text, len) < 0)
        len = 0; /* a full disk: it is not kept */
    close(fd);
}

static void log_end(pid_t head, int status)
{
    char text[96];
    int n;

    n = WIFSIGNALED(status) ? snprintf(text,
                                       sizeof text,
                                       "muster keep: head %d was killed by signal %d\n",
                                       (int)head,
                                       WTERMSIG(status))
                            : snprintf(text,
                                       sizeof text,
                                       "muster keep: head %d has ended with %d\n",
                                       (int)head,
                                       WEXITSTATUS(status));
    write_log(text, (size_t)n);
}

static void forget_note(void)
{
    struct ms_jobs_absent known = {0};

    ms_jobs_look_for_watchdog(&known);
    if (known.is_watched && known.watchdog == getpid())
        remove_note();
}

/* ---- the watchdog ------------------------------------------------------------------ */

static void run_head(const struct keep *k, char *const *words, int out)
{
    const char *argv[64] = {"muster", "head", "--listen", k->listen};
    size_t n = 4;

    for (size_t i = 0; words[i] && n + 1 < MS_COUNT(argv); i++)
        argv[n++] = words[i];
    sigprocmask(SIG_SETMASK, &k->before, NULL);
    if (dup2(out, STDOUT_FILENO) < 0 || dup2(out, STDERR_FILENO) < 0)
        _exit(1);
    execv(k->program, (char *const *)(uintptr_t)argv);
    fprintf(stderr, "cannot run '%s': %s\n", k->program, strerror(errno));
    _exit(1);
}

static int start_head(struct keep *k, char *const *words)
{
    int ends[2], rc = 0;

    k->has_come_up = false;
    k->said[0] = 0;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    k->head = fork();
    if (k->head == 0)
        run_head(k, words, ends[1]);
    if (k->head < 0)
        rc = -errno;
    close(ends[1]);
    k->said_fd = ends[0];
    fcntl(k->said_fd, F_SETFL, O_NONBLOCK); /* its children may have the other end */
    if (rc < 0)
        ms_fd_close(&k->said_fd);
    return rc;
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

/* What was said is as much of its end as there is room for. */
static void remember(struct keep *k, const char *text, size_t len)
{
    size_t had = strlen(k->said), room = sizeof k->said - 1;
    size_t gone = had + len > room ? had + len - room : 0;

    memmove(k->said, k->said + gone, had - gone);
    memcpy(k->said + had - gone, text, len);
    k->said[had - gone + len] = 0;
}

/* Until it says where it listens, it may be a warning or the reason of its end. */
static void on_said(struct keep *k, int *ready_fd)
{
    char text[WHY_MAX / 2];
    ssize_t n = read(k->said_fd, text, sizeof text);

    if (n <= 0) {
        ms_fd_close(&k->said_fd);
        return;
    }
    write_log(text, (size_t)n);
    if (k->has_come_up)
        return;
    remember(k, text, (size_t)n);
    if (!strstr(k->said, "listening"))
        return;
    k->has_come_up = true;
    note("");
    write_file(PORT, k->port, "");
    ms_fd_close(ready_fd);
}

/* To who waits, or where we print. */
static void tell_why(const struct keep *k, int fd)
{
    if (k->said[0] && write(fd, k->said, strlen(k->said)) < 0)
        return; /* nobody is there any more */
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
    log_end(k->head, status);
    if (WIFSIGNALED(status) && !k->has_come_up && !k->said[0])
        snprintf(k->said,
                 sizeof k->said,
                 "it was killed by signal %d while it started\n",
                 WTERMSIG(status));
    if (!k->has_come_up && *ready_fd < 0)
        tell_why(k, STDERR_FILENO);
    k->head = 0;
    return status;
}

/* One that cannot be started has ended as one that was killed while it started. */
static int run(struct keep *k, char *const *words, int *ready_fd)
{
    int rc = start_head(k, words);

    if (rc == 0)
        return wait_head(k, ready_fd);
    k->head = 0;
    snprintf(k->said, sizeof k->said, "it cannot be started: %s\n", strerror(-rc));
    write_log(k->said, strlen(k->said));
    return SIGKILL;
}

static void pause_some(struct keep *k)
{
    struct pollfd p = {.fd = k->signal_fd, .events = POLLIN};
    unsigned most = k->has_come_up ? LATER_UP_MAX : LATER_MAX;
    unsigned times = k->later < most ? k->later : most;

    poll(&p, 1, (int)((PAUSE_NS << times) / MS_NS_PER_MS));
    on_signals(k);
}

/* The head has ended: is another one to be started? */
static bool is_another(struct keep *k, int status, int64_t begun_ns)
{
    int64_t now_ns = ms_now_ns();

    if (k->is_ending || (WIFEXITED(status) && WEXITSTATUS(status) == 0))
        return false;
    k->later = k->has_come_up && now_ns - begun_ns >= SOON_NS ? 0 : k->later + 1;
    if (k->has_come_up)
        k->up_ns = now_ns;
    else
        note_why(k);
    return k->up_ns ? now_ns - k->up_ns < GIVE_UP_NS
                    : WIFSIGNALED(status) && k->later < KILLED_MAX;
}

/* That of the watchdog before, or 0: its agents may still be there. */
static in_port_t last_port(void)
{
    char path[PATH_MAX], text[16] = "";
    long port = 0;

    if (path_of(PORT, path) == 0 && ms_tree_read(AT_FDCWD, path, text, sizeof text) > 0)
        port = strtol(text, NULL, 10);
    return port > 0 && port <= UINT16_MAX ? (in_port_t)port : 0;
}

static int bind_port(int fd, in_port_t port)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons(port)};

    return bind(fd, (struct sockaddr *)&at, sizeof at);
}

/* Agents dial this port again when the head has been started again. It is bound here for
 * all that time, and never listened on: with SO_REUSEADDR on both sockets the head can bind it
 * too, and nobody else can. 0 or a negative errno. */
static int hold_port(struct keep *k)
{
    struct sockaddr_in at = {0};
    socklen_t len = sizeof at;
    int one = 1;

    k->port_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (k->port_fd < 0 ||
        setsockopt(k->port_fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) < 0 ||
        (bind_port(k->port_fd, last_port()) < 0 && bind_port(k->port_fd, 0) < 0) ||
        getsockname(k->port_fd, (struct sockaddr *)&at, &len) < 0)
        return -errno;
    k->port = ntohs(at.sin_port);
    snprintf(k->listen, sizeof k->listen, "127.0.0.1:%u", k->port);
    return 0;
}

enum ms_exit ms_cmd_keep(const struct ms_cli *cli)
{
    static const int watched[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP, 0};
    struct keep k = {.said_fd = -1};
    bool has_waiter = cli->args[0] && strcmp(cli->args[0], "-") != 0;
    int ready_fd = has_waiter ? atoi(cli->args[0]) : -1, status = 0;
    int64_t begun_ns;

    if (!cli->args[0] || (has_waiter && ready_fd < 3))
        return ms_out_fail(cli, MS_EXIT_USAGE, "it is for `muster submit`");
    if (has_waiter)
        ms_fd_set_cloexec(ready_fd, true);
    if (readlink("/proc/self/exe", k.program, sizeof k.program - 1) < 0)
        return ms_out_fail(cli, MS_EXIT_FAILED, "cannot find this program");
    if (hold_port(&k) < 0)
        return ms_out_fail(
            cli, MS_EXIT_FAILED, "no port of loopback can be had: %s", strerror(errno));
    ms_proc_set_name(MS_JOBS_WATCHDOG_NAME);
    k.signal_fd = ms_signals_open(watched, &k.before);
    for (;;) {
        begun_ns = ms_now_ns();
        status = run(&k, cli->args + 1, &ready_fd);
        if (!is_another(&k, status, begun_ns))
            break;
        pause_some(&k);
        if (k.is_ending)
            break;
    }
    if (ready_fd >= 0)
        tell_why(&k, ready_fd);
    forget_note();
    return WIFEXITED(status) ? (enum ms_exit)WEXITSTATUS(status) : MS_EXIT_FAILED;
}
