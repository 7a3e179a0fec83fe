/* kept_groups.h - placement groups as a head that was started again needs them
 *
 * What was asked, and where the group was. A driver keeps its own (drivers/uplink_ask.c), a
 * daemon those that are detached (state/persist.c). A list belongs to one thread.
 */
#ifndef MS_HEAD_PLACE_KEPT_GROUPS_H
#define MS_HEAD_PLACE_KEPT_GROUPS_H

#include "base/list.h"
#include "proto/muster.pb-c.h"

struct ms_kept_group {
    struct ms_list link;
    bool is_open;                  /* of the head before, and not placed again yet */
    Muster__RestoreGroup *message; /* with both of its parts */
};

/* The group of this status is so now; `group` NULL: it was asked for as before. NULL: it is
 * not known, or out of memory. */
struct ms_kept_group *ms_kept_group_put(struct ms_list *list,
                                        const Muster__PlaceGroup *group,
                                        const Muster__GroupStatus *status);
/* NULL: there is none. */
struct ms_kept_group *ms_kept_group_find(const struct ms_list *list, uint64_t id);
void ms_kept_group_destroy(struct ms_kept_group *k); /* NULL is nothing */
void ms_kept_groups_finish(struct ms_list *list);

#endif
