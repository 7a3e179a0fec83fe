/* seek.c - finds the last lines of a log file, and the first one of a time */
#include "agent/logs/seek.h"
#include "base/cleanup.h"
#include "base/timestamp.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 64 << 10, SKIP_BLOCK = 4 << 10 };

int ms_log_find_lines(
    int fd, uint64_t size, uint64_t back_max, long *lines, uint64_t *start)
{
    uint64_t at = size, last = size < back_max ? 0 : size - back_max;
    char block[BLOCK];

    while (at > last) {
        size_t len = at - last < BLOCK ? at - last : BLOCK;
        ssize_t n = pread(fd, block, len, (off_t)(at -= len));

        if (n != (ssize_t)len)
            return n < 0 ? -errno : -EIO;
        for (size_t i = len; i-- > 0;) /* the newline that ends the file begins none */
            if (block[i] == '\n' && at + i + 1 != size && --*lines <= 0) {
                *start = at + i + 1;
                return 0;
            }
    }
    *start = at;
    if (size > 0)
        --*lines; /* the first line has no newline before it */
    return 0;
}

/* Go on to the line behind the next newline, or to `end`. */
static int skip_line(int fd, uint64_t end, uint64_t *at)
{
    char block[SKIP_BLOCK];

    while (*at < end) {
        ssize_t n = pread(fd, block, sizeof block, (off_t)*at);
        const char *newline = n > 0 ? memchr(block, '\n', (size_t)n) : NULL;

        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        *at += newline ? (uint64_t)(newline - block) + 1 : (uint64_t)n;
        if (newline)
            break;
    }
    if (*at > end)
        *at = end;
    return 0;
}

/* The first line with a time that begins at *at or behind it: where, and its time. *at is
 * `end` if none begins before that. 0 or a negative errno. */
static int next_time(int fd, uint64_t end, uint64_t *at, int64_t *time_ns)
{
    char text[MS_TIMESTAMP_LEN + 1];
    ssize_t n;
    int rc = 0;

    if (*at) {
        --*at; /* the newline before a line that begins there */
        rc = skip_line(fd, end, at);
    }
    while (rc == 0 && *at < end) {
        n = pread(fd, text, sizeof text, (off_t)*at);
        if (n < 0)
            return -errno;
        if (ms_timestamp_read(text, (size_t)n, time_ns))
            return 0;
        rc = skip_line(fd, end, at);
    }
    return rc;
}

int ms_log_find_time(int fd, uint64_t size, int64_t since_ns, uint64_t *start)
{
    uint64_t low = 0, high = size;
    int64_t time_ns = 0;
    int rc = 0;

    while (rc == 0 && low < high) {
        uint64_t middle = low + (high - low) / 2, at = middle;

        rc = next_time(fd, high, &at, &time_ns);
        if (at == high || time_ns >= since_ns)
            high = middle;
        else
            low = at + 1;
    }
    *start = low;
    return rc < 0 ? rc : next_time(fd, size, start, &time_ns);
}

int64_t ms_log_time_before(int fd, uint64_t at)
{
    uint64_t from = at > MS_LOG_RUN_MAX ? at - MS_LOG_RUN_MAX : 0;
    MS_CLEANUP(ms_cleanup_free) char *text = malloc(MS_LOG_RUN_MAX);
    ssize_t n = text ? pread(fd, text, at - from, (off_t)from) : 0;
    const char *line = text, *end = text + (n > 0 ? n : 0);
    int64_t time_ns = 0;

    while (line && line < end) { /* the first may be cut, and has none then */
        ms_timestamp_read(line, (size_t)(end - line), &time_ns);
        line = memchr(line, '\n', (size_t)(end - line));
        line = line ? line + 1 : NULL;
    }
    return time_ns;
}
