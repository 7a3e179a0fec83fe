#include "io/cgdir.h"
#include "base/cleanup.h"
#include "io/cgpath.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_MAX = 64 << 10, PATH_ROOM = MS_CGROUP_PATH_MAX + 64 };

int ms_cgdir_read(const char *dir, const char *name, char *out, size_t room)
{
    MS_CLEANUP(ms_cleanup_fd) int fd = -1;
    char path[PATH_ROOM];
    size_t len = 0;
    ssize_t n = 1;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    while (n > 0 && len < room - 1) {
        n = read(fd, out + len, room - 1 - len);
        if (n < 0)
            return -errno;
        len += (size_t)n;
    }
    out[len] = 0;
    return 0;
}

int ms_cgdir_find_own(const char *controller, char dir[MS_CGROUP_PATH_MAX], bool *is_v2)
{
    MS_CLEANUP(ms_cleanup_free) char *cgroup = malloc(TEXT_MAX);
    MS_CLEANUP(ms_cleanup_free) char *mounts = malloc(TEXT_MAX);
    char *around;
    int rc;

    if (!cgroup || !mounts)
        return -ENOMEM;
    rc = ms_cgdir_read("/proc/self", "cgroup", cgroup, TEXT_MAX);
    if (rc == 0)
        rc = ms_cgdir_read("/proc/self", "mountinfo", mounts, TEXT_MAX);
    if (rc == 0)
        rc = ms_cgpath_find(cgroup, mounts, controller, dir, MS_CGROUP_PATH_MAX, is_v2);
    if (rc < 0)
        return rc;
    around = strstr(dir, "/" MS_AGENT_GROUP_PREFIX);
    if (around)
        *around = 0;
    return 0;
}

/* Of version 2; false: it has no such file. */
static bool kill_at_once(const char *dir)
{
    MS_CLEANUP(ms_cleanup_fd) int fd = -1;
    char path[PATH_ROOM];

    snprintf(path, sizeof path, "%s/cgroup.kill", dir);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd >= 0 && write(fd, "1", 1) == 1;
}

void ms_cgdir_kill(const char *dir)
{
    MS_CLEANUP(ms_cleanup_free) char *text = malloc(TEXT_MAX);
    char *at = text, *end;

    if (kill_at_once(dir) || !text ||
        ms_cgdir_read(dir, "cgroup.procs", text, TEXT_MAX) < 0)
        return;
    for (long pid = strtol(at, &end, 10); end != at; pid = strtol(at, &end, 10)) {
        if (pid > 1)
            kill((pid_t)pid, SIGKILL);
        at = end;
    }
}

int ms_cgdir_open_procs(const char *dir)
{
    char path[PATH_ROOM];
    int fd;

    snprintf(path, sizeof path, "%s/cgroup.procs", dir);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}
