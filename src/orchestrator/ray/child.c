#include "orchestrator/ray/child.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/env.h"
#include "io/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { READ_SIZE = 64 << 10 };

struct ms_ray_child {
    struct ms_loop *loop;
    struct ms_process process;
    int in_fd, out_fd; /* its stdin, its stdout */
    struct ms_watch in, out, ended;
    struct ms_buf unsent, part;
    bool is_ending;         /* stdin goes when everything is sent */
    struct ms_error broken; /* what it did wrong */
    const struct ms_ray_child_events *events;
    void *arg;
};

/* ---- reading ----------------------------------------------------------------------- */

/* All whole lines. */
static void give_lines(struct ms_ray_child *c)
{
    size_t done = 0;
    uint8_t *newline;

    while (c->part.len > done &&
           (newline = memchr(c->part.data + done, '\n', c->part.len - done))) {
        char *line = (char *)c->part.data + done;

        *newline = 0;
        done = (size_t)(newline + 1 - c->part.data);
        c->events->on_line(c->arg, line, (size_t)((char *)newline - line));
    }
    ms_buf_consume(&c->part, done);
}

static void stop_reading(struct ms_ray_child *c)
{
    ms_watch_finish(&c->out);
    ms_fd_close(&c->out_fd);
}

/* 1: there may be more; 0: not now; < 0: that was all. */
static int read_some(struct ms_ray_child *c)
{
    ssize_t got;

    if (ms_buf_reserve(&c->part, READ_SIZE) < 0)
        return ms_error_set(&c->broken, -ENOMEM, "out of memory");
    got = read(c->out_fd, c->part.data + c->part.len, READ_SIZE);
    if (got < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    if (got == 0)
        return -EPIPE;
    c->part.len += (size_t)got;
    give_lines(c);
    if (c->part.len > MS_RAY_LINE_MAX)
        return ms_error_set(
            &c->broken, -EPROTO, "the bridge has sent a line without end");
    return 1;
}

static void on_out(void *arg, unsigned events)
{
    struct ms_ray_child *c = arg;

    (void)events;
    if (read_some(c) >= 0)
        return;
    stop_reading(c);
    if (c->broken.code)
        ms_process_signal(c->process.pidfd, SIGKILL);
}

static void on_ended(void *arg, unsigned events)
{
    struct ms_ray_child *c = arg;
    struct ms_process_end end = {0};
    struct ms_error why = {0};
    char how[64];

    (void)events;
    if (ms_process_reap(c->process.pidfd, &end) == -EAGAIN)
        return;
    ms_watch_finish(&c->ended);
    ms_fd_close(&c->process.pidfd);
    while (c->out_fd >= 0 && read_some(c) > 0) /* what it said last */
        ;
    ms_error_set(&why,
                 end.known && !end.signaled && end.code == 0 ? 0 : -ECHILD,
                 "the bridge %s",
                 ms_process_end_print(&end, how, sizeof how));
    c->events->on_ended(c->arg, c->broken.code ? &c->broken : &why);
}

/* ---- writing ----------------------------------------------------------------------- */

static void write_some(struct ms_ray_child *c)
{
    while (c->in_fd >= 0 && c->unsent.len > 0) {
        ssize_t sent = send(c->in_fd, c->unsent.data, c->unsent.len, MSG_NOSIGNAL);

        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && errno == EAGAIN)
            break;
        if (sent < 0) { /* it does not read any more: its end follows */
            ms_watch_finish(&c->in);
            ms_fd_close(&c->in_fd);
            return;
        }
        ms_buf_consume(&c->unsent, (size_t)sent);
    }
    if (c->in_fd < 0)
        return;
    if (c->unsent.len == 0 && c->is_ending) {
        ms_watch_finish(&c->in);
        ms_fd_close(&c->in_fd);
        return;
    }
    ms_watch_set(&c->in, c->unsent.len > 0 ? MS_WRITE : 0);
}

static void on_in(void *arg, unsigned events)
{
    (void)events;
    write_some(arg);
}

int ms_ray_child_send(struct ms_ray_child *c, const char *line, size_t len)
{
    if (c->in_fd < 0 || c->is_ending)
        return -EPIPE;
    if (ms_buf_reserve(&c->unsent, len + 1) < 0)
        return -ENOMEM;
    ms_buf_append(&c->unsent, line, len);
    ms_buf_append(&c->unsent, "\n", 1);
    write_some(c);
    return 0;
}

void ms_ray_child_end(struct ms_ray_child *c)
{
    c->is_ending = true;
    write_some(c);
}

/* ---- which Python ------------------------------------------------------------------ */

int ms_ray_python_of(const char *words, size_t len, char out[PATH_MAX])
{
    static const char mark[] = "--python_worker_command=";
    size_t at = 0;

    while (at < len) {
        const char *word = words + at;
        size_t word_len = strnlen(word, len - at);

        if (strncmp(word, mark, strlen(mark)) == 0) {
            const char *python = word + strlen(mark);
            size_t n = strcspn(python, " ");

            if (n == 0 || n >= PATH_MAX || python[0] != '/')
                return -ENOENT;
            memcpy(out, python, n);
            out[n] = 0;
            return 0;
        }
        at += word_len + 1;
    }
    return -ENOENT;
}

static ssize_t read_proc(pid_t pid, const char *file, char *out, size_t room)
{
    char path[64];
    MS_CLEANUP(ms_cleanup_fd) int fd = -1;
    size_t len = 0;
    ssize_t got = 1;

    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && got > 0 && len < room - 1) {
        got = read(fd, out + len, room - 1 - len);
        len += got > 0 ? (size_t)got : 0;
    }
    out[len] = 0;
    return fd < 0 ? -1 : (ssize_t)len;
}

static pid_t parent_of(pid_t pid)
{
    char stat[1024];
    const char *behind;
    int parent = 0;

    if (read_proc(pid, "stat", stat, sizeof stat) <= 0)
        return 0;
    behind = strrchr(stat, ')');
    return behind && sscanf(behind, ") %*c %d", &parent) == 1 ? parent : 0;
}

/* The Python of a raylet that we are below of. */
static int python_above(char out[PATH_MAX])
{
    enum { COMMAND_MAX = 256 << 10, ANCESTORS_MAX = 64 };
    char *words = malloc(COMMAND_MAX);
    pid_t pid = getpid();
    int rc = -ENOENT;

    for (int i = 0; words && rc < 0 && i < ANCESTORS_MAX; i++) {
        ssize_t len;

        pid = parent_of(pid);
        if (pid <= 1)
            break;
        len = read_proc(pid, "cmdline", words, COMMAND_MAX);
        if (len > 0)
            rc = ms_ray_python_of(words, (size_t)len, out);
    }
    free(words);
    return rc;
}

int ms_ray_find_python(char out[PATH_MAX], struct ms_error *err)
{
    const char *venv = getenv("VIRTUAL_ENV"), *path = getenv("PATH");

    if (python_above(out) == 0)
        return 0;
    if (venv && snprintf(out, PATH_MAX, "%s/bin/python3", venv) < PATH_MAX &&
        access(out, X_OK) == 0)
        return 0;
    while (path && *path) {
        int len = (int)strcspn(path, ":");

        if (snprintf(out, PATH_MAX, "%.*s/python3", len, path) < PATH_MAX &&
            access(out, X_OK) == 0)
            return 0;
        path += len + (path[len] == ':');
    }
    return ms_error_set(err, -ENOENT, "there is no python3 to run Ray's bridge with");
}

/* ---- life -------------------------------------------------------------------------- */

static int find_script(const struct ms_ray_child_spec *spec,
                       char out[PATH_MAX],
                       struct ms_error *err)
{
    char self[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);

    if (spec->script) {
        snprintf(out, PATH_MAX, "%s", spec->script);
        return 0;
    }
    if (spec->python_dir &&
        snprintf(out, PATH_MAX, "%s/ray_bridge.py", spec->python_dir) < PATH_MAX &&
        access(out, R_OK) == 0)
        return 0;
    self[len > 0 ? len : 0] = 0;
    if (strrchr(self, '/'))
        *strrchr(self, '/') = 0;
    if (snprintf(out, PATH_MAX, "%s/../muster/ray_bridge.py", self) < PATH_MAX &&
        access(out, R_OK) == 0)
        return 0;
    return ms_error_set(err, -ENOENT, "ray_bridge.py is not beside this program");
}

static int spawn(struct ms_ray_child *c,
                 const struct ms_ray_child_spec *spec,
                 int child_in,
                 int child_out,
                 struct ms_error *err)
{
    char python[PATH_MAX], script[PATH_MAX], grace[32];
    const char *argv[] = {
        python, "-u", script, "--name", spec->name, "--grace", grace, NULL};
    struct ms_spawn_fd fds[] = {{child_in, STDIN_FILENO},
                                {child_out, STDOUT_FILENO},
                                {STDERR_FILENO, STDERR_FILENO}};
    struct ms_env env;
    int rc = find_script(spec, script, err);

    snprintf(grace, sizeof grace, "%.3f", (double)spec->grace_ns / (double)MS_NS_PER_S);
    if (rc == 0 && spec->python)
        snprintf(python, sizeof python, "%s", spec->python);
    else if (rc == 0)
        rc = ms_ray_find_python(python, err);
    if (rc < 0)
        return rc;
    ms_env_init(&env);
    rc = ms_env_set_own(&env);
    if (rc < 0)
        ms_error_sys(err, rc, "cannot start the bridge");
    else
        rc = ms_spawn(&(struct ms_spawn){.path = python,
                                         .argv = argv,
                                         .env = (const char *const *)env.entries,
                                         .fds = fds,
                                         .fd_count = MS_COUNT(fds)},
                      &c->process,
                      err);
    ms_env_finish(&env);
    return rc;
}

static int watch_it(struct ms_ray_child *c)
{
    int rc = ms_watch_init(&c->in, c->loop, c->in_fd, 0, on_in, c);

    if (rc == 0)
        rc = ms_watch_init(&c->out, c->loop, c->out_fd, MS_READ, on_out, c);
    if (rc == 0)
        rc = ms_watch_init(&c->ended, c->loop, c->process.pidfd, MS_READ, on_ended, c);
    return rc;
}

static int start(struct ms_ray_child *c,
                 const struct ms_ray_child_spec *spec,
                 struct ms_error *err)
{
    int in[2] = {-1, -1}, out[2] = {-1, -1}, rc;

    /* a socket can be written without a signal when nobody reads it any more */
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in) < 0 ||
        pipe2(out, O_CLOEXEC) < 0)
        rc = ms_error_sys(err, -errno, "cannot make a pipe");
    else
        rc = spawn(c, spec, in[0], out[1], err);
    ms_fd_close(&in[0]);
    ms_fd_close(&out[1]);
    c->in_fd = in[1];
    c->out_fd = out[0];
    if (rc < 0)
        return rc;
    fcntl(c->in_fd, F_SETFL, O_NONBLOCK);
    fcntl(c->out_fd, F_SETFL, O_NONBLOCK);
    rc = watch_it(c);
    return rc < 0 ? ms_error_sys(err, rc, "cannot watch the bridge") : 0;
}

struct ms_ray_child *ms_ray_child_start(const struct ms_ray_child_spec *spec,
                                        const struct ms_ray_child_events *events,
                                        void *arg,
                                        struct ms_error *err)
{
    struct ms_ray_child *c = calloc(1, sizeof *c);

    if (!c) {
        ms_error_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    c->loop = spec->loop;
    c->process.pidfd = c->in_fd = c->out_fd = -1;
    c->events = events;
    c->arg = arg;
    ms_buf_init(&c->unsent);
    ms_buf_init(&c->part);
    if (start(c, spec, err) == 0)
        return c;
    ms_ray_child_destroy(c, 0);
    return NULL;
}

void ms_ray_child_destroy(struct ms_ray_child *c, int64_t until_ns)
{
    struct ms_process_end end;

    if (!c)
        return;
    ms_watch_finish(&c->in);
    ms_watch_finish(&c->out);
    ms_watch_finish(&c->ended);
    ms_fd_close(&c->in_fd);
    if (c->process.pidfd >= 0 &&
        ms_process_wait(c->process.pidfd, until_ns, &end) == -ETIMEDOUT) {
        ms_process_signal(c->process.pidfd, SIGKILL);
        ms_process_wait(c->process.pidfd, MS_NEVER, &end);
    }
    ms_fd_close(&c->process.pidfd);
    ms_fd_close(&c->out_fd);
    ms_buf_finish(&c->unsent);
    ms_buf_finish(&c->part);
    free(c);
}
