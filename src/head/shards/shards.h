/* shards.h - queues of data shards that workers take from through the head
 *
 * job/shards.h decides, this carries it out. A shard is its taker's until it says how that
 * ended, or until the taker (a worker, or a driver) has died: then it comes back at once. Who
 * finds nothing to take waits for what comes back. A queue goes with the driver that opened
 * it, unless it is detached.
 *
 * A daemon keeps each change before it answers (state/persist.h). While its journal cannot be
 * written answers are held (MS_SHARDS_HOLD_NS, or as long as the asker says); then they say so,
 * and no shard is given away. A request that comes again, after a lost answer or to the next
 * head, is told what it was told before; what was given to a request whose link has ended before
 * it said that it knows comes back. The head's thread.
 */
#ifndef MS_HEAD_SHARDS_SHARDS_H
#define MS_HEAD_SHARDS_SHARDS_H

#include "base/error.h"
#include "base/list.h"
#include "io/loop.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ms_head;
struct ms_journal;

/* Changes that are not in the journal yet. */
struct ms_shards_unkept {
    struct ms_list held;   /* operations that are answered when they are */
    struct ms_timer retry; /* begun if has_timer */
    bool has_timer;
    struct ms_error why; /* of the last try */
};

/* What this worker had comes back. */
void ms_head_shards_lose(struct ms_head *h, uint64_t owner);
/* The same of a driver; and its queues are forgotten. */
void ms_head_shards_driver_gone(struct ms_head *h, uint64_t driver);
/* This link has ended, of a process that may live on: what it does not know of comes back. */
void ms_head_shards_link_gone(struct ms_head *h, uint64_t link);
void ms_head_shards_finish(struct ms_head *h);

/* ---- kept: as in rendezvous/rendezvous.h ---- */

void ms_head_shards_take(struct ms_head *h,
                         const char *name,
                         const uint8_t *data,
                         size_t len);
void ms_head_shards_put_all(struct ms_head *h, struct ms_journal *j);
void ms_head_shards_recover(struct ms_head *h);

#endif
