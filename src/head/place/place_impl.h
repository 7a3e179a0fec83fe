/* place_impl.h - what the files of place.h share
 *
 * place.c          nodes, deadlines, who waits
 * group.c          groups; group_request.h: as the planner takes them
 * claim.c          clusters: from the plan to the end
 * messages.c       the messages
 */
#ifndef MS_HEAD_PLACE_PLACE_IMPL_H
#define MS_HEAD_PLACE_PLACE_IMPL_H

#include "base/buf.h"
#include "base/error.h"
#include "head/place/place.h"

/* The group that has this id; NULL: there is none, or it ends. Under the lock. */
struct ms_group *ms_place_find(const struct ms_books *b, uint64_t id);

/* The lock, until the end of the scope:
 *     MS_CLEANUP(ms_place_unlock) struct ms_place *place = ms_place_lock(h); */
struct ms_place *ms_place_lock(struct ms_head *h);
void ms_place_unlock(struct ms_place **place);

/* ---- messages, under the lock ---------------------------------------------------------- */

/* NULL: out of memory. */
Muster__GroupStatus *ms_place_group_message(struct ms_books *b,
                                            const struct ms_group *g);
Muster__ClusterPlaced *ms_place_cluster_message(const struct ms_books *b,
                                                const struct ms_layout *l);
/* What the message says; the names are borrowed. */
void ms_place_scope(const Muster__Scope *m, struct ms_scope_request *out);

#endif
