/* batch.h - lines on their way to the head
 *
 * Lines are collected and sent together: MS_LOG_BATCH_NS after the first of them, or
 * when there are many. If the head does not read as fast as workers print, lines are
 * dropped and counted; nothing here grows beyond its limits, and no timer runs while no
 * worker prints.
 */
#ifndef MS_AGENT_LOGS_BATCH_H
#define MS_AGENT_LOGS_BATCH_H

#include "base/buf.h"
#include "io/loop.h"
#include "proto/muster.pb-c.h"

#include <stdbool.h>

struct ms_log_batch_ops {
    /* Bytes that the head has not read yet. */
    size_t (*queued)(void *arg);
    /* `lines` is borrowed. */
    void (*send)(void *arg, const Muster__LogLines *lines);
};

/* Who printed. Borrowed by the batch until the next flush. */
struct ms_log_source {
    uint64_t uid, driver;
    const char *cluster;
    uint32_t rank;
    const bool *is_wanted; /* by the head; NULL: always */
};

struct ms_log_batch {
    const struct ms_log_batch_ops *ops; /* NULL: lines are not sent */
    void *arg;
    struct ms_timer timer;
    bool timer_set;
    struct ms_buf text, entries;
    uint64_t dropped;
};

int ms_log_batch_init(struct ms_log_batch *b,
                      struct ms_loop *loop,
                      const struct ms_log_batch_ops *ops,
                      void *arg);
void ms_log_batch_finish(struct ms_log_batch *b);

void ms_log_batch_add(struct ms_log_batch *b,
                      const struct ms_log_source *from,
                      bool is_stderr,
                      const char *text,
                      size_t len);

/* Send what there is, now. */
void ms_log_batch_flush(struct ms_log_batch *b);

/* Empty a buffer; one that a flood has made big is freed. */
void ms_log_buf_reset(struct ms_buf *b);

#endif
