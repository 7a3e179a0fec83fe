/* kept.c - queues in the journal, answers that wait for it, and what the next head finds */
#include "base/name.h"
#include "base/proto.h"
#include "head/drivers/driver.h"
#include "head/head_impl.h"
#include "head/jobs/jobs.h"
#include "head/ops/op.h"
#include "head/shards/shards_impl.h"
#include "head/state/journal.h"
#include "head/state/persist.h"

#include <errno.h>
#include <string.h>

/* ---- writing --------------------------------------------------------------------- */

/* NULL: out of memory. */
static Muster__KeptShards *kept_of(const struct ms_head_shards *s)
{
    Muster__KeptShards *kept = ms_shard_queue_encode(&s->q, false);

    if (kept) {
        kept->driver = s->driver;
        kept->detached = s->is_detached;
    }
    return kept;
}

static int
write_one(const struct ms_head_shards *s, struct ms_journal *j, struct ms_error *err)
{
    Muster__KeptShards *kept = kept_of(s);
    struct ms_buf packed = {0};
    int rc = kept ? ms_proto_pack(&kept->base, &packed) : -ENOMEM;

    if (rc < 0)
        ms_error_set(err, rc, "out of memory");
    else
        rc = ms_journal_write(
            j, MS_PERSIST_SHARDS, s->name, packed.data, packed.len, err);
    ms_buf_finish(&packed);
    muster__kept_shards__free_unpacked(kept, NULL);
    return rc;
}

static int write_all(struct ms_head *h, struct ms_error *err)
{
    struct ms_journal *j = h->persist.journal;
    int rc = ms_journal_begin(j, err);

    if (rc < 0)
        return rc;
    ms_list_each (s, &h->shards, struct ms_head_shards, link)
        if (rc == 0 && s->is_unkept)
            rc = write_one(s, j, err);
    return ms_journal_commit(j, rc, err);
}

static bool are_kept(const struct ms_head *h)
{
    ms_list_each (s, &h->shards, struct ms_head_shards, link)
        if (s->is_unkept)
            return false;
    return true;
}

/* What was given back meanwhile can be taken, too. */
static void on_retry(void *arg)
{
    struct ms_head *h = arg;

    if (!are_kept(h) && ms_head_shards_keep_all(h) < 0)
        return;
    ms_head_op_retry_all(&h->shards_unkept.held);
    ms_list_each (s, &h->shards, struct ms_head_shards, link)
        ms_head_op_retry_all(&s->takes);
}

/* Without a timer the next change tries it. */
static void try_again(struct ms_head *h, int64_t delay_ns)
{
    struct ms_shards_unkept *u = &h->shards_unkept;

    if (!u->has_timer)
        u->has_timer = ms_timer_init(&u->retry, h->loop, on_retry, h) == 0;
    if (u->has_timer)
        ms_timer_set(&u->retry, delay_ns);
}

int ms_head_shards_keep_all(struct ms_head *h)
{
    struct ms_shards_unkept *u = &h->shards_unkept;
    int rc = h->persist.journal ? write_all(h, &u->why) : 0;

    if (rc < 0) {
        try_again(h, MS_SHARDS_RETRY_NS);
        return rc;
    }
    ms_list_each (s, &h->shards, struct ms_head_shards, link)
        s->is_unkept = false;
    if (!ms_list_is_empty(&u->held))
        try_again(h, 0);
    return 0;
}

int ms_head_shards_keep(struct ms_head_shards *s)
{
    s->is_unkept = true;
    return ms_head_shards_keep_all(s->head);
}

void ms_head_shards_changed(struct ms_head_shards *s)
{
    ms_head_shards_keep(s);
    ms_head_op_retry_all(&s->takes);
}

/* ---- answers that wait for it ---------------------------------------------------- */

/* What it was to be given it has not heard of. */
static void take_back(struct ms_head_op *op, Muster__ShardsTaken *m, const char *why)
{
    struct ms_head_shards *s =
        ms_head_shards_find(op->head, op->request->take_shards->name);

    for (size_t i = 0; i < m->n_shards; i++) {
        if (s)
            ms_shard_queue_give_back(
                &s->q, m->shards[i]->lease, ms_head_shards_taker(op));
        muster__shard_range__free_unpacked(m->shards[i], NULL);
    }
    m->n_shards = 0;
    if (s) {
        s->is_unkept = true;
        try_again(op->head, MS_SHARDS_RETRY_NS);
    }
    m->state = MUSTER__SHARDS_STATE__SHARDS_OPEN;
    ms_proto_set_text(&m->not_kept, why);
}

static void say_unkept(struct ms_head_op *op, Muster__ShardsStatus *m, const char *why)
{
    const Muster__EndShard *asked = op->request->end_shard;
    struct ms_head_shards *s = ms_head_shards_find(op->head, asked->name);

    if (s)
        ms_shard_queue_expect_again(&s->q, asked->lease);
    ms_proto_set_text(&m->not_kept, why);
}

static void answer_unkept(struct ms_head_op *op)
{
    const struct ms_error *why = &op->head->shards_unkept.why;
    ProtobufCMessage *m = MS_TAKE(op->data);

    switch (op->request->body_case) {
    case MUSTER__DRIVER_TO_HEAD__BODY_TAKE_SHARDS:
        take_back(op, (Muster__ShardsTaken *)m, why->text);
        break;
    case MUSTER__DRIVER_TO_HEAD__BODY_END_SHARD:
        say_unkept(op, (Muster__ShardsStatus *)m, why->text);
        break;
    default:
        protobuf_c_message_free_unpacked(m, NULL);
        ms_head_op_fail(
            op, why->code, "it is so now, but it is not kept yet: %s", why->text);
        return;
    }
    ms_head_op_succeed(op, m);
}

static bool retry_answer(struct ms_head_op *op, bool is_last)
{
    bool is_kept = are_kept(op->head);

    if (is_kept)
        ms_head_op_succeed(op, MS_TAKE(op->data));
    else if (is_last)
        answer_unkept(op);
    return is_kept || is_last;
}

static void drop_answer(struct ms_head_op *op)
{
    protobuf_c_message_free_unpacked(MS_TAKE(op->data), NULL);
}

void ms_head_shards_answer(struct ms_head_op *op, ProtobufCMessage *m, int64_t wait_ns)
{
    if (!m) {
        ms_head_op_fail(op, -ENOMEM, "out of memory");
        return;
    }
    ms_list_remove(&op->wait_link); /* a TakeShards may have waited for a shard */
    op->data = m;
    op->on_failed = drop_answer;
    if (ms_head_op_wait_in(op, &op->head->shards_unkept.held, retry_answer, wait_ns) <
        0)
        answer_unkept(op);
}

/* ---- reading --------------------------------------------------------------------- */

static void restore(struct ms_head *h, const char *name, const Muster__KeptShards *kept)
{
    struct ms_shard_queue q;
    struct ms_head_shards *s;

    if (ms_name_check(name, "shards", NULL) < 0 ||
        ms_shard_queue_decode(&q, kept, NULL) < 0)
        return;
    s = ms_head_shards_create(h, name);
    if (!s) {
        ms_shard_queue_finish(&q);
        return;
    }
    s->q = q;
    s->driver = kept->driver;
    s->is_detached = kept->detached;
}

void ms_head_shards_take(struct ms_head *h,
                         const char *name,
                         const uint8_t *data,
                         size_t len)
{
    Muster__KeptShards *kept =
        data ? muster__kept_shards__unpack(NULL, len, data) : NULL;
    struct ms_head_shards *s = ms_head_shards_find(h, name);

    if (s)
        ms_head_shards_destroy(s);
    if (kept)
        restore(h, name, kept);
    muster__kept_shards__free_unpacked(kept, NULL);
}

void ms_head_shards_put_all(struct ms_head *h, struct ms_journal *j)
{
    ms_list_each (s, &h->shards, struct ms_head_shards, link) {
        Muster__KeptShards *kept = kept_of(s);

        if (kept)
            ms_persist_put(j, MS_PERSIST_SHARDS, s->name, &kept->base);
        muster__kept_shards__free_unpacked(kept, NULL);
    }
}

/* ---- who has not come back ------------------------------------------------------- */

static bool is_known(const struct ms_head *h, uint64_t owner)
{
    const struct ms_slot *slot = ms_registry_find_uid(&h->registry, owner);

    return ms_driver_find(h, owner) || (slot && ms_slot_is_live(slot));
}

static bool lose_one(struct ms_head_shards *s)
{
    for (size_t i = 0; i < s->q.doing.count; i++)
        if (!is_known(s->head, s->q.doing.at[i].owner))
            return ms_shard_queue_drop(&s->q, s->q.doing.at[i].owner) > 0;
    return false;
}

/* It may not know what it was given. */
static bool leave_one(struct ms_head_shards *s)
{
    for (size_t i = 0; i < s->q.doing.count; i++) {
        const struct ms_shard *shard = &s->q.doing.at[i];

        if (shard->taken.number && !shard->is_told &&
            !ms_driver_find(s->head, shard->taken.link))
            return ms_shard_queue_leave(&s->q, shard->taken.link, true) > 0;
    }
    for (size_t i = 0; i < s->q.ended_count; i++)
        if (!ms_driver_find(s->head, s->q.ended[i].by.link)) {
            ms_shard_queue_leave(&s->q, s->q.ended[i].by.link, false);
            return true;
        }
    return false;
}

/* An owner that has not come back has died. */
void ms_head_shards_recover(struct ms_head *h)
{
    ms_list_each (s, &h->shards, struct ms_head_shards, link) {
        size_t known = s->q.failed.count;

        if (!s->is_detached && !ms_driver_find(h, s->driver) &&
            !ms_jobs_has(h->jobs, s->driver)) {
            ms_head_shards_forget(s);
            continue;
        }
        while (lose_one(s))
            ;
        while (leave_one(s))
            ;
        ms_head_shards_note(s, known);
        ms_head_shards_changed(s);
    }
}
