/* kv_watch.c - many entries at once: keys, and what has changed */
#include "head/head_impl.h"
#include "head/kv/kv.h"
#include "head/kv/kv_impl.h"
#include "head/ops/op.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The entries of one answer, which are the store's. */
struct page {
    Muster__KvEntry *entries, **pointers;
    size_t count, room;
    size_t bytes;
};

static void page_finish(struct page *p)
{
    free(p->entries);
    free(p->pointers);
    *p = (struct page){0};
}

static int page_init(struct page *p, size_t room)
{
    p->entries = calloc(room + 1, sizeof *p->entries);
    p->pointers = calloc(room + 1, sizeof(Muster__KvEntry *));
    p->room = room;
    if (p->entries && p->pointers)
        return 0;
    page_finish(p);
    return -ENOMEM;
}

/* False: it is full. */
static bool page_add(struct page *p, const struct ms_kv_entry *e, bool with_value)
{
    Muster__KvEntry *m = &p->entries[p->count];

    if (p->count == p->room)
        return false;
    ms_kv_entry_message(m, e);
    if (!with_value)
        m->value = (ProtobufCBinaryData){0};
    p->bytes += muster__kv_entry__get_packed_size(m) + 8;
    if (p->bytes > MS_KV_ANSWER_MAX && p->count > 0)
        return false;
    p->pointers[p->count++] = m;
    return true;
}

static void
answer(struct ms_head_op *op, const struct page *p, uint64_t revision, bool is_all)
{
    Muster__KvEvents m = MUSTER__KV_EVENTS__INIT;

    m.store = op->head->kv.store.id;
    m.revision = revision;
    m.is_all = is_all;
    m.n_entries = p->count;
    m.entries = p->pointers;
    ms_head_op_succeed_copy(op, &m.base);
}

/* All that there is below a prefix. */
static void answer_all(struct ms_head_op *op, const char *prefix, bool with_values)
{
    const struct ms_kv *kv = &op->head->kv.store;
    size_t first, count = ms_kv_range(kv, prefix, &first);
    struct page p = {0};
    size_t i = 0;

    if (page_init(&p, count) < 0) {
        ms_head_op_fail(op, -ENOMEM, "out of memory");
        return;
    }
    while (i < count && page_add(&p, kv->entries[first + i], with_values))
        i++;
    if (i < count)
        ms_head_op_fail(op,
                        -E2BIG,
                        "the %zu entries below '%.64s' take more than %zu bytes: ask "
                        "for a longer prefix",
                        count,
                        prefix,
                        (size_t)MS_KV_ANSWER_MAX);
    else
        answer(op, &p, kv->revision, true);
    page_finish(&p);
}

void ms_head_kv_keys_run(struct ms_head_op *op)
{
    answer_all(op, op->wanted->kv_keys->prefix, false);
}

bool ms_head_kv_try_watch(struct ms_head_op *op, bool is_last)
{
    const Muster__KvWatch *w = op->wanted->kv_watch;
    const struct ms_kv *kv = &op->head->kv.store;
    const struct ms_kv_entry *change;
    struct page p = {0};
    uint64_t upto = w->revision;

    if (w->store != kv->id || !ms_kv_has_changes(kv, w->revision)) {
        answer_all(op, w->prefix, true);
        return true;
    }
    change = ms_kv_next_change(kv, w->prefix, upto);
    if (!change && !is_last)
        return false;
    if (page_init(&p, change ? MS_KV_HISTORY_MAX : 0) < 0) {
        ms_head_op_fail(op, -ENOMEM, "out of memory");
        return true;
    }
    while (change && page_add(&p, change, true)) {
        upto = change->revision;
        change = ms_kv_next_change(kv, w->prefix, upto);
    }
    answer(op, &p, change ? upto : kv->revision, false);
    page_finish(&p);
    return true;
}

void ms_head_kv_watch_run(struct ms_head_op *op)
{
    ms_head_kv_wait(op, op->wanted->kv_watch->wait_ns);
}
