/* place.h - the head's resource manager: who gets what of the nodes
 *
 * The books (resource/books.h) belong to the head, with a lock of their own: in an embedded
 * head a request that can be decided at once is decided on the caller's thread, without a
 * word to the head's. Only what waits is the head's: groups that have a deadline, and
 * operations that wait for a group. Nothing is called while the lock is held.
 */
#ifndef MS_HEAD_PLACE_PLACE_H
#define MS_HEAD_PLACE_PLACE_H

#include "base/list.h"
#include "io/loop.h"
#include "proto/muster.pb-c.h"
#include "resource/books.h"

#include <pthread.h>

struct ms_head;
struct ms_head_op;
struct ms_node;
struct ms_driver;
struct ms_slot;
struct ms_cluster;

struct ms_place {
    pthread_mutex_t lock;
    struct ms_books books; /* under the lock */

    /* the head's thread */
    struct ms_timer timer;
    struct ms_list waits; /* operations that wait for a group */
};

int ms_place_init(struct ms_head *h);
void ms_place_finish(struct ms_head *h);

/* Something has changed for those who wait: look on the head's thread. Any thread. */
void ms_place_kick(struct ms_head *h);

void ms_place_node_came(struct ms_head *h, const struct ms_node *n);
void ms_place_node_gone(struct ms_head *h, const struct ms_node *n);
/* A driver has ended: its clusters may live for a while. */
void ms_place_driver_gone(struct ms_head *h, uint64_t driver);

/* A group of the head before, where it was. -EEXIST: it is there; -ENOENT: a node of it is
 * not; -EINVAL, -ENOMEM. */
int ms_place_restore(struct ms_head *h,
                     const Muster__RestoreGroup *m,
                     uint64_t owner,
                     struct ms_error *err);

/* ---- clusters -------------------------------------------------------------------------- */

/* Places for ranks of a cluster. */
struct ms_place_claim {
    const Muster__PlaceCluster *request; /* for the whole cluster */
    const char *cluster;
    uint64_t driver;
    uint32_t first, count; /* of these ranks; 0, 0: of all */
    bool is_more;          /* it has places already */
};
/* They are held for it until ms_place_cluster_gone. 0 and a message; -EEXIST (the name),
 * -EINVAL, -ENOSPC (with a table), -ENOENT, -ENOMEM. */
int ms_place_claim(struct ms_head *h,
                   const struct ms_place_claim *what,
                   Muster__ClusterPlaced **out,
                   struct ms_buf *table,
                   struct ms_error *err);
/* For how many of the ranks from `first` on, `count` at most, there are places now. */
uint32_t ms_place_fits(struct ms_head *h, const struct ms_place_claim *what);
/* Could it be had if nobody else had anything? */
bool ms_place_is_possible(struct ms_head *h, const Muster__ClusterSpec *spec);
/* Its ranks are fewer, or elsewhere: what it holds follows from where they are now. One that
 * stands in the bundles of a group which it has not brought along, or has ranks wider than a
 * node, holds what it had until it has ended. */
void ms_place_settle(struct ms_head *h, const struct ms_cluster *c);
/* It is no more. */
void ms_place_cluster_gone(struct ms_head *h, const char *cluster);
/* A worker of another head's time was found. */
void ms_place_adopt(struct ms_head *h, const struct ms_slot *slot);
/* All workers of a cluster of another head's time that will be found were: bundles which it
 * has brought along are held again; those on nodes that have not come are placed anew. */
void ms_place_recover(struct ms_head *h, const struct ms_cluster *c);
/* Another cluster stands in the bundles that this one has brought along. */
bool ms_place_is_shared(struct ms_head *h, const struct ms_cluster *c);

/* Groups, into a Status. False: out of memory. */
bool ms_place_add_groups(struct ms_head *h, Muster__Status *s);

#endif
