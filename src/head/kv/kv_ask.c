/* kv_ask.c - what is asked of the key-value store: put, delete, get, keys, watch */
#include "head/kv/kv_ask.h"
#include "base/proto.h"
#include "head/drivers/driver.h"
#include "head/head_impl.h"
#include "head/kv/kv.h"
#include "head/ops/op.h"
#include "head/state/persist.h"
#include "wire/frame.h"

#include <errno.h>
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
    if (op->asker == MS_ASKER_TOOL || (!op->driver && op->head->is_daemon))
        out->kind = MS_KV_NONE; /* who asked is no driver */
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
    if (rc > 0)
        ms_head_kv_changed(h); /* it is kept before it is answered */
    answer_done(op, rc > 0);
    return 0;
}

int ms_head_kv_delete_run(struct ms_head_op *op)
{
    struct ms_head *h = op->head;
    bool done = ms_kv_delete(&h->kv.store, op->request->kv_delete->key) > 0;

    if (done)
        ms_head_kv_changed(h);
    answer_done(op, done);
    return 0;
}

int ms_head_kv_add_run(struct ms_head_op *op)
{
    const Muster__KvAdd *asked = op->request->kv_add;
    Muster__KvNumber m = MUSTER__KV_NUMBER__INIT;
    int rc =
        ms_kv_add(&op->head->kv.store, asked->key, asked->amount, &m.value, &op->error);

    if (rc < 0)
        return rc;
    ms_head_kv_changed(op->head);
    ms_head_op_succeed_copy(op, &m.base);
    return 0;
}

int ms_head_kv_compare_set_run(struct ms_head_op *op)
{
    struct ms_kv *kv = &op->head->kv.store;
    const Muster__KvCompareSet *asked = op->request->kv_compare_set;
    struct ms_kv_put put = {.key = asked->key,
                            .value = asked->value.data,
                            .len = asked->value.len,
                            .codec = MS_CODEC_BYTES,
                            .owner = {.kind = MS_KV_NONE}};
    int rc = ms_kv_compare_set(
        kv, &put, asked->expected.data, asked->expected.len, &op->error);
    Muster__KvEntry m;

    if (rc < 0)
        return rc;
    if (rc > 0)
        ms_head_kv_changed(op->head);
    entry_message(&m, ms_kv_find(kv, asked->key));
    ms_head_op_succeed_copy(op, &m.base);
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

/* The answer that is being made. */
struct page {
    Muster__KvEvents *m;
    size_t bytes;
};

/* 0, -E2BIG: it is full, -ENOMEM. */
static int add(struct page *p, const struct ms_kv_entry *e, bool with_value)
{
    Muster__KvEntry m;

    entry_message(&m, e);
    if (!with_value)
        m.value = (ProtobufCBinaryData){0};
    p->bytes += muster__kv_entry__get_packed_size(&m) + 8;
    if (p->bytes > MS_KV_ANSWER_MAX && p->m->n_entries > 0)
        return -E2BIG;
    return ms_proto_append(&p->m->entries, &p->m->n_entries, ms_proto_copy(&m.base))
               ? 0
               : -ENOMEM;
}

static int page_init(struct page *p, const struct ms_kv *kv, bool is_all)
{
    *p = (struct page){
        .m = (Muster__KvEvents *)ms_proto_create(&muster__kv_events__descriptor)};
    if (!p->m)
        return -ENOMEM;
    p->m->store = kv->id;
    p->m->revision = kv->revision;
    p->m->is_all = is_all;
    return 0;
}

/* All that there is below a prefix. */
static int answer_all(struct ms_head_op *op, const char *prefix, bool with_values)
{
    const struct ms_kv *kv = &op->head->kv.store;
    size_t first, count = ms_kv_range(kv, prefix, &first);
    struct page p;
    int rc = page_init(&p, kv, true);

    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = add(&p, kv->entries[first + i], with_values);
    if (rc == 0) {
        ms_head_op_succeed(op, &p.m->base);
        return 0;
    }
    muster__kv_events__free_unpacked(p.m, NULL);
    if (rc == -ENOMEM)
        return rc;
    return ms_error_set(&op->error,
                        -E2BIG,
                        "the %zu entries below '%.64s' take more than %zu bytes: ask "
                        "for a longer prefix",
                        count,
                        prefix,
                        (size_t)MS_KV_ANSWER_MAX);
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
    struct page p;
    int rc;

    if (w->store != kv->id || !ms_kv_has_changes(kv, w->revision)) {
        ms_head_op_end(op, answer_all(op, w->prefix, true));
        return true;
    }
    change = ms_kv_next_change(kv, w->prefix, w->revision);
    if (!change && !is_last)
        return false;
    rc = page_init(&p, kv, false);
    for (uint64_t upto = w->revision; rc == 0 && change;) {
        rc = add(&p, change, true);
        if (rc == -E2BIG)
            p.m->revision = upto; /* the next question begins there */
        upto = change->revision;
        change = ms_kv_next_change(kv, w->prefix, upto);
    }
    if (rc != -ENOMEM) {
        ms_head_op_succeed(op, &p.m->base);
        return true;
    }
    muster__kv_events__free_unpacked(p.m, NULL);
    ms_head_op_end(op, rc);
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

static bool try_wait(struct ms_head_op *op, bool is_last)
{
    const Muster__KvWait *w = op->request->kv_wait;
    bool has_all = true;

    for (size_t i = 0; has_all && i < w->n_keys; i++)
        has_all = ms_kv_find(&op->head->kv.store, w->keys[i]) != NULL;
    if (!has_all && !is_last)
        return false;
    answer_done(op, has_all);
    return true;
}

int ms_head_kv_wait_run(struct ms_head_op *op)
{
    return wait_for(op, try_wait, op->request->kv_wait->wait_ns);
}
