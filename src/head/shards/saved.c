/* saved.c - the positions of all queues of a job: saved for a checkpoint, and restored */
#include "base/name.h"
#include "base/proto.h"
#include "head/head_impl.h"
#include "head/ops/op.h"
#include "head/shards/shards_impl.h"

#include <errno.h>
#include <string.h>

/* ---- saving ------------------------------------------------------------------------ */

static bool add_queue(Muster__SavedShards *all, const struct ms_head_shards *s)
{
    Muster__SavedQueue *one =
        (Muster__SavedQueue *)ms_proto_create(&muster__saved_queue__descriptor);

    if (one && ms_proto_set_text(&one->name, s->name)) {
        one->position = ms_shard_queue_encode(&s->q, true);
        one->detached = s->is_detached;
        if (one->position)
            return ms_proto_append(&all->queues, &all->n_queues, one);
    }
    muster__saved_queue__free_unpacked(one, NULL);
    return false;
}

/* NULL: out of memory. */
static Muster__SavedShards *save(const struct ms_head *h, uint64_t driver)
{
    Muster__SavedShards *all =
        (Muster__SavedShards *)ms_proto_create(&muster__saved_shards__descriptor);

    if (!all)
        return NULL;
    all->version = MS_SHARDS_VERSION;
    ms_list_each (s, &h->shards, struct ms_head_shards, link) {
        if (s->driver != driver || add_queue(all, s))
            continue;
        muster__saved_shards__free_unpacked(all, NULL);
        return NULL;
    }
    return all;
}

/* NULL: out of memory. */
static ProtobufCMessage *saved_message(const Muster__SavedShards *all, bool with_bytes)
{
    Muster__ShardsSaved *m =
        (Muster__ShardsSaved *)ms_proto_create(&muster__shards_saved__descriptor);

    if (!m)
        return NULL;
    m->queues = all ? (uint32_t)all->n_queues : 0;
    if (!with_bytes)
        return &m->base;
    m->saved.data = ms_proto_packed(&all->base, &m->saved.len);
    if (m->saved.data)
        return &m->base;
    muster__shards_saved__free_unpacked(m, NULL);
    return NULL;
}

int ms_head_shards_save_run(struct ms_head_op *op)
{
    Muster__SavedShards *all;
    uint64_t driver;
    bool is_detached;
    int rc = ms_head_shards_owner(op, &driver, &is_detached);

    if (rc < 0)
        return rc;
    all = save(op->head, driver);
    if (!all)
        return ms_error_set(&op->error, -ENOMEM, "out of memory");
    ms_head_op_answer(op, saved_message(all, true));
    muster__saved_shards__free_unpacked(all, NULL);
    return 0;
}

/* ---- restoring --------------------------------------------------------------------- */

static const Muster__SavedQueue *find_saved(const Muster__SavedShards *all,
                                            const char *name)
{
    for (size_t i = 0; all && i < all->n_queues; i++)
        if (strcmp(all->queues[i]->name, name) == 0)
            return all->queues[i];
    return NULL;
}

/* The queue as it was saved; nothing is out of it. */
static int make(struct ms_shard_queue *q,
                const Muster__SavedQueue *saved,
                const struct ms_head_shards *now,
                struct ms_error *err)
{
    static const Muster__KeptShards none = MUSTER__KEPT_SHARDS__INIT;
    const Muster__KeptShards *position = saved->position ? saved->position : &none;
    struct ms_error why = {0};
    int rc = ms_name_check(saved->name, "shards", err);

    if (rc < 0)
        return rc;
    rc = position->n_doing ? ms_error_set(&why, -EINVAL, "some of them are out")
                           : ms_shard_queue_decode(q, position, &why);
    if (rc == 0 && now && !ms_shard_queue_spec_equal(&q->spec, &now->q.spec)) {
        ms_shard_queue_finish(q);
        rc = ms_error_set(&why,
                          -EINVAL,
                          "the checkpoint is of another data set: size, shard_size, "
                          "epochs, shuffle, seed or limits differ");
    }
    if (rc < 0)
        ms_error_set(err, rc, "shards '%s': %s", saved->name, why.text);
    return rc;
}

/* Could all of them be restored? 0, or why not. */
static int check(const struct ms_head *h,
                 const Muster__SavedShards *all,
                 uint64_t driver,
                 struct ms_error *err)
{
    for (size_t i = 0; i < all->n_queues; i++) {
        const Muster__SavedQueue *saved = all->queues[i];
        const struct ms_head_shards *now = ms_head_shards_find(h, saved->name);
        struct ms_shard_queue q;
        int rc;

        if (find_saved(all, saved->name) != saved)
            return ms_error_set(err, -EINVAL, "the checkpoint has a queue twice");
        if (now && now->driver != driver)
            return ms_error_set(err,
                                -EEXIST,
                                "shards '%s' belong to another job or driver",
                                saved->name);
        rc = make(&q, saved, now, err);
        if (rc < 0)
            return rc;
        ms_shard_queue_finish(&q);
    }
    return 0;
}

/* Leases of before are void, and none of their numbers is given again. */
static void put(struct ms_head_shards *s, struct ms_shard_queue *q)
{
    if (q->last_lease < s->q.last_lease)
        q->last_lease = s->q.last_lease;
    ms_shard_queue_finish(&s->q);
    s->q = *q;
    s->is_unkept = true;
}

static int reset(struct ms_head_shards *s, struct ms_error *err)
{
    struct ms_shard_queue q;
    int rc = ms_shard_queue_init(&q, &s->q.spec, err);

    if (rc == 0)
        put(s, &q);
    return rc;
}

static int restore_one(struct ms_head *h,
                       const Muster__SavedQueue *saved,
                       uint64_t driver,
                       struct ms_error *err)
{
    struct ms_head_shards *s = ms_head_shards_find(h, saved->name);
    struct ms_shard_queue q;
    int rc = make(&q, saved, s, err);

    if (rc < 0)
        return rc;
    if (!s)
        s = ms_head_shards_create(h, saved->name);
    if (!s) {
        ms_shard_queue_finish(&q);
        return ms_error_set(err, -ENOSPC, "no memory for more shards, or too many");
    }
    s->driver = driver;
    s->is_detached = saved->detached;
    put(s, &q);
    return 0;
}

/* What `all` (NULL: nothing) says of them was checked. */
static int restore(struct ms_head *h,
                   const Muster__SavedShards *all,
                   uint64_t driver,
                   struct ms_error *err)
{
    int rc = 0;

    ms_list_each (s, &h->shards, struct ms_head_shards, link)
        if (rc == 0 && s->driver == driver && !find_saved(all, s->name))
            rc = reset(s, err);
    for (size_t i = 0; rc == 0 && all && i < all->n_queues; i++)
        rc = restore_one(h, all->queues[i], driver, err);
    ms_head_shards_keep_all(h);
    ms_list_each (s, &h->shards, struct ms_head_shards, link)
        ms_head_op_retry_all(&s->takes);
    return rc;
}

static int read_saved(const ProtobufCBinaryData *bytes,
                      Muster__SavedShards **out,
                      struct ms_error *err)
{
    *out = NULL;
    if (bytes->len == 0)
        return 0;
    *out = muster__saved_shards__unpack(NULL, bytes->len, bytes->data);
    if (*out && (*out)->version == MS_SHARDS_VERSION)
        return 0;
    return ms_error_set(err,
                        -EINVAL,
                        *out ? "the saved shards (%zu bytes) are of another version"
                             : "these %zu bytes are no saved shards",
                        bytes->len);
}

int ms_head_shards_restore_run(struct ms_head_op *op)
{
    Muster__SavedShards *all;
    uint64_t driver;
    bool is_detached;
    int rc = ms_head_shards_owner(op, &driver, &is_detached);

    if (rc < 0)
        return rc;
    rc = read_saved(&op->request->restore_shards->saved, &all, &op->error);
    if (rc == 0 && all)
        rc = check(op->head, all, driver, &op->error);
    if (rc == 0)
        rc = restore(op->head, all, driver, &op->error);
    if (rc == 0)
        ms_head_shards_answer(op, saved_message(all, false), MS_SHARDS_HOLD_NS);
    muster__saved_shards__free_unpacked(all, NULL);
    return rc;
}
