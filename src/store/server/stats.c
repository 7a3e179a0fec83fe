/* stats.c - what a store has, and who holds the most of it */
#include "store/server/spill.h"

#include "base/clock.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { HOLDERS_MAX = 16, NAMED_MAX = 3 }; /* of one object; of a full store */

/* ---- the messages ---------------------------------------------------------------- */

static int add_holder(Muster__StoredStatus *m, const struct ms_hold *hold)
{
    Muster__HolderStatus *h = calloc(1, sizeof *h);

    if (!h)
        return -1;
    muster__holder_status__init(h);
    h->name = strdup(hold->holder->name);
    h->pid = hold->holder->pid;
    h->count = hold->count;
    h->since_ns = (uint64_t)(ms_now_ns() - hold->since_ns);
    m->holders[m->n_holders++] = h;
    return h->name ? 0 : -1;
}

/* NULL: out of memory. */
static Muster__StoredStatus *object_status(const struct ms_object *o)
{
    Muster__StoredStatus *m = calloc(1, sizeof *m);
    size_t holds = 0;

    if (!m)
        return NULL;
    muster__stored_status__init(m);
    m->node = o->node;
    m->id = o->id;
    m->len = o->len;
    m->age_ns = (uint64_t)(ms_now_ns() - o->made_ns);
    m->is_replica = o->is_replica;
    m->has_bytes = o->is_ready;
    m->is_spilled = o->spilled != NULL;
    m->site = strdup(o->site);
    ms_list_each (hold, &o->holds, struct ms_hold, of_object)
        holds++;
    m->holders = calloc(holds + 1, sizeof *m->holders);
    if (!m->site || !m->holders)
        goto fail;
    ms_list_each (hold, &o->holds, struct ms_hold, of_object)
        if (m->n_holders < HOLDERS_MAX && add_holder(m, hold) < 0)
            goto fail;
    return m;
fail:
    muster__stored_status__free_unpacked(m, NULL);
    return NULL;
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
static int add_objects(Muster__StoreStats *m, const struct ms_table *t, size_t most)
{
    const struct ms_object **all = calloc(t->objects.count + 1, sizeof(*all));
    size_t count = 0;

    if (!all)
        return -1;
    ms_list_each (o, &t->all, struct ms_object, link)
        all[count++] = o;
    ms_list_each (o, &t->unheld, struct ms_object, link)
        all[count++] = o;
    qsort(all, count, sizeof(*all), compare);
    while (m->n_objects < count && m->n_objects < most) {
        m->objects[m->n_objects] = object_status(all[m->n_objects]);
        if (!m->objects[m->n_objects])
            break;
        m->n_objects++;
    }
    free(all);
    return m->n_objects == (count < most ? count : most) ? 0 : -1;
}

Muster__StoreStats *ms_store_stats(struct ms_store *s, size_t objects_max)
{
    Muster__StoreStats *m = calloc(1, sizeof *m);

    if (!m)
        return NULL;
    muster__store_stats__init(m);
    m->node = s->table.node;
    m->limit = s->table.space->limit;
    m->used = s->table.space->used;
    m->committed = s->table.space->committed;
    m->object_count = s->table.objects.count;
    m->holder_count = s->table.holders.count;
    m->allocated = s->table.allocated;
    m->received = s->received;
    m->sent = s->sent;
    m->node_name = strdup(s->node_name);
    m->objects = calloc(objects_max + 1, sizeof *m->objects);
    if (!m->node_name || !m->objects || ms_spill_stats(s, m) < 0 ||
        (objects_max && add_objects(m, &s->table, objects_max) < 0)) {
        muster__store_stats__free_unpacked(m, NULL);
        return NULL;
    }
    return m;
}

/* ---- a full store ---------------------------------------------------------------- */

static void print_bytes(struct ms_buf *out, uint64_t bytes)
{
    if (bytes >= (uint64_t)1 << 30)
        ms_buf_printf(out, "%.1f GiB", (double)bytes / (double)(1 << 30));
    else if (bytes >= (uint64_t)1 << 20)
        ms_buf_printf(out, "%.1f MiB", (double)bytes / (double)(1 << 20));
    else
        ms_buf_printf(out, "%" PRIu64 " bytes", bytes);
}

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

    ms_buf_printf(out, "the store is full: ");
    print_bytes(out, len);
    ms_buf_printf(out, " wanted, ");
    print_bytes(out, t->space->used);
    ms_buf_printf(out, " of ");
    print_bytes(out, t->space->limit);
    ms_buf_printf(out, " used%s%s", besides ? ", " : "", besides ? besides : "");
    for (int i = 0; i < NAMED_MAX && (h = next_largest(t, h)); i++) {
        uint64_t bytes = ms_holder_bytes(h, &n);

        ms_buf_printf(out, "%s%s holds ", i ? ", " : "; ", h->name);
        print_bytes(out, bytes);
        ms_buf_printf(out, " in %zu", n);
    }
    ms_buf_printf(out, "; drop refs, or raise store_limit");
}
