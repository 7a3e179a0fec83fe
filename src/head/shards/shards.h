/* shards.h - queues of data shards that workers take from through the head
 *
 * job/shards.h decides, this carries it out. A shard is its taker's until it says how that
 * ended, or until the taker (a worker, or a driver) has died: then it comes back at once. Who
 * finds nothing to take waits for what comes back. A queue goes with the driver that opened
 * it, unless it is detached.
 *
 * A daemon keeps what is done before it answers (state/persist.h), and what is taken just
 * after: a head that was killed comes back with what is done done, and with the shards that
 * are out still out, but for those of its very last answer: they are given to another worker
 * too, and who took them first is told so at the end of them. The head's
 * thread.
 */
#ifndef MS_HEAD_SHARDS_SHARDS_H
#define MS_HEAD_SHARDS_SHARDS_H

#include <stddef.h>
#include <stdint.h>

struct ms_driver;
struct ms_head;
struct ms_journal;

/* What this worker had comes back. */
void ms_head_shards_lose(struct ms_head *h, uint64_t owner);
/* The same of a driver; and its queues are forgotten. */
void ms_head_shards_driver_gone(struct ms_head *h, uint64_t driver);
/* What this driver waits for fails. */
void ms_head_shards_leave(struct ms_head *h, const struct ms_driver *d);
void ms_head_shards_finish(struct ms_head *h);

/* ---- kept: as in rendezvous/rendezvous.h ---- */

void ms_head_shards_take(struct ms_head *h,
                         const char *name,
                         const uint8_t *data,
                         size_t len);
void ms_head_shards_put_all(struct ms_head *h, struct ms_journal *j);
void ms_head_shards_recover(struct ms_head *h);

#endif
