/* spill_file.c - the files of spilled objects */
#include "store/server/spill.h"
#include "store/server/work.h"

#include "base/limits.h"
#include "base/name.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define PREFIX ".muster-spill-"

/* Where the file system knows no files without a name: one that has it for a moment. */
static int open_named(const char *dir)
{
    char path[PATH_MAX];
    int fd, rc = snprintf(path,
                          sizeof path,
                          "%s/" PREFIX "%016llx",
                          dir,
                          (unsigned long long)ms_random_id());

    if (rc < 0 || (size_t)rc >= sizeof path)
        return -ENAMETOOLONG;
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    if (unlink(path) == 0)
        return fd;
    rc = -errno;
    close(fd);
    return rc;
}

static int open_nameless(const char *dir)
{
    int fd = open(dir, O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);

    if (fd >= 0)
        return fd;
    if (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)
        return open_named(dir);
    return -errno;
}

int ms_spill_open(const char *dir, uint64_t len, struct ms_error *err)
{
    int fd = open_nameless(dir);

    if (fd < 0)
        return ms_error_sys(err, fd, "cannot spill to %s", dir);
    if (fallocate(fd, 0, 0, (off_t)len) < 0 && errno != EOPNOTSUPP) {
        int rc = -errno;

        close(fd);
        return ms_error_sys(err, rc, "cannot spill to %s", dir);
    }
    return fd;
}

int ms_store_check_spill(const char *dir, struct ms_error *err)
{
    int fd = ms_spill_open(dir, 1, err);

    if (fd < 0)
        return fd;
    close(fd);
    return 0;
}

int ms_spill_move(
    int fd, uint8_t *memory, uint64_t len, bool is_write, const struct ms_work *work)
{
    uint64_t at = 0;

    while (at < len) {
        size_t some = len - at < MS_SPILL_CHUNK ? (size_t)(len - at) : MS_SPILL_CHUNK;
        ssize_t n;

        if (ms_work_ends(work))
            return -ECANCELED;
        n = is_write ? pwrite(fd, memory + at, some, (off_t)at)
                     : pread(fd, memory + at, some, (off_t)at);
        if (n < 0 && errno != EINTR)
            return -errno;
        if (n == 0)
            return -EIO;
        if (n > 0 && is_write) /* to the disk soon: it is memory that is short */
            sync_file_range(fd, (off_t)at, n, SYNC_FILE_RANGE_WRITE);
        at += n > 0 ? (uint64_t)n : 0;
    }
    return 0;
}

void ms_spill_clean(const char *dir)
{
    DIR *d = opendir(dir);
    struct dirent *e;

    while (d && (e = readdir(d)))
        if (strncmp(e->d_name, PREFIX, strlen(PREFIX)) == 0)
            unlinkat(dirfd(d),
                     e->d_name,
                     0); /* living agents have unlinked theirs already */
    if (d)
        closedir(d);
}
