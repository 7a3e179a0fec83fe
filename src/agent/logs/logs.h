/* logs.h - what workers print: to their files, to the merged file, and to the head
 *
 * Each worker's stdout and stderr are pipes that are read on the loop, a bounded amount
 * at a time, so that one that floods starves no other. Each line goes to
 * <dir>/<cluster>-<rank>.log (of a driver with an id: <cluster>-<rank>.<id>.log, so that
 * no two share a file), with the prefix "cluster/rank@node: " to
 * <dir>/merged.log, to the head (batch.h), and the last ones are kept for error reports. In
 * the files the time at which it was read is before a line (base/timestamp.h), unless it is
 * that of the line before it: a flood of lines costs no more for it. A full disk stops no worker: see file.h; the head is told once.
 */
#ifndef MS_AGENT_LOGS_LOGS_H
#define MS_AGENT_LOGS_LOGS_H

#include "agent/logs/batch.h"
#include "agent/logs/lines.h"
#include "base/error.h"
#include "io/loop.h"

struct ms_logs; /* of the session */
struct ms_log;  /* of a worker */

/* `dir` exists; it and `node` are copied. `ops` may be NULL: files only. */
struct ms_logs *ms_logs_create(struct ms_loop *loop,
                               const char *dir,
                               const char *node,
                               const struct ms_log_batch_ops *ops,
                               void *arg);
/* All logs of workers are closed before. */
void ms_logs_destroy(struct ms_logs *logs);
/* Send to the head what has been read so far. */
void ms_logs_flush(struct ms_logs *logs);

/* Read the two pipes (non-blocking) from now on. They are taken over, also on failure.
 * NULL: out of memory. */
struct ms_log *ms_log_open(struct ms_logs *logs,
                           const struct ms_log_source *from,
                           int out_fd,
                           int err_fd);
void ms_log_close(struct ms_log *log);

/* The worker has ended: read what is left in the pipes, give out the unfinished lines
 * and close the pipes, also if another process still holds them. */
void ms_log_drain(struct ms_log *log);

/* A line of our own, as if the worker had printed it on stderr. */
void ms_log_note(struct ms_log *log, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

const char *ms_log_path(const struct ms_log *log);
struct ms_tail *ms_log_tail(struct ms_log *log);

#endif
