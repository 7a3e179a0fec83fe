/* kv_ask.c - what is asked of the key-value store: put, delete, get, keys, watch */
#include "head/kv/kv_ask.h"
#include "base/cleanup.h"
#include "base/proto.h"
#include "head/drivers/driver.h"
#include "head/head_impl.h"
#include "head/kv/kv.h"
#include "head/ops/op.h"
#include "head/state/persist.h"
#include "wire/frame.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void entry_message(Muster__KvEntry *m, const struct ms_kv_entry *e)
{
    muster__kv_entry__init(m);
    if (!e)
        return;
    m->key = e->key;
    m->revision = e->revision;
    m->deleted = !e->value;
    if (!e->value)
        return;
    m->value.len = e->value->len;
    m->value.data = e->value->data;
    m->codec = e->value->codec;
}

/* ---- changes --------------------------------------------------------------------- */

static int find_owner(struct ms_head_op *op, struct ms_kv_owner *out)
{
    Muster__KvOwner asked = op->request->kv_put->owner;
    uint64_t uid = ms_driver_worker(op->driver);
    const struct ms_slot *slot = ms_registry_find_uid(&op->head->registry, uid);

    *out = (struct ms_kv_owner){.kind = MS_KV_NONE};
    if (asked == MUSTER__KV_OWNER__KV_NONE)
        return 0;
    if (uid && !slot)
        return ms_error_set(&op->error, -EAGAIN, "the head does not know this worker");
    if (asked == MUSTER__KV_OWNER__KV_WORKER && !uid)
        return ms_error_set(&op->error,
                            -EINVAL,
                            "owner 'worker': who puts this is a driver, not a worker");
    out->kind = MS_KV_DRIVER;
    out->id = uid ? slot->cluster->driver : ms_driver_id(op->driver);
    if (!op->driver && op->head->is_daemon) /* who asked is no driver */
        out->kind = MS_KV_NONE;
    /* the driver of a detached cluster may have ended long ago */
    if (uid && (asked == MUSTER__KV_OWNER__KV_WORKER || slot->cluster->detached))
        *out = (struct ms_kv_owner){.kind = MS_KV_WORKER, .id = uid};
    return 0;
}

static void answer_done(struct ms_head_op *op, bool done)
{
    Muster__KvDone m = MUSTER__KV_DONE__INIT;

    m.done = done;
    m.revision = op->head->kv.store.revision;
    ms_head_op_succeed_copy(op, &m.base);
}

int ms_head_kv_put_run(struct ms_head_op *op)
{
    struct ms_head *h = op->head;
    const Muster__KvPut *asked = op->request->kv_put;
    struct ms_kv_put put = {.key = asked->key,
                            .value = asked->value.data,
                            .len = asked->value.len,
                            .codec = asked->codec,
                            .only_if_absent = asked->only_if_absent};
    int rc = find_owner(op, &put.owner);

    /* a reader may unpickle the value: HTTP can put nothing that is unpickled */
    if (op->asker == MS_ASKER_HTTP && asked->codec != MS_CODEC_BYTES)
        rc = ms_error_set(
            &op->error, -EINVAL, "by HTTP a value is bytes: its codec is 0");
    if (rc == 0)
        rc = ms_kv_put(&h->kv.store, &put, &op->error);
    if (rc < 0)
        return rc;
    answer_done(op, rc > 0);
    if (rc > 0)
        ms_head_kv_changed(h);
    return 0;
}

int ms_head_kv_delete_run(struct ms_head_op *op)
{
    struct ms_head *h = op->head;
    bool done = ms_kv_delete(&h->kv.store, op->request->kv_delete->key) > 0;

    answer_done(op, done);
    if (done)
        ms_head_kv_changed(h);
    return 0;
}

static void drop(struct ms_head *h, enum ms_kv_kind kind, uint64_t id)
{
    if (ms_kv_drop(&h->kv.store, (struct ms_kv_owner){kind, id}))
        ms_head_kv_changed(h);
}

void ms_head_kv_driver_gone(struct ms_head *h, uint64_t driver)
{
    drop(h, MS_KV_DRIVER, driver);
}

void ms_head_kv_worker_gone(struct ms_head *h, uint64_t uid)
{
    drop(h, MS_KV_WORKER, uid);
}

/* ---- many entries ----------------------------------------------------------------- */

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
    entry_message(m, e);
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
static int answer_all(struct ms_head_op *op, const char *prefix, bool with_values)
{
    const struct ms_kv *kv = &op->head->kv.store;
    size_t first, count = ms_kv_range(kv, prefix, &first);
    struct page p = {0};
    size_t i = 0;

    if (page_init(&p, count) < 0)
        return -ENOMEM;
    while (i < count && page_add(&p, kv->entries[first + i], with_values))
        i++;
    if (i < count)
        ms_error_set(&op->error,
                     -E2BIG,
                     "the %zu entries below '%.64s' take more than %zu bytes: ask "
                     "for a longer prefix",
                     count,
                     prefix,
                     (size_t)MS_KV_ANSWER_MAX);
    else
        answer(op, &p, kv->revision, true);
    page_finish(&p);
    return i < count ? -E2BIG : 0;
}

int ms_head_kv_keys_run(struct ms_head_op *op)
{
    return answer_all(op, op->request->kv_keys->prefix, false);
}

static bool try_watch(struct ms_head_op *op, bool is_last)
{
    const Muster__KvWatch *w = op->request->kv_watch;
    const struct ms_kv *kv = &op->head->kv.store;
    const struct ms_kv_entry *change;
    struct page p = {0};
    uint64_t upto = w->revision;

    if (w->store != kv->id || !ms_kv_has_changes(kv, w->revision)) {
        ms_head_op_end(op, answer_all(op, w->prefix, true));
        return true;
    }
    change = ms_kv_next_change(kv, w->prefix, upto);
    if (!change && !is_last)
        return false;
    if (page_init(&p, change ? MS_KV_HISTORY_MAX : 0) < 0) {
        ms_head_op_end(op, -ENOMEM);
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

/* ---- waiting --------------------------------------------------------------------- */

/* True if it was answered. */
static bool try_get(struct ms_head_op *op, bool is_last)
{
    const struct ms_kv_entry *e =
        ms_kv_find(&op->head->kv.store, op->request->kv_get->key);
    Muster__KvEntry m;

    if (!e && !is_last)
        return false;
    entry_message(&m, e);
    ms_head_op_succeed_copy(op, &m.base);
    return true;
}

static int wait_for(struct ms_head_op *op,
                    bool (*retry)(struct ms_head_op *op, bool is_last),
                    uint64_t wait_ns)
{
    return ms_head_op_wait_in(op,
                              &op->head->kv.waiting,
                              retry,
                              wait_ns < MS_KV_WAIT_NS ? (int64_t)wait_ns
                                                      : MS_KV_WAIT_NS);
}

void ms_head_kv_changed(struct ms_head *h)
{
    ms_persist_kv(h);
    ms_head_op_retry_all(&h->kv.waiting);
}

int ms_head_kv_get_run(struct ms_head_op *op)
{
    const Muster__KvGet *get = op->request->kv_get;
    int rc = ms_kv_check_key(get->key, &op->error);

    return rc < 0 ? rc : wait_for(op, try_get, get->wait_ns);
}

int ms_head_kv_watch_run(struct ms_head_op *op)
{
    return wait_for(op, try_watch, op->request->kv_watch->wait_ns);
}
