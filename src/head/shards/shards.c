/* shards.c - operations that open a queue of shards, take from it, and end what was taken */
#include "base/cleanup.h"
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
#include <stdlib.h>
#include <string.h>

/* ---- one of them ----------------------------------------------------------------- */

struct ms_head_shards *ms_head_shards_find(const struct ms_head *h, const char *name)
{
    ms_list_each (s, &h->shards, struct ms_head_shards, link)
        if (strcmp(s->name, name) == 0)
            return s;
    return NULL;
}

/* The one that is meant; NULL: -ENOENT is in op->error. */
static struct ms_head_shards *find_named(struct ms_head_op *op, const char *name)
{
    struct ms_head_shards *s = ms_head_shards_find(op->head, name);

    if (!s)
        ms_error_set(&op->error, -ENOENT, "there are no shards called '%.64s'", name);
    return s;
}

static void queue_destroy(struct ms_head_shards *s)
{
    ms_list_remove(&s->link);
    ms_shard_queue_finish(&s->q);
    free(s);
}

static void keep(const struct ms_head_shards *s, struct ms_journal *j)
{
    Muster__KeptShards *kept = j ? ms_shard_queue_encode(&s->q, false) : NULL;

    if (!kept)
        return;
    kept->driver = s->driver;
    kept->detached = s->is_detached;
    ms_persist_put(j, MS_PERSIST_SHARDS, s->name, &kept->base);
    muster__kept_shards__free_unpacked(kept, NULL);
}

static void forget(struct ms_head_shards *s)
{
    ms_list_each (op, &s->takes, struct ms_head_op, wait_link)
        ms_head_op_fail(op, -ENOENT, "the shards called '%s' were removed", s->name);
    ms_journal_delete(s->head->persist.journal, MS_PERSIST_SHARDS, s->name);
    queue_destroy(s);
}

/* Who loses the shard when it dies: a worker, or a driver. */
static uint64_t owner_of(const struct ms_head_op *op)
{
    uint64_t uid = ms_driver_worker(op->driver);

    return uid ? uid : ms_driver_id(op->driver);
}

/* ---- answers --------------------------------------------------------------------- */

static bool add_failed(Muster__ShardsStatus *m, const struct ms_shard_queue *q)
{
    for (size_t i = 0; i < q->failed.count && i < MS_SHARDS_TOLD_MAX; i++) {
        const struct ms_shard *shard = &q->failed.at[i];
        struct ms_shard_range range = ms_shard_queue_range(q, shard->position);
        Muster__FailedShard f = MUSTER__FAILED_SHARD__INIT;

        f.epoch = range.epoch;
        f.start = range.start;
        f.end = range.end;
        f.failures = shard->failures;
        f.deaths = shard->deaths;
        f.reason = ms_field_text(shard->reason);
        if (!ms_proto_append(&m->failures, &m->n_failures, ms_proto_copy(&f.base)))
            return false;
    }
    return true;
}

static bool add_position(Muster__ShardsStatus *m, const struct ms_shard_queue *q)
{
    Muster__KeptShards *kept = ms_shard_queue_encode(q, true);

    if (!kept)
        return false;
    m->position.data = ms_proto_packed(&kept->base, &m->position.len);
    muster__kept_shards__free_unpacked(kept, NULL);
    return m->position.data != NULL;
}

static void answer(struct ms_head_op *op,
                   const struct ms_head_shards *s,
                   bool with_position,
                   bool accepted)
{
    Muster__ShardsStatus *m =
        (Muster__ShardsStatus *)ms_proto_create(&muster__shards_status__descriptor);

    if (m && ms_proto_set_text(&m->name, s->name) && add_failed(m, &s->q) &&
        (!with_position || add_position(m, &s->q))) {
        m->state = (Muster__ShardsState)ms_shard_queue_state(&s->q);
        m->total = s->q.total;
        m->done = ms_shard_queue_done_count(&s->q);
        m->doing = s->q.doing.count;
        m->failed = s->q.failed.count;
        m->accepted = accepted;
        ms_head_op_succeed(op, &m->base);
        return;
    }
    muster__shards_status__free_unpacked(m, NULL);
    ms_head_op_fail(op, -ENOMEM, "out of memory");
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

/* As many as there are, up to `count`. 0, -ENOSPC, -ENOMEM: what was taken is given back. */
static int
take(struct ms_head_shards *s, uint64_t owner, uint32_t count, Muster__ShardsTaken *m)
{
    struct ms_shard_range range;
    int rc = 0;

    while (m->n_shards < count &&
           (rc = ms_shard_queue_take(&s->q, owner, &range)) > 0) {
        if (!add_range(m, &range)) {
            ms_shard_queue_give_back(&s->q, range.lease, owner);
            rc = -ENOMEM;
            break;
        }
    }
    if (m->n_shards > 0)
        return 0;
    return rc < 0 ? rc : 0;
}

static bool retry_take(struct ms_head_op *op, bool is_last)
{
    const Muster__TakeShards *asked = op->request->take_shards;
    struct ms_head_shards *s = ms_head_shards_find(op->head, asked->name);
    uint32_t count = asked->count ? asked->count : 1;
    bool has_taken;
    Muster__ShardsTaken *m =
        (Muster__ShardsTaken *)ms_proto_create(&muster__shards_taken__descriptor);
    int rc = m ? take(s, owner_of(op), count, m) : -ENOMEM;

    if (rc == 0 && m->n_shards == 0 && !is_last &&
        ms_shard_queue_state(&s->q) == MS_SHARDS_OPEN) {
        muster__shards_taken__free_unpacked(m, NULL);
        return false;
    }
    if (rc < 0) {
        muster__shards_taken__free_unpacked(m, NULL);
        ms_head_op_fail(op,
                        rc,
                        rc == -ENOSPC
                            ? "shards '%s': %u are out or came back, which is "
                              "all that there can be"
                            : "out of memory (%s, %u)",
                        s->name,
                        MS_SHARDS_OPEN_MAX);
        return true;
    }
    m->state = (Muster__ShardsState)ms_shard_queue_state(&s->q);
    has_taken = m->n_shards > 0;
    ms_head_op_succeed(op, &m->base);
    /* Kept when it is on its way: a head that dies before gives the shard to another one,
     * and one that has kept it first might have told nobody. */
    if (has_taken)
        keep(s, s->head->persist.journal);
    return true;
}

void ms_head_shards_changed(struct ms_head_shards *s)
{
    keep(s, s->head->persist.journal);
    ms_head_op_retry_all(&s->takes);
}

int ms_head_shards_take_run(struct ms_head_op *op)
{
    const Muster__TakeShards *asked = op->request->take_shards;
    struct ms_head_shards *s = find_named(op, asked->name);
    uint64_t wait_ns = asked->wait_ns < MS_KV_WAIT_NS ? asked->wait_ns : MS_KV_WAIT_NS;

    if (!s)
        return -ENOENT;
    if (asked->count > MS_SHARDS_TAKE_MAX)
        return ms_error_set(&op->error,
                            -EINVAL,
                            "%u shards at once: at most %u are given",
                            asked->count,
                            MS_SHARDS_TAKE_MAX);
    return ms_head_op_wait_in(op, &s->takes, retry_take, (int64_t)wait_ns);
}

int ms_head_shards_end_run(struct ms_head_op *op)
{
    const Muster__EndShard *asked = op->request->end_shard;
    struct ms_head_shards *s = find_named(op, asked->name);
    uint64_t owner = owner_of(op);
    size_t known;
    int rc = 0;

    if (!s)
        return -ENOENT;
    known = s->q.failed.count;
    switch (asked->how) {
    case MUSTER__SHARD_END__SHARD_DONE:
        rc = ms_shard_queue_done(&s->q, asked->lease, owner);
        break;
    case MUSTER__SHARD_END__SHARD_FAILED:
        rc = ms_shard_queue_fail(&s->q, asked->lease, owner, asked->reason);
        break;
    case MUSTER__SHARD_END__SHARD_GIVEN_BACK:
        rc = ms_shard_queue_give_back(&s->q, asked->lease, owner);
        break;
    default:
        return ms_error_set(&op->error, -EINVAL, "a shard cannot end so");
    }
    if (rc > 0)
        keep(s, op->head->persist.journal);
    ms_head_shards_note(s, known);
    answer(op, s, false, rc > 0);
    if (rc > 0)
        ms_head_op_retry_all(&s->takes);
    return 0;
}

/* ---- the queue itself ------------------------------------------------------------ */

/* The job that this driver is for; 0: none. */
static uint64_t job_of(const struct ms_head *h, const struct ms_driver *d)
{
    return d && d->hello ? ms_jobs_find_of(h->jobs, d->hello->context) : 0;
}

int ms_head_shards_owner(struct ms_head_op *op, uint64_t *driver, bool *is_detached)
{
    const struct ms_head *h = op->head;
    uint64_t uid = ms_driver_worker(op->driver), job;
    const struct ms_slot *slot = ms_registry_find_uid(&h->registry, uid);

    if (uid && !slot)
        return ms_error_set(&op->error, -EAGAIN, "the head does not know this worker");
    *driver = uid ? slot->cluster->driver : ms_driver_id(op->driver);
    job = ms_jobs_has(h->jobs, *driver)
              ? *driver
              : job_of(h, uid ? ms_driver_find(h, *driver) : op->driver);
    /* the driver of a detached cluster may have ended long ago; a job has not */
    *is_detached = !job && uid && slot->cluster->detached;
    if (job)
        *driver = job;
    return 0;
}

struct ms_head_shards *ms_head_shards_create(struct ms_head *h, const char *name)
{
    struct ms_head_shards *s = calloc(1, sizeof *s);
    size_t count = 0;

    ms_list_each (other, &h->shards, struct ms_head_shards, link)
        count++;
    if (!s || count >= MS_SHARD_QUEUES_MAX) {
        free(s);
        return NULL;
    }
    s->head = h;
    strcpy(s->name, name);
    ms_list_init(&s->takes);
    ms_list_add_tail(&h->shards, &s->link);
    return s;
}

static int make(struct ms_head_op *op, const struct ms_shards_spec *spec)
{
    struct ms_shard_queue q;
    uint64_t driver = 0;
    bool is_detached = false;
    struct ms_head_shards *s;
    int rc = ms_shard_queue_init(&q, spec, &op->error);

    if (rc == 0)
        rc = ms_head_shards_owner(op, &driver, &is_detached);
    if (rc < 0)
        return rc;
    s = ms_head_shards_create(op->head, op->request->open_shards->name);
    if (!s)
        return ms_error_set(&op->error,
                            -ENOSPC,
                            "no memory for more shards, or %u queues of them",
                            MS_SHARD_QUEUES_MAX);
    s->q = q;
    s->driver = driver;
    s->is_detached = is_detached || op->request->open_shards->detached;
    keep(s, op->head->persist.journal);
    answer(op, s, false, false);
    return 0;
}

int ms_head_shards_open_run(struct ms_head_op *op)
{
    const Muster__OpenShards *asked = op->request->open_shards;
    struct ms_shards_spec spec = {.size = asked->size,
                                  .shard = asked->shard,
                                  .epochs = asked->epochs,
                                  .shuffle = asked->shuffle,
                                  .seed = asked->seed,
                                  .failures_max = asked->failures_max,
                                  .deaths_max = asked->deaths_max};
    const struct ms_head_shards *s;
    int rc = ms_name_check(asked->name, "shards", &op->error);

    if (rc < 0)
        return rc;
    s = ms_head_shards_find(op->head, asked->name);
    if (!s)
        return make(op, &spec);
    if (!ms_shard_queue_spec_equal(&s->q.spec, &spec))
        return ms_error_set(&op->error,
                            -EEXIST,
                            "there are shards called '%s' of another data set: size, "
                            "shard_size, epochs, shuffle, seed or limits differ",
                            asked->name);
    answer(op, s, false, false);
    return 0;
}

int ms_head_shards_ask_run(struct ms_head_op *op)
{
    const Muster__AskShards *asked = op->request->shards;
    const struct ms_head_shards *s = find_named(op, asked->name);

    if (!s)
        return -ENOENT;
    answer(op, s, asked->with_position, false);
    return 0;
}

int ms_head_shards_change_run(struct ms_head_op *op)
{
    const Muster__ChangeShards *asked = op->request->change_shards;
    struct ms_head_shards *s = find_named(op, asked->name);
    int rc = 0;

    if (!s)
        return -ENOENT;
    if (asked->position.len)
        rc = ms_shard_queue_restore(
            &s->q, asked->position.data, asked->position.len, &op->error);
    if (rc < 0)
        return rc;
    if (asked->retry)
        ms_shard_queue_retry(&s->q);
    if (!asked->remove)
        keep(s, op->head->persist.journal); /* before it is answered */
    answer(op, s, false, false);
    if (asked->remove)
        forget(s);
    else
        ms_head_op_retry_all(&s->takes);
    return 0;
}

/* ---- ends ------------------------------------------------------------------------ */

void ms_head_shards_lose(struct ms_head *h, uint64_t owner)
{
    ms_list_each (s, &h->shards, struct ms_head_shards, link) {
        size_t known = s->q.failed.count;

        if (ms_shard_queue_drop(&s->q, owner) == 0)
            continue;
        ms_head_shards_changed(s);
        ms_head_shards_note(s, known);
    }
}

void ms_head_shards_driver_gone(struct ms_head *h, uint64_t driver)
{
    ms_list_each (s, &h->shards, struct ms_head_shards, link)
        if (s->driver == driver && !s->is_detached)
            forget(s);
    ms_head_shards_lose(h, driver);
}

void ms_head_shards_leave(struct ms_head *h, const struct ms_driver *d)
{
    ms_list_each (s, &h->shards, struct ms_head_shards, link)
        ms_list_each (op, &s->takes, struct ms_head_op, wait_link)
            if (op->driver == d)
                ms_head_op_fail(op, -ESHUTDOWN, "the driver has ended");
}

void ms_head_shards_finish(struct ms_head *h)
{
    ms_list_each (s, &h->shards, struct ms_head_shards, link)
        queue_destroy(s);
}

/* ---- kept ------------------------------------------------------------------------ */

void ms_head_shards_take(struct ms_head *h,
                         const char *name,
                         const uint8_t *data,
                         size_t len)
{
    Muster__KeptShards *kept =
        data ? muster__kept_shards__unpack(NULL, len, data) : NULL;
    struct ms_head_shards *s = ms_head_shards_find(h, name);
    struct ms_shard_queue q;

    if (s)
        queue_destroy(s);
    if (kept && ms_name_check(name, "shards", NULL) == 0 &&
        ms_shard_queue_decode(&q, kept, NULL) == 0) {
        s = ms_head_shards_create(h, name);
        if (s) {
            s->q = q;
            s->driver = kept->driver;
            s->is_detached = kept->detached;
        } else {
            ms_shard_queue_finish(&q);
        }
    }
    muster__kept_shards__free_unpacked(kept, NULL);
}

void ms_head_shards_put_all(struct ms_head *h, struct ms_journal *j)
{
    ms_list_each (s, &h->shards, struct ms_head_shards, link)
        keep(s, j);
}

static bool is_known(const struct ms_head *h, uint64_t owner)
{
    const struct ms_slot *slot = ms_registry_find_uid(&h->registry, owner);

    return ms_driver_find(h, owner) || (slot && ms_slot_is_live(slot));
}

static bool lose_one(struct ms_head_shards *s)
{
    size_t known = s->q.failed.count;
    bool is_lost = false;

    for (size_t i = 0; i < s->q.doing.count && !is_lost; i++)
        if (!is_known(s->head, s->q.doing.at[i].owner))
            is_lost = ms_shard_queue_drop(&s->q, s->q.doing.at[i].owner) > 0;
    ms_head_shards_note(s, known);
    return is_lost;
}

/* Whoever has not come back has died. */
void ms_head_shards_recover(struct ms_head *h)
{
    ms_list_each (s, &h->shards, struct ms_head_shards, link) {
        if (!s->is_detached && !ms_driver_find(h, s->driver) &&
            !ms_jobs_has(h->jobs, s->driver)) {
            forget(s);
            continue;
        }
        while (lose_one(s))
            ;
        ms_head_shards_changed(s);
    }
}
