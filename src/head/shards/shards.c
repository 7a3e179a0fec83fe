/* shards.c - queues of shards: operations that open and change them, and their ends */
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

struct ms_head_shards *ms_head_shards_find_named(struct ms_head_op *op,
                                                 const char *name)
{
    struct ms_head_shards *s = ms_head_shards_find(op->head, name);

    if (!s)
        ms_error_set(&op->error, -ENOENT, "there are no shards called '%.64s'", name);
    return s;
}

void ms_head_shards_destroy(struct ms_head_shards *s)
{
    ms_list_remove(&s->link);
    ms_shard_queue_finish(&s->q);
    free(s);
}

void ms_head_shards_forget(struct ms_head_shards *s)
{
    ms_list_each (op, &s->takes, struct ms_head_op, wait_link)
        ms_head_op_fail(op, -ENOENT, "the shards called '%s' were removed", s->name);
    ms_journal_delete(s->head->persist.journal, MS_PERSIST_SHARDS, s->name);
    ms_head_shards_destroy(s);
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

Muster__ShardsStatus *ms_head_shards_status(const struct ms_head_shards *s,
                                            bool with_position)
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
        return m;
    }
    muster__shards_status__free_unpacked(m, NULL);
    return NULL;
}

static void
answer(struct ms_head_op *op, const struct ms_head_shards *s, bool with_position)
{
    Muster__ShardsStatus *m = ms_head_shards_status(s, with_position);

    ms_head_op_answer(op, m ? &m->base : NULL);
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
    rc = ms_head_shards_keep(s);
    if (rc < 0) {
        ms_head_shards_destroy(s);
        op->error = op->head->shards_unkept.why;
        return rc;
    }
    answer(op, s, false);
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
    answer(op, s, false);
    return 0;
}

int ms_head_shards_ask_run(struct ms_head_op *op)
{
    const Muster__AskShards *asked = op->request->shards;
    const struct ms_head_shards *s = ms_head_shards_find_named(op, asked->name);

    if (!s)
        return -ENOENT;
    answer(op, s, asked->with_position);
    return 0;
}

static int remove_one(struct ms_head_op *op, struct ms_head_shards *s)
{
    int rc = ms_journal_write(
        op->head->persist.journal, MS_PERSIST_SHARDS, s->name, NULL, 0, &op->error);

    if (rc < 0)
        return rc;
    answer(op, s, false);
    ms_head_shards_forget(s);
    return 0;
}

int ms_head_shards_change_run(struct ms_head_op *op)
{
    const Muster__ChangeShards *asked = op->request->change_shards;
    struct ms_head_shards *s = ms_head_shards_find_named(op, asked->name);
    Muster__ShardsStatus *m;
    int rc = 0;

    if (!s)
        return -ENOENT;
    if (asked->position.len)
        rc = ms_shard_queue_restore(
            &s->q, asked->position.data, asked->position.len, &op->error);
    if (rc < 0)
        return rc;
    if (asked->remove)
        return remove_one(op, s);
    if (asked->retry)
        ms_shard_queue_retry(&s->q);
    ms_head_shards_changed(s);
    m = ms_head_shards_status(s, false);
    ms_head_shards_answer(op, m ? &m->base : NULL, MS_SHARDS_HOLD_NS);
    return 0;
}

/* ---- ends ------------------------------------------------------------------------ */

void ms_head_shards_lose(struct ms_head *h, uint64_t owner)
{
    /* the analyzer does not follow links. NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
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
            ms_head_shards_forget(s);
    ms_head_shards_lose(h, driver);
    /* the analyzer does not follow links. NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
    ms_list_each (s, &h->shards, struct ms_head_shards, link)
        ms_shard_queue_leave(&s->q, driver, false);
}

void ms_head_shards_link_gone(struct ms_head *h, uint64_t link)
{
    ms_list_each (s, &h->shards, struct ms_head_shards, link)
        if (ms_shard_queue_leave(&s->q, link, true) > 0)
            ms_head_shards_changed(s);
}

void ms_head_shards_finish(struct ms_head *h)
{
    if (h->shards_unkept.has_timer)
        ms_timer_finish(&h->shards_unkept.retry);
    ms_list_each (s, &h->shards, struct ms_head_shards, link)
        ms_head_shards_destroy(s);
}
