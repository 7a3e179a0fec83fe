/* local_ray.c - a Ray of our own on this machine, which ends with us */
#include "orchestrator/ray/job/local_ray.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/env.h"
#include "io/spawn.h"
#include "io/tcp.h"
#include "io/tree.h"
#include "orchestrator/ray/job/python.h"
#include "orchestrator/ray/job/rest.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define END_NS (20 * MS_NS_PER_S)

enum { PORTS = 3, LOG_TAIL = 2048 };

struct ms_local_ray {
    struct ms_process process; /* of `muster hold` */
    char dir[64], log[80];
};

int ms_local_ray_failed(const struct ms_local_ray *r,
                        int rc,
                        const char *what,
                        struct ms_error *why)
{
    MS_CLEANUP(ms_cleanup_fd) int fd = open(r->log, O_RDONLY | O_CLOEXEC);
    char tail[LOG_TAIL];
    ssize_t len = 0;

    ms_error_set(why, rc, "the Ray of this machine %s", what);
    if (fd >= 0) {
        lseek(fd, -(off_t)sizeof tail, SEEK_END);
        len = read(fd, tail, sizeof tail);
    }
    ms_ray_add_log(why, tail, len > 0 ? (size_t)len : 0);
    return rc;
}

bool ms_local_ray_has_ended(struct ms_local_ray *r, struct ms_error *why)
{
    struct ms_process_end end = {0};
    char how[64];

    if (r->process.pidfd >= 0 && ms_process_reap(r->process.pidfd, &end) == -EAGAIN)
        return false;
    ms_fd_close(&r->process.pidfd);
    ms_local_ray_failed(r, -ECHILD, ms_process_end_print(&end, how, sizeof how), why);
    return true;
}

/* ---- its start --------------------------------------------------------------------- */

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

static int start(struct ms_local_ray *r,
                 const struct ms_ray_site *site,
                 char **base,
                 struct ms_error *err)
{
    char ray[PATH_MAX], self[PATH_MAX];
    uint16_t ports[PORTS] = {0};
    int rc = 0;

    if (ms_ray_find_program("ray", ray) < 0)
        return ms_error_set(err,
                            -ENOENT,
                            "there is no `ray` in the path to start a Ray on this "
                            "machine with: pip install 'ray[default]', or give the "
                            "address of a cluster");
    if (!site->muster)
        rc = ms_ray_find_self(self, err);
    if (rc == 0)
        rc = find_ports(ports, err);
    if (rc == 0)
        rc = make_dir(r, err);
    if (rc == 0)
        rc = spawn(r, site->muster ? site->muster : self, ray, ports, err);
    if (rc == 0 && asprintf(base, "http://127.0.0.1:%u", ports[1]) < 0)
        rc = ms_error_set(err, -ENOMEM, "out of memory");
    return rc;
}

struct ms_local_ray *
ms_local_ray_start(const struct ms_ray_site *site, char **base, struct ms_error *err)
{
    struct ms_local_ray *r = calloc(1, sizeof *r);

    if (!r) {
        ms_error_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    r->process.pidfd = -1;
    *base = NULL;
    if (start(r, site, base, err) == 0)
        return r;
    ms_local_ray_destroy(r);
    return NULL;
}

void ms_local_ray_destroy(struct ms_local_ray *r)
{
    struct ms_process_end end;

    if (!r)
        return;
    if (r->process.pidfd >= 0) {
        int64_t until_ns = ms_now_ns() + END_NS;

        ms_process_signal(r->process.pidfd, SIGTERM);
        if (ms_process_wait(r->process.pidfd, until_ns, &end) == -ETIMEDOUT) {
            ms_process_signal(r->process.pidfd, SIGUSR1); /* by force */
            ms_process_wait(r->process.pidfd, until_ns + END_NS, &end);
        }
    }
    ms_fd_close(&r->process.pidfd);
    if (r->dir[0])
        ms_tree_remove(AT_FDCWD, r->dir);
    free(r);
}
