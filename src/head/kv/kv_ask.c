/* kv_ask.c - what is asked of the key-value store: put, delete, get */
#include "base/cleanup.h"
#include "base/proto.h"
#include "head/drivers/driver.h"
#include "head/head_impl.h"
#include "head/kv/kv.h"
#include "head/kv/kv_impl.h"
#include "head/ops/op.h"
#include "head/ops/waiting.h"
#include "head/state/persist.h"
#include "wire/frame.h"

#include <errno.h>
#include <string.h>

void ms_kv_entry_message(Muster__KvEntry *m, const struct ms_kv_entry *e)
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

static int find_owner(const struct ms_head_op *op,
                      Muster__KvOwner asked,
                      struct ms_kv_owner *out,
                      struct ms_error *err)
{
    uint64_t uid = ms_driver_worker(op->driver);
    const struct ms_slot *slot = ms_registry_find_uid(&op->head->registry, uid);

    *out = (struct ms_kv_owner){.kind = MS_KV_NONE};
    if (asked == MUSTER__KV_OWNER__KV_NONE)
        return 0;
    if (uid && !slot)
        return ms_error_set(err, -EAGAIN, "the head does not know this worker");
    if (asked == MUSTER__KV_OWNER__KV_WORKER && !uid)
        return ms_error_set(
            err, -EINVAL, "owner 'worker': who puts this is a driver, not a worker");
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

/* Whoever reads a value may unpickle it: HTTP can put nothing that is unpickled. */
static int check_codec(const struct ms_head_op *op, struct ms_error *err)
{
    if (op->asker != MS_ASKER_HTTP || op->wanted->kv_put->codec == MS_CODEC_BYTES)
        return 0;
    return ms_error_set(err, -EINVAL, "by HTTP a value is bytes: its codec is 0");
}

void ms_head_kv_put_run(struct ms_head_op *op)
{
    struct ms_head *h = op->head;
    const Muster__KvPut *asked = op->wanted->kv_put;
    struct ms_kv_put put = {.key = asked->key,
                            .value = asked->value.data,
                            .len = asked->value.len,
                            .codec = asked->codec,
                            .only_if_absent = asked->only_if_absent};
    struct ms_error err = {0};
    int rc;

    if (asked->owner != MUSTER__KV_OWNER__KV_NONE && ms_head_wait_for_worker(op))
        return;
    rc = check_codec(op, &err);
    if (rc == 0)
        rc = find_owner(op, asked->owner, &put.owner, &err);
    if (rc == 0)
        rc = ms_kv_put(&h->kv.store, &put, &err);
    if (rc < 0) {
        ms_head_op_fail_with(op, &err);
        return;
    }
    answer_done(op, rc > 0);
    if (rc > 0)
        ms_head_kv_changed(h);
}

void ms_head_kv_delete_run(struct ms_head_op *op)
{
    struct ms_head *h = op->head;
    bool done = ms_kv_delete(&h->kv.store, op->wanted->kv_delete->key) > 0;

    answer_done(op, done);
    if (done)
        ms_head_kv_changed(h);
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

/* ---- waiting --------------------------------------------------------------------- */

/* True if it was answered. */
static bool try_get(struct ms_head_op *op, bool is_last)
{
    const struct ms_kv_entry *e =
        ms_kv_find(&op->head->kv.store, op->wanted->kv_get->key);
    Muster__KvEntry m;

    if (!e && !is_last)
        return false;
    ms_kv_entry_message(&m, e);
    ms_head_op_succeed_copy(op, &m.base);
    return true;
}

static bool try(struct ms_head_op *op, bool is_last)
{
    return op->wanted->body_case == MUSTER__DRIVER_TO_HEAD__BODY_KV_GET
               ? try_get(op, is_last)
               : ms_head_kv_try_watch(op, is_last);
}

static void on_late(void *arg)
{
    try(arg, true);
}

void ms_head_kv_wait(struct ms_head_op *op, uint64_t wait_ns)
{
    if (try(op, wait_ns == 0))
        return;
    if (ms_head_op_set_deadline(
            op, on_late, wait_ns < MS_KV_WAIT_NS ? (int64_t)wait_ns : MS_KV_WAIT_NS) <
        0)
        ms_head_op_fail(op, -ENOMEM, "out of memory");
    else
        ms_list_add_tail(&op->head->kv.waiting, &op->wait_link);
}

void ms_head_kv_changed(struct ms_head *h)
{
    ms_persist_kv(h);
    ms_list_each (op, &h->kv.waiting, struct ms_head_op, wait_link)
        try(op, false);
}

void ms_head_kv_get_run(struct ms_head_op *op)
{
    struct ms_error err = {0};

    if (ms_kv_check_key(op->wanted->kv_get->key, &err) < 0)
        ms_head_op_fail_with(op, &err);
    else
        ms_head_kv_wait(op, op->wanted->kv_get->wait_ns);
}
