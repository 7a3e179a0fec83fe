/* uplink_workers.c - workers of this driver, so that all of them end when the head is lost
 *
 * A worker is known from the answer that names it (to a creation, a restart, a resize) until
 * its end is told. After a reconnect the head tells ends again, and sends answers that it
 * kept, which may name a worker whose end was told before. So ends that come while such an
 * answer is due are remembered until none is: they are not told twice, and who has ended is
 * not taken for alive.
 */
#include "head/drivers/uplink_impl.h"
#include "head/head_impl.h"
#include "head/ops/op.h"

/* What u->workers has of one. */
static char lives, told;

static bool is_naming(const struct ms_head_op *op)
{
    const struct ms_verb *v = op->request ? ms_verb_find(op->request->body_case) : NULL;

    return v && v->answer == MUSTER__HEAD_TO_DRIVER__BODY_CREATED;
}

static bool may_be_named(const struct ms_uplink *u)
{
    ms_list_each (p, &u->requests.open, struct ms_pending, link)
        if (is_naming(MS_CONTAINER(p, struct ms_head_op, pending)))
            return true;
    return false;
}

/* One that lives, or one whose end was told; 0: there is none. */
static uint64_t find(const struct ms_uplink *u, const char *what)
{
    for (size_t i = 0; i < u->workers.capacity; i++)
        if (u->workers.slots[i].key && u->workers.slots[i].value == what)
            return u->workers.slots[i].key;
    return 0;
}

void ms_uplink_worker_exited(struct ms_uplink *u,
                             uint64_t uid,
                             const Muster__Exit *exit)
{
    struct ms_head *h = u->head;

    if (!uid || ms_map_find(&u->workers, uid) == &told)
        return;
    ms_map_remove(&u->workers, uid);
    if (may_be_named(u))
        (void)ms_map_add(&u->workers, uid, &told);
    if (h->on_exit)
        h->on_exit(h->arg, uid, exit);
}

/* One that its creation names lives, or its end follows. */
static void name(struct ms_uplink *u, const Muster__WorkerStatus *w, bool is_new)
{
    if (is_new || w->state != MUSTER__WORKER_STATE__WORKER_EXITED)
        (void)ms_map_add(&u->workers, w->uid, &lives); /* unless it is there */
    for (size_t i = 0; i < w->n_helpers; i++)
        name(u, w->helpers[i], is_new);
}

void ms_uplink_workers_named(struct ms_uplink *u,
                             const Muster__DriverToHead *wanted,
                             const Muster__ClusterStatus *c)
{
    for (size_t i = 0; i < c->n_workers; i++)
        name(
            u, c->workers[i], wanted->body_case == MUSTER__DRIVER_TO_HEAD__BODY_CREATE);
}

void ms_uplink_forget_ends(struct ms_uplink *u)
{
    uint64_t uid;

    while (u->workers.count && !may_be_named(u) && (uid = find(u, &told)))
        ms_map_remove(&u->workers, uid);
}

void ms_uplink_lose_workers(struct ms_uplink *u, const char *why)
{
    Muster__Exit exit = MUSTER__EXIT__INIT;
    uint64_t uid;

    exit.code = -1;
    exit.detail = (char *)(uintptr_t)why;
    while ((uid = find(u, &lives)))
        ms_uplink_worker_exited(u, uid, &exit);
}
