/* seek.c - finds the last lines of a log file, and the first one of a time */
#include "agent/logs/seek.h"
#include "base/cleanup.h"
#include "base/timestamp.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 64 << 10 };

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

/* ---- by time ---------------------------------------------------------------------- */

/* The part of a file that was read last. */
struct log_window {
    int fd;
    uint64_t at;
    size_t len;
    char text[BLOCK];
};

/* What stands at `at`: `want` bytes or more, fewer only at the end of the file. How many, or a
 * negative errno. */
static ssize_t
window_get(struct log_window *w, uint64_t at, size_t want, const char **text)
{
    if (at < w->at || at + want > w->at + w->len) {
        ssize_t n = pread(w->fd, w->text, sizeof w->text, (off_t)at);

        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        w->at = at;
        w->len = (size_t)n;
    }
    *text = w->text + (at - w->at);
    return (ssize_t)(w->len - (at - w->at));
}

/* Go on to the line behind the next newline, or to `end`. */
static int skip_line(struct log_window *w, uint64_t end, uint64_t *at)
{
    const char *text = w->text, *newline = NULL;

    while (*at < end && !newline) {
        ssize_t n = window_get(w, *at, 1, &text);

        if (n <= 0)
            return n < 0 ? (int)n : -EIO;
        newline = memchr(text, '\n', (size_t)n);
        *at += newline ? (uint64_t)(newline - text) + 1 : (uint64_t)n;
    }
    if (*at > end)
        *at = end;
    return 0;
}

/* The first line with a time that begins at *at or behind it, before `end`: 1, where, and its
 * time. 0: there is none up to *at, which is `end`, or MS_LOG_RUN_MAX further. Or a negative
 * errno. */
static int next_time(struct log_window *w, uint64_t end, uint64_t *at, int64_t *time_ns)
{
    uint64_t last = end - *at > MS_LOG_RUN_MAX ? *at + MS_LOG_RUN_MAX : end;
    const char *text = w->text;
    int rc = 0;

    if (*at) {
        --*at; /* the newline before a line that begins there */
        rc = skip_line(w, last, at);
    }
    while (rc == 0 && *at < last) {
        ssize_t n = window_get(w, *at, MS_TIMESTAMP_LEN + 1, &text);

        if (n <= 0)
            return n < 0 ? (int)n : -EIO;
        if (ms_timestamp_read(text, (size_t)n, time_ns))
            return 1;
        rc = skip_line(w, last, at);
    }
    return rc;
}

int ms_log_find_time(int fd, uint64_t size, int64_t since_ns, uint64_t *start)
{
    struct log_window w = {.fd = fd};
    uint64_t low = 0, high = size, found = size;
    int64_t time_ns = 0;

    while (low < high) {
        uint64_t middle = low + (high - low) / 2, at = middle;
        int rc = next_time(&w, high, &at, &time_ns);

        if (rc < 0)
            return rc;
        if (rc && time_ns >= since_ns)
            found = at;
        if (rc ? time_ns >= since_ns : at == high)
            high = middle;
        else
            low = at +
                  (uint64_t)rc; /* without a time for so long: before there were any */
    }
    *start = found;
    return 0;
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
