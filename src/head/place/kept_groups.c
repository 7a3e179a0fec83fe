/* kept_groups.c - what was asked of placement groups and where they are, in a list */
#include "head/place/kept_groups.h"
#include "base/proto.h"

#include <stdlib.h>

struct ms_kept_group *ms_kept_group_find(const struct ms_list *list, uint64_t id)
{
    ms_list_each (k, list, struct ms_kept_group, link)
        if (k->message->status->id == id)
            return k;
    return NULL;
}

void ms_kept_group_destroy(struct ms_kept_group *k)
{
    if (!k)
        return;
    ms_list_remove(&k->link);
    muster__restore_group__free_unpacked(k->message, NULL);
    free(k);
}

void ms_kept_groups_finish(struct ms_list *list)
{
    ms_list_each (k, list, struct ms_kept_group, link)
        ms_kept_group_destroy(k);
}

struct ms_kept_group *ms_kept_group_put(struct ms_list *list,
                                        const Muster__PlaceGroup *group,
                                        const Muster__GroupStatus *status)
{
    struct ms_kept_group *old = ms_kept_group_find(list, status->id), *k;
    Muster__RestoreGroup m = MUSTER__RESTORE_GROUP__INIT;

    m.group =
        old && !group ? old->message->group : (Muster__PlaceGroup *)(uintptr_t)group;
    m.status = (Muster__GroupStatus *)(uintptr_t)status;
    k = m.group ? calloc(1, sizeof *k) : NULL;
    if (!k)
        return NULL;
    ms_list_add_tail(list, &k->link);
    k->message = (Muster__RestoreGroup *)ms_proto_copy(&m.base);
    if (k->message) {
        ms_kept_group_destroy(old);
        return k;
    }
    ms_kept_group_destroy(k);
    return NULL;
}
