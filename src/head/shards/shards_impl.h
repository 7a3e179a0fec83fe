/* shards_impl.h - what the files of shards.h share: one queue, and whose it is */
#ifndef MS_HEAD_SHARDS_SHARDS_IMPL_H
#define MS_HEAD_SHARDS_SHARDS_IMPL_H

#include "base/limits.h"
#include "base/list.h"
#include "head/shards/shards.h"
#include "job/shards.h"

#include <stdbool.h>

#define MS_SHARDS_TOLD_MAX                                                             \
    ((size_t)16) /* failed shards in one status, or one event each */

struct ms_head_op;

struct ms_head_shards {
    struct ms_list link; /* head->shards */
    struct ms_head *head;
    char name[MS_NAME_MAX + 1];
    struct ms_shard_queue q;
    uint64_t driver; /* or job, with which it goes */
    bool is_detached;
    struct ms_list takes; /* operations that wait for a shard */
};

/* NULL: there is none. */
struct ms_head_shards *ms_head_shards_find(const struct ms_head *h, const char *name);
/* Its `q` is the caller's to set. NULL: out of memory, or there are too many. */
struct ms_head_shards *ms_head_shards_create(struct ms_head *h, const char *name);
/* The job of the queue is told of shards that were set aside since there were `known`. */
void ms_head_shards_note(const struct ms_head_shards *s, size_t known);
/* It is kept, and who waits may find something. */
void ms_head_shards_changed(struct ms_head_shards *s);
/* With whom queues go that the asker opens: its job, or its driver. `is_detached`: they stay
 * without it. 0, or -EAGAIN with the reason in op->error. */
int ms_head_shards_owner(struct ms_head_op *op, uint64_t *driver, bool *is_detached);

#endif
