/* tree.c - files and folders below a descriptor */
#include "io/tree.h"
#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

/* Our own folders are three deep: deeper ones are -ELOOP and do not use up our stack. */
enum { DEPTH_MAX = 32 };

int ms_tree_open(int at, const char *name)
{
    MS_CLEANUP(ms_cleanup_fd)
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (st.st_uid != geteuid())
        return -EPERM;
    return MS_TAKE_FD(fd);
}

int ms_tree_each(int dir, int (*fn)(void *arg, int dir, const char *name), void *arg)
{
    MS_CLEANUP(ms_cleanup_fd)
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    MS_CLEANUP(ms_cleanup_dir) DIR *d = NULL;
    struct dirent *e;
    int rc = 0;

    if (fd < 0)
        return -errno;
    d = fdopendir(fd);
    if (!d)
        return -errno;
    fd = -1; /* the stream's now */
    while (rc == 0) {
        errno = 0;
        e = readdir(d);
        if (!e)
            return -errno;
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            rc = fn(arg, dir, e->d_name);
    }
    return rc;
}

static int remove_at(int at, const char *name, int depth);

static int remove_entry(void *arg, int dir, const char *name)
{
    return remove_at(dir, name, *(int *)arg + 1);
}

static int remove_at(int at, const char *name, int depth)
{
    MS_CLEANUP(ms_cleanup_fd) int dir = -1;
    int rc;

    if (unlinkat(at, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR)
        return -errno;
    if (depth > DEPTH_MAX)
        return -ELOOP;
    dir = ms_tree_open(at, name);
    if (dir == -ENOENT)
        return 0;
    if (dir < 0)
        return dir;
    rc = ms_tree_each(dir, remove_entry, &depth);
    if (unlinkat(at, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return 0;
    return rc < 0 ? rc : -errno;
}

int ms_tree_remove(int at, const char *name)
{
    return remove_at(at, name, 0);
}

static int write_all(int fd, const char *data, size_t len)
{
    while (len) {
        ssize_t n = write(fd, data, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        data += n;
        len -= (size_t)n;
    }
    return 0;
}

int ms_tree_write(int at, const char *name, const void *data, size_t len)
{
    MS_CLEANUP(ms_cleanup_fd)
    int fd =
        openat(at, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    int rc;

    if (fd < 0)
        return -errno;
    rc = write_all(fd, data, len);
    if (rc < 0)
        unlinkat(at, name, 0);
    return rc;
}

ssize_t ms_fd_read_all(int fd, void *out, size_t room)
{
    size_t len = 0;

    while (len < room) {
        ssize_t n = read(fd, (char *)out + len, room - len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : (ssize_t)len;
        len += (size_t)n;
    }
    return (ssize_t)len;
}

static int read_text(int fd, char *out, size_t room)
{
    ssize_t len = ms_fd_read_all(fd, out, room - 1);

    if (len >= 0)
        out[len] = 0;
    return (int)len;
}

int ms_file_read(const char *path, char *out, size_t room)
{
    MS_CLEANUP(ms_cleanup_fd) int fd = open(path, O_RDONLY | O_CLOEXEC);

    return fd < 0 ? -errno : read_text(fd, out, room);
}

int ms_tree_read(int at, const char *name, char *out, size_t room)
{
    MS_CLEANUP(ms_cleanup_fd)
    int fd = openat(at, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid())
        return -EPERM;
    return st.st_size >= (off_t)room ? -EFBIG : read_text(fd, out, room);
}
