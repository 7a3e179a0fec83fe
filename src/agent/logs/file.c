/* file.c - appends to a log file, rotates it, and survives a full disk */
#include "agent/logs/file.h"
#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

static int reopen(struct ms_log_file *f)
{
    struct stat st;

    f->fd = open(f->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (f->fd < 0)
        return -errno;
    f->size = fstat(f->fd, &st) == 0 ? (uint64_t)st.st_size : 0;
    return 0;
}

int ms_log_file_open(struct ms_log_file *f, const char *path, uint64_t size_max)
{
    *f = (struct ms_log_file){.fd = -1, .size_max = size_max, .path = strdup(path)};
    if (!f->path)
        return -ENOMEM;
    reopen(f);
    return 0;
}

void ms_log_file_close(struct ms_log_file *f)
{
    if (!f->path)
        return;
    ms_fd_close(&f->fd);
    free(f->path);
    f->path = NULL;
}

/* Another agent that writes the same file may have renamed it. */
static bool is_ours(const struct ms_log_file *f)
{
    struct stat ours, there;

    return fstat(f->fd, &ours) == 0 && stat(f->path, &there) == 0 &&
           ours.st_ino == there.st_ino && ours.st_dev == there.st_dev;
}

static void rotate(struct ms_log_file *f)
{
    char old[PATH_MAX];

    snprintf(old, sizeof old, "%s.1", f->path);
    if (is_ours(f) && rename(f->path, old) < 0)
        return;
    ms_fd_close(&f->fd);
    reopen(f);
}

/* 0, or a negative errno; *done counts what was written either way. */
static int write_all(int fd, const char *data, size_t len, size_t *done)
{
    *done = 0;
    while (*done < len) {
        ssize_t n = write(fd, data + *done, len - *done);

        if (n > 0)
            *done += (size_t)n;
        else if (n == 0 || errno != EINTR)
            return n == 0 ? -EIO : -errno;
    }
    return 0;
}

static int say_what_was_lost(struct ms_log_file *f)
{
    char text[96];
    size_t done;
    int n = snprintf(text,
                     sizeof text,
                     "\n[muster: the disk was full, %" PRIu64 " bytes are lost here]\n",
                     f->lost);
    int rc = write_all(f->fd, text, (size_t)n, &done);

    f->size += done;
    if (rc == 0)
        f->lost = 0;
    return rc;
}

static int write_now(struct ms_log_file *f, const void *data, size_t len, size_t *done)
{
    int rc = 0;

    if (f->fd < 0)
        rc = reopen(f);
    if (rc == 0 && f->size && f->size + len > f->size_max)
        rotate(f);
    if (rc == 0 && f->fd < 0)
        rc = -EBADF;
    if (rc == 0 && f->lost)
        rc = say_what_was_lost(f);
    if (rc == 0)
        rc = write_all(f->fd, data, len, done);
    f->size += *done;
    return rc;
}

int ms_log_file_write(struct ms_log_file *f, const void *data, size_t len)
{
    size_t done = 0;
    int rc = write_now(f, data, len, &done);

    f->lost += len - done;
    return rc;
}
