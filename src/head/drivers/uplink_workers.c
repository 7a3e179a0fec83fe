/* uplink_workers.c - workers of this driver, so that it hears of each one's end once
 *
 * A worker is known from the answer that names it (to a creation, a restart, a resize) until
 * its end is told. The head tells ends again after a reconnect, and an answer that was kept
 * meanwhile may name a worker whose end has come first. So ends that come while such an
 * answer is due are remembered until none is.
 */
#include "base/proto.h"
#include "head/drivers/uplink_impl.h"
#include "head/head_impl.h"
#include "head/ops/op.h"

/* What u->workers has of one: this, or its Exit, to be told when it is named. */
static char lives, told;

static bool is_named_by(const struct ms_head_op *op)
{
    const struct ms_verb *v = op->wanted ? ms_verb_find(op->wanted->body_case) : NULL;

    return v && v->answer == MUSTER__HEAD_TO_DRIVER__BODY_CREATED;
}

static bool may_be_named(const struct ms_uplink *u)
{
    ms_list_each (p, &u->requests.open, struct ms_pending, link)
        if (is_named_by(MS_CONTAINER(p, struct ms_head_op, request)))
            return true;
    return false;
}

static void tell(struct ms_uplink *u, uint64_t uid, const Muster__Exit *exit)
{
    if (u->head->on_exit)
        u->head->on_exit(u->head->arg, uid, exit);
}

static void entry_free(void *entry)
{
    if (entry && entry != &lives && entry != &told)
        muster__exit__free_unpacked(entry, NULL);
}

static void set(struct ms_uplink *u, uint64_t uid, void *entry)
{
    entry_free(ms_map_remove(&u->workers, uid));
    if (entry && ms_map_add(&u->workers, uid, entry) < 0)
        entry_free(entry);
}

/* Any of them that lives, or does not; 0: none. */
static uint64_t find(const struct ms_uplink *u, bool is_alive)
{
    for (size_t i = 0; i < u->workers.capacity; i++)
        if (u->workers.slots[i].key &&
            (u->workers.slots[i].value == &lives) == is_alive)
            return u->workers.slots[i].key;
    return 0;
}

void ms_uplink_worker_exited(struct ms_uplink *u,
                             uint64_t uid,
                             const Muster__Exit *exit)
{
    void *entry = ms_map_find(&u->workers, uid);
    bool is_kept = may_be_named(u);

    if (entry == &lives) {
        set(u, uid, is_kept ? &told : NULL);
        tell(u, uid, exit);
    } else if (!entry && is_kept) {
        set(u, uid, ms_proto_copy(&exit->base));
    }
}

void ms_uplink_worker_asked(struct ms_uplink *u, uint64_t uid, const Muster__Exit *exit)
{
    if (ms_map_find(&u->workers, uid) == &lives)
        ms_uplink_worker_exited(u, uid, exit);
    else
        tell(u, uid, exit);
}

/* `is_new`: by its creation, so that its end was not told before. */
static void name(struct ms_uplink *u, const Muster__WorkerStatus *w, bool is_new)
{
    void *entry = ms_map_find(&u->workers, w->uid);

    if (!entry && (is_new || w->state != MUSTER__WORKER_STATE__WORKER_EXITED)) {
        set(u, w->uid, &lives); /* or its end follows */
    } else if (entry && entry != &lives && entry != &told) {
        tell(u, w->uid, entry);
        set(u, w->uid, &told);
    }
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

    while (u->workers.count && !may_be_named(u) && (uid = find(u, false)))
        set(u, uid, NULL);
}

void ms_uplink_lose_workers(struct ms_uplink *u, const char *why)
{
    Muster__Exit exit = MUSTER__EXIT__INIT;
    uint64_t uid;

    exit.code = -1;
    exit.detail = (char *)(uintptr_t)why;
    while ((uid = find(u, true)))
        ms_uplink_worker_exited(u, uid, &exit);
}
