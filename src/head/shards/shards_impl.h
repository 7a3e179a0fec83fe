/* shards_impl.h - what the files of shards.h share: one queue, and whose it is
 *
 * shards.c  queues: opened, changed, ended with their owners
 * lease.c   shards: taken, and ended by who took them
 * kept.c    the journal, answers that wait for it, and what a head that is started again finds
 * saved.c   positions of all queues of a job
 * notes.c   events of the job
 */
#ifndef MS_HEAD_SHARDS_SHARDS_IMPL_H
#define MS_HEAD_SHARDS_SHARDS_IMPL_H

#include "base/limits.h"
#include "base/list.h"
#include "head/shards/shards.h"
#include "job/shards.h"
#include "proto/muster.pb-c.h"

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
    bool is_unkept;       /* it has changed since it was written */
    struct ms_list takes; /* operations that wait for a shard */
};

/* NULL: there is none. */
struct ms_head_shards *ms_head_shards_find(const struct ms_head *h, const char *name);
/* The same; NULL: -ENOENT is in op->error. */
struct ms_head_shards *ms_head_shards_find_named(struct ms_head_op *op,
                                                 const char *name);
/* Its `q` is the caller's to set. NULL: out of memory, or there are too many. */
struct ms_head_shards *ms_head_shards_create(struct ms_head *h, const char *name);
/* The job of the queue is told of shards that were set aside since there were `known`. */
void ms_head_shards_note(const struct ms_head_shards *s, size_t known);
/* Without a word to the journal. */
void ms_head_shards_destroy(struct ms_head_shards *s);
/* Who waits for it fails, and the journal forgets it. */
void ms_head_shards_forget(struct ms_head_shards *s);
/* A message about it; NULL: out of memory. */
Muster__ShardsStatus *ms_head_shards_status(const struct ms_head_shards *s,
                                            bool with_position);

/* ---- kept.c ---- */

/* It has changed: 0 when that is in the journal, else why it is not; then it is tried again. */
int ms_head_shards_keep(struct ms_head_shards *s);
/* The same of all that are marked with is_unkept, all or none. */
int ms_head_shards_keep_all(struct ms_head *h);
/* It is kept, and who waits may find something. */
void ms_head_shards_changed(struct ms_head_shards *s);
/* Answer with the message, which is taken (NULL: out of memory), when all changes are in the
 * journal. If they are not after `wait_ns` a TakeShards gets none, an EndShard is told so, and
 * others fail. */
void ms_head_shards_answer(struct ms_head_op *op, ProtobufCMessage *m, int64_t wait_ns);
/* Who has what this request takes: a worker, or a driver. */
uint64_t ms_head_shards_taker(const struct ms_head_op *op);
/* With whom queues go that the asker opens: its job, or its driver. `is_detached`: they stay
 * without it. 0, or -EAGAIN with the reason in op->error. */
int ms_head_shards_owner(struct ms_head_op *op, uint64_t *driver, bool *is_detached);

#endif
