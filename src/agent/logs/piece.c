/* piece.c - reads the next bytes of a log file, also of one that was rotated */
#include "agent/logs/piece.h"
#include "agent/logs/seek.h"
#include "base/cleanup.h"
#include "base/limits.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_ROOM = 4096, NAME_MAX_LEN = 128 };

/* The file, if it is a plain one; its number and size. */
static int open_log(const char *path, uint64_t *file, uint64_t *size)
{
    MS_CLEANUP(ms_cleanup_fd)
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EINVAL;
    *file = st.st_ino;
    *size = (uint64_t)st.st_size;
    return MS_TAKE_FD(fd);
}

/* Of a reader who comes for the first time: behind all that it does not want. */
static uint64_t find_start(int fd, uint64_t size, const Muster__ReadLog *want)
{
    long lines = want->lines_max < LONG_MAX ? (long)want->lines_max : LONG_MAX;
    uint64_t of_lines = 0, of_time = 0;

    if (!want->all &&
        (lines == 0 ||
         ms_log_find_lines(fd, size, MS_LOG_BACK_MAX, &lines, &of_lines) < 0))
        return size;
    if (want->since_ns &&
        ms_log_find_time(fd, size, (int64_t)want->since_ns, &of_time) < 0)
        return size;
    return of_lines > of_time ? of_lines : of_time;
}

static int read_piece(int fd, uint64_t offset, uint64_t size, Muster__LogPiece *out)
{
    size_t len = 0;
    ssize_t n;

    if (offset < size)
        len = size - offset < MS_LOG_PIECE_MAX ? size - offset : MS_LOG_PIECE_MAX;
    out->data.data = len ? malloc(len) : NULL;
    if (len && !out->data.data)
        return -ENOMEM;
    n = len ? pread(fd, out->data.data, len, (off_t)offset) : 0;
    if (n < 0)
        return -errno;
    out->data.len = (size_t)n;
    out->offset = offset + (uint64_t)n;
    return 0;
}

/* What was begun goes on, though it has another name by now. -ENODATA: nothing is left
 * of it. */
static int
read_rotated(const char *path, const Muster__ReadLog *want, Muster__LogPiece *out)
{
    char old[PATH_ROOM + 8];
    uint64_t file = 0, size = 0;
    MS_CLEANUP(ms_cleanup_fd) int fd = -1;

    snprintf(old, sizeof old, "%s.1", path);
    fd = open_log(old, &file, &size);
    if (fd < 0 || file != want->file || want->offset >= size)
        return -ENODATA;
    out->file = file;
    return read_piece(fd, want->offset, size, out);
}

static int
read_log(const char *path, const Muster__ReadLog *want, Muster__LogPiece *out)
{
    uint64_t file = 0, size = 0, offset = want->offset;
    MS_CLEANUP(ms_cleanup_fd) int fd = open_log(path, &file, &size);
    int rc;

    if (fd == -ENOENT)
        return 0;
    if (fd < 0)
        return fd;
    if (want->file && want->file != file) {
        rc = read_rotated(path, want, out);
        if (rc != -ENODATA)
            return rc;
        offset = 0;
    } else if (!want->file) {
        offset = find_start(fd, size, want);
        out->first_ns = (uint64_t)ms_log_time_before(fd, offset);
    }
    out->file = file;
    return read_piece(fd, offset, size, out);
}

/* A name of ours: no way out of the folder, and nothing but a log. */
static bool is_log(const char *name)
{
    size_t len = strlen(name);

    if (len <= strlen(".log") || len > NAME_MAX_LEN || name[0] == '.' ||
        strcmp(name + len - strlen(".log"), ".log") != 0)
        return false;
    for (const char *p = name; *p; p++)
        if (!isalnum((unsigned char)*p) && !strchr("_.-", *p))
            return false;
    return true;
}

int ms_log_piece_read(const char *session_dir,
                      const Muster__ReadLog *want,
                      Muster__LogPiece *out,
                      struct ms_error *err)
{
    char path[PATH_ROOM];
    int rc;

    if (!is_log(want->name))
        return ms_error_set(err, -EINVAL, "there is no log of that name");
    if (snprintf(path, sizeof path, "%s/logs/%s", session_dir, want->name) >=
        (int)sizeof path)
        return ms_error_sys(err, -ENAMETOOLONG, "cannot read a log");
    rc = read_log(path, want, out);
    return rc < 0 ? ms_error_sys(err, rc, "cannot read '%s'", path) : 0;
}
