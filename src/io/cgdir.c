/* cgdir.c - find, enter and kill control groups by their folders */
#include "io/cgdir.h"
#include "base/cleanup.h"
#include "io/cgpath.h"
#include "io/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>

enum { TEXT_MAX = 64 << 10, PATH_ROOM = MS_CGROUP_PATH_MAX + 64 };

int ms_cgdir_read(const char *dir, const char *name, char *out, size_t room)
{
    char path[PATH_ROOM];
    int len;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    len = ms_file_read(path, out, room);
    return len < 0 ? len : 0;
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

static int open_file(const char *dir, const char *name)
{
    char path[PATH_ROOM];
    int fd;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

void ms_cgdir_kill(const char *dir)
{
    MS_CLEANUP(ms_cleanup_fd) int all = open_file(dir, "cgroup.kill"); /* version 2 */
    MS_CLEANUP(ms_cleanup_free) char *text = malloc(TEXT_MAX);
    char *at = text, *end;

    if ((all >= 0 && write(all, "1", 1) == 1) || !text ||
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
    return open_file(dir, "cgroup.procs");
}
