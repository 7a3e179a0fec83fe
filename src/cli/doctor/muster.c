/* muster.c - doctor: sessions, disk and Python */
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/doctor/doctor.h"
#include "cli/out.h"
#include "io/session/log_limits.h"
#include "io/session/program.h"
#include "io/session/session.h"
#include "io/spawn.h"
#include "io/tree.h"
#include "resource/amount.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>

#define DISK_GOOD ((uint64_t)1 << 30)
#define DISK_MIN  ((uint64_t)16 << 20)

#define PYTHON_NS (30 * MS_NS_PER_S)

/* ---- sessions -------------------------------------------------------------------- */

static void check_root(struct ms_finding *f)
{
    char path[MS_SESSION_DIR_MAX];
    struct ms_error err = {0};

    if (ms_session_root(path, &err) == 0)
        ms_finding_ok(f, "sessions are in %s, which is ours alone", path);
    else
        ms_finding_set(f,
                       MS_FINDING_FAIL,
                       "set MUSTER_HOME to a short path of a folder of yours (mode "
                       "0700), or remove what is in the way",
                       "%s",
                       err.text);
}

static void check_sessions(struct ms_finding *f)
{
    MS_CLEANUP(ms_cleanup_free) struct ms_session *all = NULL;
    size_t alive = 0, ended = 0, stale = 0;
    int count = ms_session_list(&all, NULL);

    for (int i = 0; i < count; i++) {
        char secret[MS_SESSION_DIR_MAX + sizeof "/secret"];

        snprintf(secret, sizeof secret, "%s/secret", all[i].dir);
        if (all[i].alive)
            alive++;
        else if (access(secret, F_OK) == 0)
            stale++; /* it was killed before it could remove its secret */
        else
            ended++;
    }
    if (count < 0)
        ms_finding_set(
            f, MS_FINDING_FAIL, NULL, "cannot be listed: %s", strerror(-count));
    else
        ms_finding_set(f,
                       stale ? MS_FINDING_WARN : MS_FINDING_OK,
                       stale ? "the next muster.init() removes what they left" : NULL,
                       "%zu running, %zu ended with logs kept, %zu left behind",
                       alive,
                       ended,
                       stale);
}

/* Of sessions that have ended: how much their logs take, and when they go. */
static void check_logs(struct ms_finding *f)
{
    MS_CLEANUP(ms_cleanup_free) struct ms_session *all = NULL;
    int count = ms_session_list(&all, NULL);
    struct ms_log_limits limits, sum;
    char age[24];

    ms_log_limits_init(&limits);
    sum = (struct ms_log_limits){
        .count_max = UINT64_MAX, .size_max = UINT64_MAX, .age_max_ns = MS_NEVER};
    for (int i = 0; i < count; i++) {
        MS_CLEANUP(ms_cleanup_fd)
        int dir = all[i].alive ? -1 : ms_tree_open(AT_FDCWD, all[i].dir);

        if (dir >= 0)
            ms_log_limits_take_dir(&sum, dir);
    }
    if (limits.not_known)
        ms_finding_set(f,
                       MS_FINDING_WARN,
                       "set it to something like 16, 4GiB or 14d",
                       "%s is not understood, and does not count",
                       limits.not_known);
    else
        ms_finding_ok(f,
                      "%" PRIu64 " ended sessions have %s of logs; %" PRIu64
                      " stay, up to %s and %s",
                      sum.count,
                      ms_amount_bytes(sum.size).text,
                      limits.count_max,
                      ms_amount_bytes(limits.size_max).text,
                      ms_out_duration((uint64_t)limits.age_max_ns, age));
}

static void check_disk(struct ms_finding *f)
{
    static const char room[] = "make room, or set MUSTER_HOME to another disk; workers "
                               "go on when it is full, their lines are lost";
    char path[MS_SESSION_DIR_MAX];
    struct statvfs fs;
    uint64_t bytes;

    if (ms_session_root(path, NULL) < 0 || statvfs(path, &fs) < 0) {
        ms_finding_set(
            f, MS_FINDING_FAIL, NULL, "the folder of the logs cannot be used");
        return;
    }
    bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    ms_finding_set(f,
                   bytes < DISK_MIN    ? MS_FINDING_FAIL
                   : bytes < DISK_GOOD ? MS_FINDING_WARN
                                       : MS_FINDING_OK,
                   bytes < DISK_GOOD ? room : NULL,
                   "%s free for logs in %s",
                   ms_amount_bytes(bytes).text,
                   path);
}

/* ---- Python ---------------------------------------------------------------------- */

/* Prints what it is, and fails as the driver would fail. */
static const char program[] =
    "import sys\n"
    "print(sys.version.split()[0], sys.executable, sep='\\n', flush=True)\n"
    "assert sys.version_info >= (3, 11), 'Python 3.11 or newer is needed'\n"
    "import muster\n"
    "print(getattr(muster, '__version__', ''))\n";

/* The interpreter that this program is installed for, of VIRTUAL_ENV, or in PATH. */
static bool find_python(char out[PATH_MAX])
{
    const char *venv = getenv("VIRTUAL_ENV"), *path = getenv("PATH");

    if (ms_program_find_python(out) == 0)
        return true;
    if (venv && snprintf(out, PATH_MAX, "%s/bin/python3", venv) < PATH_MAX &&
        access(out, X_OK) == 0)
        return true;
    for (; path && *path; path += strcspn(path, ":"), path += *path == ':') {
        int len = (int)strcspn(path, ":");

        if (snprintf(out, PATH_MAX, "%.*s/python3", len, path) < PATH_MAX &&
            access(out, X_OK) == 0)
            return true;
    }
    return false;
}

/* Run it with our environment; its output and how it ended. */
static int run_python(const char *python,
                      char *out,
                      size_t room,
                      struct ms_process_end *end,
                      struct ms_error *err)
{
    const char *argv[] = {python, "-c", program, NULL};
    MS_CLEANUP(ms_cleanup_fd) int fd = memfd_create("muster-doctor", MFD_CLOEXEC);
    struct ms_process p = {.pidfd = -1};
    ssize_t n;
    int rc;

    if (fd < 0)
        return ms_error_sys(err, -errno, "cannot make a file in memory");
    rc = ms_spawn(&(struct ms_spawn){.path = python,
                                     .argv = argv,
                                     .env = (const char *const *)environ,
                                     .fds = (struct ms_spawn_fd[]){{fd, 1}, {fd, 2}},
                                     .fd_count = 2},
                  &p,
                  err);
    if (rc == 0)
        rc = ms_process_wait(p.pidfd, ms_now_ns() + PYTHON_NS, end);
    if (rc == -ETIMEDOUT) {
        ms_process_signal(p.pidfd, SIGKILL);
        ms_process_wait(p.pidfd, MS_NEVER, end);
        ms_error_set(err, rc, "%s does not end", python);
    }
    ms_fd_close(&p.pidfd);
    n = pread(fd, out, room - 1, 0);
    out[n > 0 ? n : 0] = 0;
    return rc;
}

/* The last line that is not empty: of a traceback, the exception. Cuts `text`. */
static const char *last_line(char *text)
{
    char *start;

    for (size_t len = strlen(text); len && text[len - 1] == '\n'; len--)
        text[len - 1] = 0;
    start = strrchr(text, '\n');
    return start ? start + 1 : text;
}

/* Three lines: version, executable, muster.__version__ (empty: it does not say). */
static void judge_python(char *out, struct ms_finding *f)
{
    char *version = out, *path = strchr(out, '\n'), *muster = NULL;

    if (path) {
        *path++ = 0;
        muster = strchr(path, '\n');
    }
    if (!muster) {
        ms_finding_set(f, MS_FINDING_FAIL, NULL, "said only '%s'", last_line(out));
        return;
    }
    *muster++ = 0;
    muster[strcspn(muster, "\n")] = 0;
    if (!muster[0] || strcmp(muster, MS_VERSION) == 0)
        ms_finding_ok(f,
                      "Python %s (%s) imports muster%s%s",
                      version,
                      path,
                      muster[0] ? " " : "",
                      muster);
    else
        ms_finding_set(f,
                       MS_FINDING_WARN,
                       "use the `muster` that was installed with the package",
                       "Python %s (%s) imports muster %s, this program is %s",
                       version,
                       path,
                       muster,
                       MS_VERSION);
}

static void check_python(struct ms_finding *f)
{
    char found[PATH_MAX], out[4096] = "";
    const char *python = f->python ? f->python : find_python(found) ? found : NULL;
    struct ms_process_end end = {0};
    struct ms_error err = {0};

    if (!python)
        ms_finding_set(
            f, MS_FINDING_FAIL, "install Python 3.11 or newer", "there is no python3");
    else if (run_python(python, out, sizeof out, &end, &err) < 0)
        ms_finding_set(f, MS_FINDING_FAIL, "name one with --python", "%s", err.text);
    else if (!end.known || end.signaled || end.code != 0)
        ms_finding_set(
            f,
            MS_FINDING_FAIL,
            "`pip install muster-rl` into that Python, or name another with --python",
            "%s: %s",
            python,
            last_line(out));
    else
        judge_python(out, f);
}

const struct ms_check ms_checks_muster[] = {
    {"python", check_python},
    {"root", check_root},
    {"sessions", check_sessions},
    {"logs", check_logs},
    {"disk", check_disk},
    {0},
};
