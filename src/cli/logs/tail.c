/* tail.c - a log file from its last lines on, through renames */
#include "cli/logs/tail.h"
#include "agent/logs/seek.h"
#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

int ms_tailfile_open(struct ms_tailfile *t, int dir, const char *name)
{
    int fd, n;

    *t = (struct ms_tailfile){.dir = dir, .fd = -1, .old = -1};
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
    ms_fd_close(&t->old);
}

/* Where the wanted lines of a file begin; *lines (-1: all) becomes how many are missing. */
static int find_start(int fd, long *lines, int64_t since_ns, uint64_t *start)
{
    uint64_t of_lines = 0, of_time = 0, size;
    struct stat st;
    int rc = 0;

    if (fstat(fd, &st) < 0)
        return -errno;
    size = (uint64_t)st.st_size;
    if (*lines == 0)
        of_lines = size;
    else if (*lines > 0)
        rc = ms_log_find_lines(fd, size, UINT64_MAX, lines, &of_lines);
    if (rc == 0 && since_ns)
        rc = ms_log_find_time(fd, size, since_ns, &of_time);
    if (rc == 0 && of_time > 0)
        *lines = 0; /* what is before it is older still */
    *start = of_lines > of_time ? of_lines : of_time;
    return rc;
}

int ms_tailfile_start(struct ms_tailfile *t, long lines_max, int64_t since_ns)
{
    char old_name[MS_TAILFILE_NAME_MAX + 2];
    long missing = lines_max;
    int rc = find_start(t->fd, &missing, since_ns, &t->at);

    t->started = true;
    if (rc == 0)
        t->first_ns = ms_log_time_before(t->fd, t->at);
    if (rc < 0 || missing == 0)
        return rc;
    snprintf(old_name, sizeof old_name, "%s.1", t->name);
    t->old = openat(t->dir, old_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (t->old < 0)
        return 0;
    rc = find_start(t->old, &missing, since_ns, &t->old_at);
    if (rc == 0)
        t->first_ns = ms_log_time_before(t->old, t->old_at);
    return rc;
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

static int read_next(int fd, uint64_t *at, void *data, size_t room)
{
    ssize_t n = pread(fd, data, room, (off_t)*at);

    if (n < 0)
        return -errno;
    *at += (uint64_t)n;
    return (int)n;
}

int ms_tailfile_read(struct ms_tailfile *t, void *data, size_t room)
{
    int n = t->old < 0 ? 0 : read_next(t->old, &t->old_at, data, room);

    if (n == 0)
        ms_fd_close(&t->old);
    while (n == 0) {
        n = read_next(t->fd, &t->at, data, room);
        if (n == 0 && !reopen(t))
            break;
    }
    return n;
}
