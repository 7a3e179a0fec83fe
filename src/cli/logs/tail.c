/* tail.c - a log file from its last lines on, through renames */
#include "cli/logs/tail.h"
#include "agent/logs/piece.h"
#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

enum { BLOCK = 64 << 10 };

int ms_tailfile_open(struct ms_tailfile *t, int dir, const char *name)
{
    int fd, n;

    *t = (struct ms_tailfile){.dir = dir, .fd = -1};
    n = snprintf(t->name, sizeof t->name, "%s", name);
    if (n < 0 || (size_t)n >= sizeof t->name)
        return -ENAMETOOLONG;
    fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -errno;
    t->fd = fd;
    return 0;
}

void ms_tailfile_close(struct ms_tailfile *t)
{
    ms_fd_close(&t->fd);
}

/* Where the last *lines lines of a file begin; *lines becomes what is still missing. */
static int find_start(int fd, long *lines, off_t *start)
{
    struct stat st;
    uint64_t at = 0;
    int rc = fstat(fd, &st) < 0
                 ? -errno
                 : ms_log_find_lines(fd, (uint64_t)st.st_size, UINT64_MAX, lines, &at);

    *start = (off_t)at;
    return rc;
}

static int read_on(int fd,
                   off_t *at,
                   int (*on_data)(void *arg, const char *data, size_t len),
                   void *arg)
{
    char block[BLOCK];
    ssize_t n;

    while ((n = pread(fd, block, sizeof block, *at)) > 0) {
        int rc = on_data(arg, block, (size_t)n);

        if (rc < 0)
            return rc;
        *at += n;
    }
    return n < 0 ? -errno : 0;
}

/* The first read: "<name>.1" if lines are wanted from it, and where this one begins. */
static int start(struct ms_tailfile *t,
                 long lines_max,
                 int (*on_data)(void *arg, const char *data, size_t len),
                 void *arg)
{
    char old_name[MS_TAILFILE_NAME_MAX + 2];
    MS_CLEANUP(ms_cleanup_fd) int old = -1;
    long missing = lines_max;
    off_t from = 0;
    int rc = 0;

    if (lines_max == 0) {
        struct stat st;

        t->at = fstat(t->fd, &st) < 0 ? 0 : st.st_size;
        return 0;
    }
    if (lines_max > 0)
        rc = find_start(t->fd, &missing, &t->at);
    if (rc < 0 || (lines_max > 0 && missing <= 0))
        return rc;
    snprintf(old_name, sizeof old_name, "%s.1", t->name);
    old = openat(t->dir, old_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (old < 0)
        return 0;
    if (lines_max > 0)
        rc = find_start(old, &missing, &from);
    return rc < 0 ? rc : read_on(old, &from, on_data, arg);
}

/* Is there another file under our name now? Then open it. */
static bool reopen(struct ms_tailfile *t)
{
    struct stat now, ours;
    int fd;

    if (fstatat(t->dir, t->name, &now, AT_SYMLINK_NOFOLLOW) < 0 ||
        fstat(t->fd, &ours) < 0 ||
        (now.st_ino == ours.st_ino && now.st_dev == ours.st_dev))
        return false;
    fd = openat(t->dir, t->name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return false;
    ms_fd_close(&t->fd);
    t->fd = fd;
    t->at = 0;
    return true;
}

int ms_tailfile_read(struct ms_tailfile *t,
                     long lines_max,
                     int (*on_data)(void *arg, const char *data, size_t len),
                     void *arg)
{
    int rc = t->started ? 0 : start(t, lines_max, on_data, arg);

    t->started = true;
    do {
        if (rc == 0)
            rc = read_on(t->fd, &t->at, on_data, arg);
    } while (rc == 0 && reopen(t));
    return rc;
}
