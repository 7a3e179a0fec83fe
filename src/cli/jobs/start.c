/* start.c - starting a head for jobs that outlives the terminal */
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/jobs/jobs.h"
#include "io/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STARTED_NS (30 * MS_NS_PER_S)
#define SYSTEMD_NS (10 * MS_NS_PER_S)

enum { WHY_MAX = 512, HAND_ON_MAX = 64 };

/* ---- a unit of systemd -------------------------------------------------------------- */

/* $0: our program, $1: the unit, then options. The user's manager must outlive the login
 * (loginctl enable-linger), or all of it would end with the terminal. Agents and workers stay
 * when the head is started again: only the main process is ended. Exit code 3: not here. */
static const char script[] =
    "case $(systemctl --user is-system-running 2>/dev/null) in\n"
    "running|degraded) ;;\n"
    "*) exit 3 ;;\n"
    "esac\n"
    "linger=$(loginctl show-user \"$(id -u)\" --property=Linger --value 2>/dev/null)\n"
    "[ \"$linger\" = yes ] || exit 3\n"
    "unit=$1\n"
    "shift\n"
    "exec systemd-run --user --quiet --collect --unit=\"$unit\" \\\n"
    "  --property=Restart=on-failure --property=RestartSec=1 \\\n"
    "  --property=KillMode=process --working-directory=/ \"$@\" \\\n"
    "  -- \"$0\" keep - --name " MS_JOBS_SESSION "\n";

/* The variables that a head looks at. */
static bool is_handed_on(const char *variable)
{
    static const char *const names[] = {
        "MUSTER_", "PATH=", "HOME=", "LANG=", "LD_LIBRARY_PATH=", "TMPDIR="};

    for (size_t i = 0; i < MS_COUNT(names); i++)
        if (strncmp(variable, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

/* One for each folder of sessions. */
static void name_unit(char out[64])
{
    const char *home = getenv("MUSTER_HOME");
    uint32_t h = UINT32_C(2166136261); /* FNV-1a */

    for (const char *at = home ? home : ""; *at; at++)
        h = (h ^ (unsigned char)*at) * UINT32_C(16777619);
    if (home)
        snprintf(out, 64, "muster-" MS_JOBS_SESSION "-%08x", h);
    else
        snprintf(out, 64, "muster-" MS_JOBS_SESSION);
}

static bool start_unit(const char *path)
{
    char unit[64], *options[HAND_ON_MAX];
    const char *argv[HAND_ON_MAX + 8] = {"sh", "-c", script, path, unit};
    size_t count = 0;
    struct ms_process process = {.pidfd = -1};
    struct ms_process_end end = {0};
    int rc;

    name_unit(unit);
    for (char **v = environ; *v && count < HAND_ON_MAX; v++)
        if (is_handed_on(*v) && asprintf(&options[count], "--setenv=%s", *v) >= 0) {
            argv[5 + count] = options[count];
            count++;
        }
    rc = ms_spawn(&(struct ms_spawn){.path = "/bin/sh",
                                     .argv = argv,
                                     .env = (const char *const *)environ},
                  &process,
                  NULL);
    if (rc == 0)
        rc = ms_process_wait(process.pidfd, ms_now_ns() + SYSTEMD_NS, &end);
    ms_fd_close(&process.pidfd);
    for (size_t i = 0; i < count; i++)
        free(options[i]);
    return rc == 0 && end.known && !end.signaled && end.code == 0;
}

/* ---- a process of our own ------------------------------------------------------------ */

/* What was said instead of nothing. */
static int wait_ready(int fd, struct ms_error *err)
{
    char why[WHY_MAX];
    size_t len = 0;
    int64_t until_ns = ms_now_ns() + STARTED_NS;

    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int64_t left_ns = until_ns - ms_now_ns();
        ssize_t n;

        if (left_ns <= 0 || poll(&p, 1, (int)(left_ns / MS_NS_PER_MS) + 1) < 0)
            return ms_error_set(
                err, -ETIMEDOUT, "the head has not started within 30 s");
        if (!p.revents)
            continue;
        n = read(fd, why + len, sizeof why - 1 - len);
        if (n <= 0)
            break;
        len += (size_t)n;
    }
    why[len] = 0;
    if (len == 0)
        return 0;
    why[strcspn(why, "\n")] = 0;
    return ms_error_set(err, -EIO, "cannot start a head for jobs: %s", why);
}

/* In the root folder, of this user alone, without a terminal. */
static int spawn(const char *path, int ready, struct ms_error *err)
{
    const char *argv[] = {"muster", "keep", "3", "--name", MS_JOBS_SESSION, NULL};
    MS_CLEANUP(ms_cleanup_fd) int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    struct ms_process process = {.pidfd = -1};
    int rc;

    if (null < 0)
        return ms_error_sys(err, -errno, "cannot start a head for jobs");
    rc = ms_spawn(
        &(struct ms_spawn){
            .path = path,
            .argv = argv,
            .env = (const char *const *)environ,
            .working_dir = "/",
            .fds = (struct ms_spawn_fd[]){{null, 0}, {null, 1}, {null, 2}, {ready, 3}},
            .fd_count = 4,
            .new_session = true,
        },
        &process,
        err);
    ms_fd_close(&process.pidfd);
    return rc;
}

static int start_watchdog(const char *path, struct ms_error *err)
{
    MS_CLEANUP(ms_cleanup_fd) int ours = -1;
    int ends[2], rc;

    if (pipe2(ends, O_CLOEXEC) < 0)
        return ms_error_sys(err, -errno, "cannot start a head for jobs");
    ours = ends[0];
    rc = spawn(path, ends[1], err);
    close(ends[1]);
    return rc < 0 ? rc : wait_ready(ours, err);
}

int ms_watchdog_start(const char **watched_by, struct ms_error *err)
{
    char path[PATH_MAX] = "";

    if (readlink("/proc/self/exe", path, sizeof path - 1) < 0)
        return ms_error_sys(err, -errno, "cannot start a head for jobs");
    *watched_by = "a unit of systemd";
    if (start_unit(path))
        return 0;
    *watched_by = "a process of its own, `muster keep`";
    return start_watchdog(path, err);
}
