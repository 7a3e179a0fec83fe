/* uplink_groups.c - the placement groups of a driver, for a head that was started again */
#include "base/cleanup.h"
#include "base/proto.h"
#include "head/drivers/uplink_impl.h"

#include <stdlib.h>
#include <string.h>

struct kept {
    struct ms_list link; /* uplink->groups */
    Muster__PlaceGroup *group;
    Muster__GroupStatus *status;
};

static void kept_destroy(struct kept *k)
{
    ms_list_remove(&k->link);
    muster__place_group__free_unpacked(k->group, NULL);
    muster__group_status__free_unpacked(k->status, NULL);
    free(k);
}

void ms_uplink_forget_groups(struct ms_uplink *u)
{
    ms_list_each (k, &u->groups, struct kept, link)
        kept_destroy(k);
}

/* What cannot be kept for want of memory is lost with the head, if that is. */
static void keep(struct ms_uplink *u,
                 const Muster__PlaceGroup *group,
                 const Muster__GroupStatus *status)
{
    struct kept *k = calloc(1, sizeof *k);

    if (!k)
        return;
    ms_list_add_tail(&u->groups, &k->link);
    k->group = (Muster__PlaceGroup *)ms_proto_copy(&group->base);
    k->status = (Muster__GroupStatus *)ms_proto_copy(&status->base);
    if (!k->group || !k->status)
        kept_destroy(k);
}

static void renew(struct ms_uplink *u, const Muster__GroupStatus *status)
{
    Muster__GroupStatus *copy;

    ms_list_each (k, &u->groups, struct kept, link)
        if (k->status->id == status->id &&
            (copy = (Muster__GroupStatus *)ms_proto_copy(&status->base))) {
            muster__group_status__free_unpacked(k->status, NULL);
            k->status = copy;
        }
}

static void forget(struct ms_uplink *u, const Muster__GroupRef *ref)
{
    ms_list_each (k, &u->groups, struct kept, link)
        if (ref->id ? k->status->id == ref->id
                    : strcmp(k->status->name, ref->name) == 0)
            kept_destroy(k);
}

void ms_uplink_note_group(struct ms_uplink *u,
                          const Muster__DriverToHead *wanted,
                          const Muster__HeadToDriver *answer)
{
    bool is_group = answer->body_case == MUSTER__HEAD_TO_DRIVER__BODY_GROUP;

    if (!wanted)
        return;
    if (wanted->body_case == MUSTER__DRIVER_TO_HEAD__BODY_PLACE_GROUP && is_group)
        keep(u, wanted->place_group, answer->group);
    else if (wanted->body_case == MUSTER__DRIVER_TO_HEAD__BODY_WAIT_GROUP && is_group)
        renew(u, answer->group);
    else if (wanted->body_case == MUSTER__DRIVER_TO_HEAD__BODY_REMOVE_GROUP &&
             answer->body_case == MUSTER__HEAD_TO_DRIVER__BODY_DONE)
        forget(u, wanted->remove_group);
}

void ms_uplink_restore_groups(struct ms_uplink *u)
{
    ms_list_each (k, &u->groups, struct kept, link) {
        Muster__RestoreGroup restore = MUSTER__RESTORE_GROUP__INIT;

        restore.group = k->group;
        restore.status = k->status;
        ms_uplink_tell(u, MUSTER__DRIVER_TO_HEAD__BODY_RESTORE_GROUP, &restore);
    }
}
