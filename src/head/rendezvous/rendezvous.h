/* rendezvous.h - processes meet through the head and become a world with ranks
 *
 * job/rendezvous.h decides, this carries it out: operations that join wait here until their
 * member has a rank, a timer wakes it when a round is due, and what a driver or a worker has
 * joined is left when it ends. A rendezvous is made by the first that joins and forgotten
 * when nobody is in it any more, a closed one MS_RENDEZVOUS_CLOSED_NS after that.
 *
 * Each round has keys of its own in the key-value store, "rendezvous/NAME/ROUND/...", for
 * what its members tell each other (torch's Store). They go when the next round completes,
 * and with the rendezvous.
 *
 * A daemon keeps what there is (state/persist.h). The head's thread.
 */
#ifndef MS_HEAD_RENDEZVOUS_RENDEZVOUS_H
#define MS_HEAD_RENDEZVOUS_RENDEZVOUS_H

#include <stddef.h>
#include <stdint.h>

struct ms_head;
struct ms_journal;

/* Members of this worker or this driver are gone. */
void ms_head_rendezvous_lose(struct ms_head *h, uint64_t owner);
void ms_head_rendezvous_finish(struct ms_head *h);

/* ---- kept ---- */

/* What the head before has kept of the one with this name; `data` NULL: it was forgotten. */
void ms_head_rendezvous_take(struct ms_head *h,
                             const char *name,
                             const uint8_t *data,
                             size_t len);
/* Write all that there are. */
void ms_head_rendezvous_put_all(struct ms_head *h, struct ms_journal *j);
/* Members whose driver or worker has not come back are gone. */
void ms_head_rendezvous_recover(struct ms_head *h);

#endif
