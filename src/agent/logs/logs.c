/* logs.c - reads the pipes of workers and writes each line where it belongs */
#include "agent/logs/logs.h"
#include "agent/logs/file.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/timestamp.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <string.h>

struct ms_logs {
    struct ms_loop *loop;
    char *dir, *node;
    struct ms_log_file merged;
    struct ms_log_batch batch;
    struct ms_buf file_text, merged_text; /* of one read, not yet written */
    char *read_room;                      /* MS_LOG_READ_MAX bytes */
    struct ms_timestamp now;              /* of what is not yet written */
};

struct stream {
    struct ms_log *log;
    int fd;
    bool is_stderr;
    struct ms_watch watch;
    struct ms_lines lines;
};

struct ms_log {
    struct ms_logs *logs;
    struct ms_log_source from;
    char *cluster, *prefix;
    struct ms_log_file file;
    struct ms_tail tail;
    struct stream stream[2];
    bool told_full;
};

/* ---- the session's --------------------------------------------------------------- */

struct ms_logs *ms_logs_create(struct ms_loop *loop,
                               const char *dir,
                               const char *node,
                               const struct ms_log_batch_ops *ops,
                               void *arg)
{
    struct ms_logs *logs = calloc(1, sizeof *logs);
    char path[PATH_MAX];

    if (!logs)
        return NULL;
    logs->loop = loop;
    logs->dir = strdup(dir);
    logs->node = strdup(node);
    logs->read_room = malloc(MS_LOG_READ_MAX);
    snprintf(path, sizeof path, "%s/merged.log", dir);
    if (!logs->dir || !logs->node || !logs->read_room ||
        ms_log_file_open(&logs->merged, path, MS_LOG_FILE_MAX) < 0 ||
        ms_log_batch_init(&logs->batch, loop, ops, arg) < 0) {
        ms_logs_destroy(logs);
        return NULL;
    }
    return logs;
}

void ms_logs_destroy(struct ms_logs *logs)
{
    if (!logs)
        return;
    ms_log_batch_finish(&logs->batch);
    ms_log_file_close(&logs->merged);
    ms_buf_finish(&logs->file_text);
    ms_buf_finish(&logs->merged_text);
    free(logs->read_room);
    free(logs->dir);
    free(logs->node);
    free(logs);
}

void ms_logs_flush(struct ms_logs *logs)
{
    ms_log_batch_flush(&logs->batch);
}

/* ---- lines out ------------------------------------------------------------------- */

static void tell_full(struct ms_log *log, int code)
{
    char text[512];

    if (log->told_full)
        return;
    log->told_full = true;
    snprintf(text,
             sizeof text,
             "[muster] log file %s is full (%s): %" PRIu64 " bytes lost so far",
             log->file.path,
             strerrordesc_np(-code),
             log->file.lost);
    ms_log_batch_add(&log->logs->batch, &log->from, true, text, strlen(text));
}

static void write_out(struct ms_log *log)
{
    struct ms_logs *logs = log->logs;
    int rc = 0;

    if (logs->file_text.len)
        rc = ms_log_file_write(&log->file, logs->file_text.data, logs->file_text.len);
    if (logs->merged_text.len)
        ms_log_file_write(&logs->merged, logs->merged_text.data, logs->merged_text.len);
    if (rc < 0)
        tell_full(log, rc);
    else if (logs->file_text.len)
        log->told_full = false;
    ms_log_buf_reset(&logs->file_text);
    ms_log_buf_reset(&logs->merged_text);
}

/* A line of what is written next, all of it or nothing. They all have the same time, which is
 * before the first; also before one that has its own, which would be taken for ours. */
static void add_text(struct ms_buf *b,
                     const struct ms_timestamp *time,
                     const char *prefix,
                     const char *text,
                     size_t len)
{
    size_t prefix_len = strlen(prefix), time_len = MS_TIMESTAMP_LEN + 1;
    int64_t own;
    uint8_t *at;

    if (b->len && (prefix_len || !ms_timestamp_read(text, len, &own)))
        time_len = 0;
    if (ms_buf_reserve(b, time_len + prefix_len + len + 1) < 0)
        return;
    at = mempcpy(b->data + b->len, time->text, time_len);
    at = mempcpy(mempcpy(at, prefix, prefix_len), text, len);
    *at++ = '\n';
    b->len = (size_t)(at - b->data);
}

static void add_line(struct ms_log *log, bool is_stderr, const char *text, size_t len)
{
    struct ms_logs *logs = log->logs;

    if (logs->merged_text.len > MS_LOG_READ_MAX)
        write_out(log);
    add_text(&logs->file_text, &logs->now, "", text, len);
    add_text(&logs->merged_text, &logs->now, log->prefix, text, len);
    ms_tail_add(&log->tail, text, len);
    ms_log_batch_add(&logs->batch, &log->from, is_stderr, text, len);
}

static void on_line(void *arg, const char *text, size_t len)
{
    struct stream *s = arg;

    add_line(s->log, s->is_stderr, text, len);
}

void ms_log_note(struct ms_log *log, const char *fmt, ...)
{
    char text[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    ms_timestamp_set(&log->logs->now, ms_wall_ns());
    add_line(log, true, text, strlen(text));
    write_out(log);
}

/* ---- bytes in -------------------------------------------------------------------- */

/* Nothing more comes from here: the unfinished line, and the end of the descriptor. */
static void stream_end(struct stream *s)
{
    if (s->fd < 0)
        return;
    ms_watch_finish(&s->watch);
    ms_fd_close(&s->fd);
    ms_timestamp_set(&s->log->logs->now, ms_wall_ns());
    ms_lines_end(&s->lines, on_line, s);
    write_out(s->log);
}

/* One read. The bytes, 0 when there are none now, or -EPIPE behind the end. */
static ssize_t stream_read(struct stream *s)
{
    struct ms_logs *logs = s->log->logs;
    ssize_t n;

    do
        n = read(s->fd, logs->read_room, MS_LOG_READ_MAX);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN)
        return 0;
    if (n <= 0)
        return -EPIPE;
    ms_timestamp_set(&logs->now, ms_wall_ns());
    ms_lines_feed(&s->lines, logs->read_room, (size_t)n, ms_now_ns(), on_line, s);
    write_out(s->log);
    return n;
}

static void on_readable(void *arg, unsigned events)
{
    struct stream *s = arg;

    (void)events;
    if (stream_read(s) < 0)
        stream_end(s);
}

static void stream_drain(struct stream *s)
{
    size_t total = 0;
    ssize_t n = 1;

    while (s->fd >= 0 && n > 0 && total < MS_LOG_DRAIN_MAX) {
        n = stream_read(s);
        total += n > 0 ? (size_t)n : 0;
    }
    stream_end(s);
}

void ms_log_drain(struct ms_log *log)
{
    stream_drain(&log->stream[0]);
    stream_drain(&log->stream[1]);
}

/* ---- a worker's ------------------------------------------------------------------ */

static int open_streams(struct ms_log *log)
{
    int rc = 0;

    for (int i = 0; i < 2 && rc == 0; i++)
        rc = ms_watch_init(&log->stream[i].watch,
                           log->logs->loop,
                           log->stream[i].fd,
                           MS_READ,
                           on_readable,
                           &log->stream[i]);
    return rc;
}

static int open_file(struct ms_log *log)
{
    const struct ms_log_source *from = &log->from;
    char path[PATH_MAX], driver[24] = "";

    if (from->driver)
        snprintf(driver, sizeof driver, ".%016" PRIx64, from->driver);
    log->cluster = strdup(from->cluster);
    if (asprintf(
            &log->prefix, "%s/%u@%s: ", from->cluster, from->rank, log->logs->node) < 0)
        log->prefix = NULL;
    snprintf(path,
             sizeof path,
             "%s/%s-%u%s.log",
             log->logs->dir,
             from->cluster,
             from->rank,
             driver);
    log->from.cluster = log->cluster;
    return log->cluster && log->prefix
               ? ms_log_file_open(&log->file, path, MS_LOG_FILE_MAX)
               : -ENOMEM;
}

struct ms_log *ms_log_open(struct ms_logs *logs,
                           const struct ms_log_source *from,
                           int out_fd,
                           int err_fd)
{
    struct ms_log *log = calloc(1, sizeof *log);

    if (!log) {
        close(out_fd);
        close(err_fd);
        return NULL;
    }
    log->logs = logs;
    log->from = *from;
    for (int i = 0; i < 2; i++) {
        log->stream[i] =
            (struct stream){.log = log, .fd = i ? err_fd : out_fd, .is_stderr = i == 1};
        ms_lines_init(&log->stream[i].lines);
    }
    if (open_file(log) < 0 || open_streams(log) < 0) {
        ms_log_close(log);
        return NULL;
    }
    return log;
}

void ms_log_close(struct ms_log *log)
{
    if (!log)
        return;
    for (int i = 0; i < 2; i++) {
        ms_watch_finish(&log->stream[i].watch);
        ms_fd_close(&log->stream[i].fd);
        ms_lines_finish(&log->stream[i].lines);
    }
    ms_log_batch_flush(&log->logs->batch); /* its lines point at us */
    ms_log_file_close(&log->file);
    ms_tail_finish(&log->tail);
    free(log->cluster);
    free(log->prefix);
    free(log);
}

const char *ms_log_path(const struct ms_log *log)
{
    return log->file.path;
}

struct ms_tail *ms_log_tail(struct ms_log *log)
{
    return &log->tail;
}
