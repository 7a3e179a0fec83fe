/* lease.c - operations that take shards, and end what was taken */
#include "base/proto.h"
#include "head/drivers/driver.h"
#include "head/head_impl.h"
#include "head/ops/op.h"
#include "head/shards/shards_impl.h"

#include <errno.h>

uint64_t ms_head_shards_taker(const struct ms_head_op *op)
{
    uint64_t uid = ms_driver_worker(op->driver);

    return uid ? uid : ms_driver_id(op->driver);
}

/* Without a link (this process asks its own head) nothing comes again. */
static struct ms_shard_request request_of(const struct ms_head_op *op)
{
    uint64_t link = ms_driver_id(op->driver);

    return (struct ms_shard_request){link, link ? op->pending.number : 0};
}

/* Answers of before that have arrived. */
static void settle(struct ms_head_shards *s, const struct ms_head_op *op)
{
    const Muster__DriverToHead *r = op->request;

    ms_shard_queue_settle(
        &s->q, request_of(op).link, r->answered, r->arrived, r->n_arrived);
}

/* ---- taking ---------------------------------------------------------------------- */

static bool add_range(Muster__ShardsTaken *m, const struct ms_shard_range *range)
{
    Muster__ShardRange r = MUSTER__SHARD_RANGE__INIT;

    r.lease = range->lease;
    r.epoch = range->epoch;
    r.index = range->index;
    r.start = range->start;
    r.end = range->end;
    r.attempt = range->attempt;
    return ms_proto_append(&m->shards, &m->n_shards, ms_proto_copy(&r.base));
}

/* What it was given when it came before: 0 or -ENOMEM. */
static int take_again(const struct ms_head_shards *s,
                      const struct ms_shard_request *by,
                      Muster__ShardsTaken *m)
{
    struct ms_shard_range range;
    size_t at = 0;

    while (ms_shard_queue_next_taken(&s->q, by, &at, &range))
        if (!add_range(m, &range))
            return -ENOMEM;
    return 0;
}

/* As many as there are, up to `count`. 0, -ENOSPC, -ENOMEM: what was taken is given back. */
static int take_new(struct ms_head_shards *s,
                    const struct ms_head_op *op,
                    const struct ms_shard_request *by,
                    Muster__ShardsTaken *m)
{
    uint64_t owner = ms_head_shards_taker(op);
    uint32_t asked = op->request->take_shards->count;
    struct ms_shard_range range;
    int rc = 0;

    while (m->n_shards < (asked ? asked : 1) &&
           (rc = ms_shard_queue_take(&s->q, owner, &range)) > 0) {
        ms_shard_queue_note_taken(&s->q, range.lease, by);
        if (!add_range(m, &range)) {
            ms_shard_queue_give_back(&s->q, range.lease, owner);
            rc = -ENOMEM;
            break;
        }
    }
    return rc < 0 && m->n_shards == 0 ? rc : 0;
}

/* Into a message, which is empty if there are none now. */
static int
take(struct ms_head_shards *s, const struct ms_head_op *op, Muster__ShardsTaken *m)
{
    const struct ms_shard_request by = request_of(op);
    int rc = take_again(s, &by, m);

    if (rc == 0 && m->n_shards == 0)
        rc = take_new(s, op, &by, m);
    m->state = (Muster__ShardsState)ms_shard_queue_state(&s->q);
    return rc;
}

static int64_t hold_ns(const struct ms_head_op *op)
{
    uint64_t wait_ns = op->request->take_shards->wait_ns;

    return wait_ns < MS_SHARDS_HOLD_NS ? (int64_t)wait_ns : MS_SHARDS_HOLD_NS;
}

static void refuse_take(struct ms_head_op *op, int rc)
{
    if (rc == -ENOSPC)
        ms_head_op_fail(op,
                        rc,
                        "shards '%s': %u are out or came back, which is all that there "
                        "can be",
                        op->request->take_shards->name,
                        MS_SHARDS_OPEN_MAX);
    else
        ms_head_op_fail(op, rc, "out of memory");
}

static bool retry_take(struct ms_head_op *op, bool is_last)
{
    struct ms_head_shards *s =
        ms_head_shards_find(op->head, op->request->take_shards->name);
    Muster__ShardsTaken *m =
        (Muster__ShardsTaken *)ms_proto_create(&muster__shards_taken__descriptor);
    int rc = m ? take(s, op, m) : -ENOMEM;

    if (rc == 0 &&
        (m->n_shards > 0 || is_last || m->state != MUSTER__SHARDS_STATE__SHARDS_OPEN)) {
        if (m->n_shards > 0)
            ms_head_shards_keep(s);
        ms_head_shards_answer(op, &m->base, hold_ns(op));
        return true;
    }
    muster__shards_taken__free_unpacked(m, NULL);
    if (rc < 0)
        refuse_take(op, rc);
    return rc < 0;
}

int ms_head_shards_take_run(struct ms_head_op *op)
{
    const Muster__TakeShards *asked = op->request->take_shards;
    struct ms_head_shards *s = ms_head_shards_find_named(op, asked->name);
    uint64_t wait_ns = asked->wait_ns < MS_KV_WAIT_NS ? asked->wait_ns : MS_KV_WAIT_NS;

    if (!s)
        return -ENOENT;
    if (asked->count > MS_SHARDS_TAKE_MAX)
        return ms_error_set(&op->error,
                            -EINVAL,
                            "%u shards at once: at most %u are given",
                            asked->count,
                            MS_SHARDS_TAKE_MAX);
    settle(s, op);
    return ms_head_op_wait_in(op, &s->takes, retry_take, (int64_t)wait_ns);
}

/* ---- ending ---------------------------------------------------------------------- */

_Static_assert((int)MS_SHARD_DONE == MUSTER__SHARD_END__SHARD_DONE, "");
_Static_assert((int)MS_SHARD_FAILED == MUSTER__SHARD_END__SHARD_FAILED, "");
_Static_assert((int)MS_SHARD_GIVEN_BACK == MUSTER__SHARD_END__SHARD_GIVEN_BACK, "");

int ms_head_shards_end_run(struct ms_head_op *op)
{
    const Muster__EndShard *asked = op->request->end_shard;
    struct ms_head_shards *s = ms_head_shards_find_named(op, asked->name);
    uint64_t wait_ns =
        asked->wait_ns < MS_HOLD_MAX_NS ? asked->wait_ns : MS_HOLD_MAX_NS;
    const struct ms_shard_end end = {.lease = asked->lease,
                                     .owner = ms_head_shards_taker(op),
                                     .how = (uint32_t)asked->how,
                                     .by = request_of(op)};
    Muster__ShardsStatus *m;
    size_t known;
    int rc;

    if (!s)
        return -ENOENT;
    known = s->q.failed.count;
    rc = ms_shard_queue_end(&s->q, &end, asked->reason);
    if (rc == -EINVAL)
        ms_error_set(&op->error, rc, "a shard cannot end so");
    if (rc < 0)
        return rc;
    settle(s, op); /* behind it: the same may have been said before */
    if (rc > 0)
        ms_head_shards_changed(s);
    ms_head_shards_note(s, known);
    m = ms_head_shards_status(s, false);
    if (m)
        m->accepted = rc > 0;
    ms_head_shards_answer(op, m ? &m->base : NULL, (int64_t)wait_ns);
    return 0;
}
