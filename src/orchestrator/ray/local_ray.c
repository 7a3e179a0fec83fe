#include "orchestrator/ray/local_ray.h"

#include "base/cleanup.h"
#include "base/env.h"
#include "io/spawn.h"
#include "io/tcp.h"
#include "io/tree.h"
#include "orchestrator/ray/fetch.h"
#include "orchestrator/ray/rest.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define LOOK_NS (200 * MS_NS_PER_MS)

enum { PORTS = 3, WORDS_MAX = 40, LOG_TAIL = 2048 };

struct ms_local_ray {
    struct ms_loop *loop;
    struct ms_process process; /* of `muster hold` */
    struct ms_watch ended;
    struct ms_timer look;
    struct ms_fetcher *fetcher;
    struct ms_fetch *fetch;
    int64_t until_ns;
    char dir[64], base[64], log[80];
    void (*told)(void *arg, int rc, const char *base, const struct ms_error *why);
    void *arg;
};

/* ---- is it there? ------------------------------------------------------------------ */

static void failed(struct ms_local_ray *r, int rc, const char *what)
{
    MS_CLEANUP(ms_cleanup_fd) int fd = open(r->log, O_RDONLY | O_CLOEXEC);
    char tail[LOG_TAIL];
    struct ms_error why = {0};
    ssize_t len = 0;

    ms_error_set(&why, rc, "the Ray of this machine %s", what);
    if (fd >= 0) {
        lseek(fd, -(off_t)sizeof tail, SEEK_END);
        len = read(fd, tail, sizeof tail);
    }
    ms_ray_add_log(&why, tail, len > 0 ? (size_t)len : 0);
    ms_timer_cancel(&r->look);
    r->told(r->arg, rc, NULL, &why);
}

static void on_ended(void *arg, unsigned events)
{
    struct ms_local_ray *r = arg;
    struct ms_process_end end = {0};
    char how[64], text[96];

    (void)events;
    if (ms_process_reap(r->process.pidfd, &end) == -EAGAIN)
        return;
    ms_watch_finish(&r->ended);
    ms_fd_close(&r->process.pidfd);
    ms_fetch_drop(MS_TAKE(r->fetch));
    snprintf(text, sizeof text, "%s", ms_process_end_print(&end, how, sizeof how));
    failed(r, -ECHILD, text);
}

static void on_version(void *arg, const struct ms_fetch_answer *a)
{
    struct ms_local_ray *r = arg;
    char version[MS_RAY_VERSION_MAX];
    struct ms_error err = {0};
    int rc = ms_ray_read_version(a, r->base, version, &err);

    r->fetch = NULL;
    if (rc == 0) {
        r->told(r->arg, 0, r->base, NULL);
        return;
    }
    if (rc == -ENOTSUP)
        r->told(r->arg, rc, NULL, &err);
    else if (ms_now_ns() >= r->until_ns)
        failed(r, -ETIMEDOUT, "does not answer");
    else
        ms_timer_set(&r->look, LOOK_NS);
}

static void on_look(void *arg)
{
    struct ms_local_ray *r = arg;
    char url[128];

    snprintf(url, sizeof url, "%s/api/version", r->base);
    r->fetch = ms_fetch(
        r->fetcher,
        &(struct ms_fetch_spec){.method = "GET", .url = url, .timeout_ns = MS_NS_PER_S},
        on_version,
        r);
    if (!r->fetch)
        failed(r, -ENOMEM, "cannot be asked: out of memory");
}

/* ---- its start --------------------------------------------------------------------- */

static bool can_run(const char *path)
{
    return access(path, X_OK) == 0;
}

/* Beside the Python in use, then in the path. */
static int find_ray(char out[PATH_MAX], struct ms_error *err)
{
    const char *venv = getenv("VIRTUAL_ENV"), *path = getenv("PATH");

    if (venv && snprintf(out, PATH_MAX, "%s/bin/ray", venv) < PATH_MAX && can_run(out))
        return 0;
    while (path && *path) {
        int len = (int)strcspn(path, ":");

        if (snprintf(out, PATH_MAX, "%.*s/ray", len, path) < PATH_MAX && can_run(out))
            return 0;
        path += len + (path[len] == ':');
    }
    return ms_error_set(err,
                        -ENOENT,
                        "there is no `ray` in the path to start a Ray on this machine "
                        "with: pip install 'ray[default]', or give the address of a "
                        "cluster");
}

/* Ports that nobody has now. */
static int find_ports(uint16_t ports[PORTS], struct ms_error *err)
{
    int fds[PORTS], rc = 0;

    for (size_t i = 0; i < PORTS; i++) {
        ports[i] = 0;
        fds[i] = rc < 0 ? -1 : ms_tcp_listen("127.0.0.1", &ports[i], err);
        rc = rc < 0 ? rc : fds[i] < 0 ? fds[i] : 0;
    }
    for (size_t i = 0; i < PORTS; i++)
        ms_fd_close(&fds[i]);
    return rc;
}

static int make_dir(struct ms_local_ray *r, struct ms_error *err)
{
    const char *tmp = getenv("TMPDIR");

    snprintf(r->dir,
             sizeof r->dir,
             "%.32s/" MS_LOCAL_RAY_DIR "XXXXXX",
             tmp && tmp[0] == '/' && strlen(tmp) <= 32 ? tmp : "/tmp");
    if (!mkdtemp(r->dir)) {
        r->dir[0] = 0;
        return ms_error_sys(err, -errno, "cannot make a folder for Ray");
    }
    snprintf(r->log, sizeof r->log, "%s/start.log", r->dir);
    return 0;
}

static int spawn(struct ms_local_ray *r,
                 const char *muster,
                 const char *ray,
                 const uint16_t ports[PORTS],
                 struct ms_error *err)
{
    MS_CLEANUP(ms_cleanup_fd)
    int log = open(r->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    char pid[16], port[32], agent[56], dash[40], temp[80];
    const char *argv[] = {muster,
                          "hold",
                          pid,
                          r->dir,
                          ray,
                          "start",
                          "--head",
                          "--block",
                          "--disable-usage-stats",
                          "--include-dashboard=true",
                          "--node-ip-address=127.0.0.1",
                          "--dashboard-host=127.0.0.1",
                          "--min-worker-port=0",
                          "--max-worker-port=0",
                          port,
                          agent,
                          dash,
                          temp,
                          NULL};
    struct ms_spawn_fd fds[] = {{log, STDOUT_FILENO}, {log, STDERR_FILENO}};
    struct ms_env env;
    int rc;

    if (log < 0)
        return ms_error_sys(err, -errno, "cannot write %s", r->log);
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    snprintf(port, sizeof port, "--port=%u", ports[0]);
    snprintf(dash, sizeof dash, "--dashboard-port=%u", ports[1]);
    snprintf(agent, sizeof agent, "--dashboard-agent-listen-port=%u", ports[2]);
    snprintf(temp, sizeof temp, "--temp-dir=%s", r->dir);
    ms_env_init(&env);
    rc = ms_env_set_own(&env);
    ms_env_drop(&env, "RAY_ADDRESS"); /* of another one */
    if (rc == 0)
        rc = ms_spawn(&(struct ms_spawn){.path = muster,
                                         .argv = argv,
                                         .env = (const char *const *)env.entries,
                                         .fds = fds,
                                         .fd_count = MS_COUNT(fds),
                                         .new_session = true},
                      &r->process,
                      err);
    ms_env_finish(&env);
    return rc;
}

static int
start(struct ms_local_ray *r, const struct ms_ray_site *site, struct ms_error *err)
{
    char ray[PATH_MAX], self[PATH_MAX] = "";
    const char *muster = site->muster;
    uint16_t ports[PORTS] = {0};
    int rc = find_ray(ray, err);

    if (rc == 0 && !muster) {
        if (readlink("/proc/self/exe", self, sizeof self - 1) < 0)
            return ms_error_sys(err, -errno, "cannot find this program");
        muster = self;
    }
    if (rc == 0)
        rc = find_ports(ports, err);
    if (rc == 0)
        rc = make_dir(r, err);
    if (rc == 0)
        rc = spawn(r, muster, ray, ports, err);
    if (rc < 0)
        return rc;
    snprintf(r->base, sizeof r->base, "http://127.0.0.1:%u", ports[1]);
    rc = ms_watch_init(&r->ended, r->loop, r->process.pidfd, MS_READ, on_ended, r);
    if (rc == 0)
        rc = ms_timer_init(&r->look, r->loop, on_look, r);
    if (rc == 0)
        rc = ms_timer_set(&r->look, LOOK_NS);
    return rc < 0 ? ms_error_sys(err, rc, "cannot wait for Ray") : 0;
}

struct ms_local_ray *ms_local_ray_start(
    struct ms_loop *loop,
    const struct ms_ray_site *site,
    void (*told)(void *arg, int rc, const char *base, const struct ms_error *why),
    void *arg,
    struct ms_error *err)
{
    struct ms_local_ray *r = calloc(1, sizeof *r);

    if (!r) {
        ms_error_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    r->loop = loop;
    r->process.pidfd = -1;
    r->told = told;
    r->arg = arg;
    r->until_ns = ms_now_ns() + MS_LOCAL_RAY_START_NS;
    r->fetcher = ms_fetcher_create(loop, err);
    if (r->fetcher && start(r, site, err) == 0)
        return r;
    ms_local_ray_destroy(r);
    return NULL;
}

void ms_local_ray_destroy(struct ms_local_ray *r)
{
    struct ms_process_end end;

    if (!r)
        return;
    ms_fetcher_destroy(r->fetcher);
    ms_watch_finish(&r->ended);
    ms_timer_finish(&r->look);
    if (r->process.pidfd >= 0) {
        int64_t until_ns = ms_now_ns() + MS_LOCAL_RAY_END_NS;

        ms_process_signal(r->process.pidfd, SIGTERM);
        if (ms_process_wait(r->process.pidfd, until_ns, &end) == -ETIMEDOUT) {
            ms_process_signal(r->process.pidfd, SIGUSR1); /* by force */
            ms_process_wait(r->process.pidfd, until_ns + MS_LOCAL_RAY_END_NS, &end);
        }
    }
    ms_fd_close(&r->process.pidfd);
    if (r->dir[0])
        ms_tree_remove(AT_FDCWD, r->dir);
    free(r);
}
