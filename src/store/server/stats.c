/* stats.c - what a store has, and who holds the most of it */
#include "store/server/spill.h"

#include "base/clock.h"
#include "base/proto.h"
#include "resource/amount.h"

#include <stdlib.h>

enum { HOLDERS_MAX = 16, NAMED_MAX = 3 }; /* of one object; of a full store */

/* ---- the messages ---------------------------------------------------------------- */

static bool add_holder(Muster__StoredStatus *m, const struct ms_hold *hold)
{
    Muster__HolderStatus *h =
        (Muster__HolderStatus *)ms_proto_create(&muster__holder_status__descriptor);

    if (!ms_proto_append(&m->holders, &m->n_holders, h))
        return false;
    h->pid = hold->holder->pid;
    h->count = hold->count;
    h->since_ns = (uint64_t)(ms_now_ns() - hold->since_ns);
    return ms_proto_set_text(&h->name, hold->holder->name);
}

static bool add_object(Muster__StoreStats *stats, const struct ms_object *o)
{
    Muster__StoredStatus *m =
        (Muster__StoredStatus *)ms_proto_create(&muster__stored_status__descriptor);
    bool is_done = ms_proto_append(&stats->objects, &stats->n_objects, m) &&
                   ms_proto_set_text(&m->site, o->site);

    if (!is_done)
        return false;
    m->node = o->node;
    m->id = o->id;
    m->len = o->len;
    m->age_ns = (uint64_t)(ms_now_ns() - o->made_ns);
    m->is_copy = o->is_copy;
    m->has_bytes = o->is_ready;
    m->is_spilled = o->spilled != NULL;
    ms_list_each (hold, &o->holds, struct ms_hold, of_object)
        is_done = is_done && (m->n_holders == HOLDERS_MAX || add_holder(m, hold));
    return is_done;
}

static int compare(const void *a, const void *b)
{
    const struct ms_object *x = *(const struct ms_object *const *)a;
    const struct ms_object *y = *(const struct ms_object *const *)b;

    if (x->len != y->len)
        return x->len > y->len ? -1 : 1;
    return x->made_ns < y->made_ns ? -1 : x->made_ns > y->made_ns;
}

/* The largest, and of these the oldest, first. */
static bool add_objects(Muster__StoreStats *m, const struct ms_table *t, size_t most)
{
    const struct ms_object **all = calloc(t->objects.count + 1, sizeof(*all));
    size_t count = 0;
    bool is_done = all;

    if (!all)
        return false;
    ms_list_each (o, &t->all, struct ms_object, link)
        all[count++] = o;
    ms_list_each (o, &t->unheld, struct ms_object, link)
        all[count++] = o;
    qsort(all, count, sizeof(*all), compare);
    for (size_t i = 0; is_done && i < count && i < most; i++)
        is_done = add_object(m, all[i]);
    free(all);
    return is_done;
}

Muster__StoreStats *ms_store_stats(struct ms_store *s, size_t objects_max)
{
    Muster__StoreStats *m =
        (Muster__StoreStats *)ms_proto_create(&muster__store_stats__descriptor);

    if (!m)
        return NULL;
    m->node = s->table.node;
    m->limit = s->table.space->limit;
    m->used = s->table.space->used;
    m->committed = s->table.space->committed;
    m->object_count = s->table.objects.count;
    m->holder_count = s->table.holders.count;
    m->allocated = s->table.allocated;
    m->received = s->received;
    m->sent = s->sent;
    m->spilled = s->spill.used;
    m->spill_limit = s->spill.limit;
    if (ms_proto_set_text(&m->node_name, s->node_name) &&
        ms_proto_set_text(&m->spill_dir, s->spill.dir) &&
        (!objects_max || add_objects(m, &s->table, objects_max)))
        return m;
    muster__store_stats__free_unpacked(m, NULL);
    return NULL;
}

/* ---- a full store ---------------------------------------------------------------- */

/* The one with the most bytes below `below`, in the order of (bytes, id). */
static const struct ms_holder *next_largest(const struct ms_table *t,
                                            const struct ms_holder *below)
{
    const struct ms_holder *best = NULL;
    uint64_t best_bytes = 0, limit = UINT64_MAX;
    size_t n;

    if (below)
        limit = ms_holder_bytes(below, &n);
    ms_list_each (h, &t->holder_list, struct ms_holder, link) {
        uint64_t bytes = ms_holder_bytes(h, &n);

        if (bytes > limit || (below && bytes == limit && h->id >= below->id))
            continue;
        if (!best || bytes > best_bytes || (bytes == best_bytes && h->id > best->id)) {
            best = h;
            best_bytes = bytes;
        }
    }
    return best_bytes ? best : NULL;
}

void ms_table_explain_full(const struct ms_table *t,
                           uint64_t len,
                           const char *besides,
                           struct ms_buf *out)
{
    const struct ms_holder *h = NULL;
    size_t n;

    ms_buf_printf(out,
                  "the store is full: %s wanted, %s of %s used%s%s",
                  ms_amount_bytes(len).text,
                  ms_amount_bytes(t->space->used).text,
                  ms_amount_bytes(t->space->limit).text,
                  besides ? ", " : "",
                  besides ? besides : "");
    for (int i = 0; i < NAMED_MAX && (h = next_largest(t, h)); i++) {
        uint64_t bytes = ms_holder_bytes(h, &n);

        ms_buf_printf(out,
                      "%s%s holds %s in %zu",
                      i ? ", " : "; ",
                      h->name,
                      ms_amount_bytes(bytes).text,
                      n);
    }
    ms_buf_printf(out, "; drop refs, or raise store_limit");
}
