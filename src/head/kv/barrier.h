/* barrier.h - the ranks of a cluster wait for each other
 *
 * A barrier is there while a rank waits at it. A rank that has waited long enough leaves with
 * the names of the missing; a rank that dies ends the waiting of all. In head->barriers.
 * The head's thread.
 */
#ifndef MS_HEAD_KV_BARRIER_H
#define MS_HEAD_KV_BARRIER_H

struct ms_head;
struct ms_head_op;
struct ms_slot;

/* This worker has died: the waiting of its cluster ends. */
void ms_head_barriers_lose(struct ms_head *h, const struct ms_slot *slot);
void ms_head_barriers_finish(struct ms_head *h);

#endif
