/* fleet.h - the nodes of a head that an orchestrator lends
 *
 * The orchestrator runs on the head's loop. What is reserved under one key is a lease; it
 * belongs to the driver that asked for it (0: this process) and is given back with it, and
 * all of them with the head. Requests wait until the orchestrator has said what there is:
 * from then on it is watched, so that the end of a piece is never missed.
 *
 * A node is lost when its link ends. What the orchestrator says of that goes into the
 * errors of its workers: it has MS_FLEET_CAUSE_NS to say it. Where it knows first, the node
 * is lost at once. The head's thread, but for open and destroy.
 */
#ifndef MS_HEAD_FLEET_FLEET_H
#define MS_HEAD_FLEET_FLEET_H

#include "base/clock.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MS_FLEET_CAUSE_NS (200 * MS_NS_PER_MS) /* for the cause of an end to be told */
#define MS_FLEET_END_NS   (20 * MS_NS_PER_S)   /* for all to be given back at the end */

#define MS_FLEET_NO_PIECE UINT32_MAX

struct ms_fleet;
struct ms_head;
struct ms_head_lender;
struct ms_head_op;

/* h->fleet; the head listens already. 0, or why not. */
int ms_fleet_open(struct ms_head *h,
                  const struct ms_head_lender *l,
                  struct ms_error *err);
/* One of its own, of a job (jobs/): reservations of the job's key are made there. NULL with
 * the reason. */
struct ms_fleet *ms_fleet_create(struct ms_head *h,
                                 const struct ms_head_lender *l,
                                 struct ms_error *err);
void ms_fleet_destroy(struct ms_fleet *f); /* NULL is nothing */

/* A living piece is on this node. NULL lends nothing. */
bool ms_fleet_lends(const struct ms_fleet *f, const char *node);
/* Give back all that this driver has. */
void ms_fleet_driver_gone(struct ms_head *h, uint64_t driver);
bool ms_fleet_has(const struct ms_fleet *f, uint64_t driver);
/* A described node, in a reservation of whole nodes. */
struct ms_fleet_node {
    bool is_lent;
    bool has_ended;  /* it was lent, and its piece was not given back */
    uint32_t number; /* of the piece */
};
/* All of them, `out` has room for each. False: it cannot be said now, as nothing is held or
 * something of it is being asked for. */
bool ms_fleet_look(const struct ms_fleet *f,
                   const char *key,
                   struct ms_fleet_node *out);
/* Which described node a piece stands for, where names do not say it. */
struct ms_fleet_piece {
    uint32_t number, node;
};
/* All that are known, for the next head; *out is to be freed. The count; 0 also if there is
 * no memory. */
size_t
ms_fleet_pieces(const struct ms_fleet *f, const char *key, struct ms_fleet_piece **out);
/* What the head before knew; once, before anything is asked. 0 or -ENOMEM. */
int ms_fleet_know(struct ms_fleet *f, const struct ms_fleet_piece *all, size_t count);
/* It is lent, or is being asked for. */
bool ms_fleet_is_held(const struct ms_fleet *f, const char *key);
/* It is lent, and those of its nodes that have not ended have joined. */
bool ms_fleet_is_back(const struct ms_fleet *f, const char *key);
/* Lend nothing on this node of ours any more. */
void ms_fleet_avoid(struct ms_fleet *f, const char *node, const char *reason);
/* Find out whether the orchestrator can be asked; ms_head_lender.on_silence says it when
 * that has changed. */
void ms_fleet_probe(struct ms_fleet *f);
/* The head ends: give back all. True when nothing is left; until then ms_head_stop_step is
 * called when that may have changed. */
bool ms_fleet_end(struct ms_fleet *f);

#endif
