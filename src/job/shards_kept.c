/* shards_kept.c - a queue of shards as a message, and back: for the head and checkpoints */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/proto.h"
#include "job/shards.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- to a message ---------------------------------------------------------------- */

static bool add(Muster__KeptShard ***list,
                size_t *count,
                const struct ms_shard_list *from,
                bool as_checkpoint)
{
    for (size_t i = 0; i < from->count; i++) {
        const struct ms_shard *s = &from->at[i];
        Muster__KeptShard m = MUSTER__KEPT_SHARD__INIT;

        m.position = s->position;
        m.failures = s->failures;
        m.deaths = s->deaths;
        m.lease = as_checkpoint ? 0 : s->lease;
        m.owner = as_checkpoint ? 0 : s->owner;
        m.link = as_checkpoint ? 0 : s->taken.link;
        m.request = as_checkpoint ? 0 : s->taken.number;
        m.reason = ms_field_text(s->reason);
        if (!ms_proto_append(list, count, ms_proto_copy(&m.base)))
            return false;
    }
    return true;
}

static bool add_ends(Muster__KeptShards *m, const struct ms_shard_queue *s)
{
    for (size_t i = 0; i < s->ended_count; i++) {
        const struct ms_shard_end *e = &s->ended[i];
        Muster__KeptEnd one = MUSTER__KEPT_END__INIT;

        one.lease = e->lease;
        one.owner = e->owner;
        one.how = e->how;
        one.link = e->by.link;
        one.request = e->by.number;
        if (!ms_proto_append(&m->ended, &m->n_ended, ms_proto_copy(&one.base)))
            return false;
    }
    return true;
}

Muster__KeptShards *ms_shard_queue_encode(const struct ms_shard_queue *s,
                                          bool as_checkpoint)
{
    Muster__KeptShards *m =
        (Muster__KeptShards *)ms_proto_create(&muster__kept_shards__descriptor);
    bool ok;

    if (!m)
        return NULL;
    m->version = MS_SHARDS_VERSION;
    m->size = s->spec.size;
    m->shard = s->spec.shard;
    m->epochs = s->spec.epochs;
    m->shuffle = s->spec.shuffle;
    m->seed = s->spec.seed;
    m->failures_max = s->spec.failures_max;
    m->deaths_max = s->spec.deaths_max;
    m->next = s->next;
    m->last_lease = s->last_lease;
    ok = add(&m->todo, &m->n_todo, &s->todo, as_checkpoint) &&
         add(as_checkpoint ? &m->todo : &m->doing,
             as_checkpoint ? &m->n_todo : &m->n_doing,
             &s->doing,
             as_checkpoint) &&
         add(&m->failed, &m->n_failed, &s->failed, as_checkpoint) &&
         (as_checkpoint || add_ends(m, s));
    if (ok)
        return m;
    muster__kept_shards__free_unpacked(m, NULL);
    return NULL;
}

/* ---- from a message -------------------------------------------------------------- */

static int by_position(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* No position stands in it twice, and all were taken once. */
static int check_positions(const struct ms_shard_queue *s)
{
    const struct ms_shard_list *lists[] = {&s->todo, &s->doing, &s->failed};
    size_t all = s->todo.count + s->doing.count + s->failed.count, n = 0;
    MS_CLEANUP(ms_cleanup_free)
    uint64_t *positions = calloc(all + 1, sizeof *positions);

    if (!positions)
        return -ENOMEM;
    for (size_t k = 0; k < MS_COUNT(lists); k++)
        for (size_t i = 0; i < lists[k]->count; i++)
            positions[n++] = lists[k]->at[i].position;
    qsort(positions, n, sizeof *positions, by_position);
    for (size_t i = 0; i < n; i++)
        if (positions[i] >= s->next || (i > 0 && positions[i] == positions[i - 1]))
            return -EINVAL;
    return 0;
}

static int check_leases(const struct ms_shard_queue *s)
{
    uint64_t last = 0;

    for (size_t i = 0; i < s->doing.count; i++) {
        if (s->doing.at[i].lease <= last || s->doing.at[i].lease > s->last_lease)
            return -EINVAL;
        last = s->doing.at[i].lease;
    }
    return 0;
}

static int take_list(struct ms_shard_list *l,
                     Muster__KeptShard *const *from,
                     size_t count,
                     size_t room)
{
    if (ms_array_reserve(&l->at, &l->room, room, sizeof *l->at) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        struct ms_shard *s = &l->at[l->count++];

        *s = (struct ms_shard){.position = from[i]->position,
                               .failures = from[i]->failures,
                               .deaths = from[i]->deaths,
                               .lease = from[i]->lease,
                               .owner = from[i]->owner,
                               .taken = {from[i]->link, from[i]->request}};
        if (from[i]->reason[0]) {
            s->reason = strndup(from[i]->reason, MS_SHARDS_REASON_MAX);
            if (!s->reason)
                return -ENOMEM;
        }
    }
    return 0;
}

static int take_ends(struct ms_shard_queue *s, const Muster__KeptShards *m)
{
    int rc = 0;

    if (m->n_ended > MS_SHARDS_OPEN_MAX)
        return -EINVAL;
    for (size_t i = 0; rc == 0 && i < m->n_ended; i++) {
        const Muster__KeptEnd *e = m->ended[i];

        rc = ms_shard_queue_note_ended(
            s,
            &(struct ms_shard_end){e->lease, e->owner, e->how, {e->link, e->request}});
    }
    return rc;
}

static int fill(struct ms_shard_queue *s, const Muster__KeptShards *m)
{
    size_t all = m->n_todo + m->n_doing + m->n_failed;
    int rc;

    if (m->n_todo > MS_SHARDS_OPEN_MAX || m->n_doing > MS_SHARDS_OPEN_MAX ||
        m->n_failed > MS_SHARDS_OPEN_MAX || all > MS_SHARDS_OPEN_MAX ||
        m->next > s->total || m->last_lease > INT64_MAX)
        return -EINVAL;
    s->next = m->next;
    s->last_lease = m->last_lease;
    rc = take_list(&s->todo, m->todo, m->n_todo, all + 1);
    if (rc == 0)
        rc = take_list(&s->doing, m->doing, m->n_doing, all + 1);
    if (rc == 0)
        rc = take_list(&s->failed, m->failed, m->n_failed, all + 1);
    if (rc == 0)
        rc = take_ends(s, m);
    if (rc == 0)
        rc = check_positions(s);
    return rc < 0 ? rc : check_leases(s);
}

int ms_shard_queue_decode(struct ms_shard_queue *s,
                          const Muster__KeptShards *m,
                          struct ms_error *err)
{
    const struct ms_shards_spec spec = {.size = m->size,
                                        .shard = m->shard,
                                        .epochs = m->epochs,
                                        .shuffle = m->shuffle,
                                        .seed = m->seed,
                                        .failures_max = m->failures_max,
                                        .deaths_max = m->deaths_max};
    struct ms_shard_queue made;
    int rc;

    if (m->version != MS_SHARDS_VERSION)
        return ms_error_set(err,
                            -EINVAL,
                            "the position of the shards has version %u; this is "
                            "version %u",
                            m->version,
                            MS_SHARDS_VERSION);
    rc = ms_shard_queue_init(&made, &spec, err);
    if (rc < 0)
        return rc;
    rc = fill(&made, m);
    if (rc == 0) {
        *s = made;
        return 0;
    }
    ms_shard_queue_finish(&made);
    return ms_error_set(err,
                        rc,
                        rc == -ENOMEM ? "out of memory"
                                      : "this is no position of a queue of shards");
}

/* Without what a lease stands for. */
static void call_back(struct ms_shard_queue *s)
{
    while (s->doing.count > 0) {
        struct ms_shard shard = s->doing.at[--s->doing.count];

        shard.lease = shard.owner = 0;
        shard.taken = (struct ms_shard_request){0};
        s->todo.at[s->todo.count++] = shard;
    }
}

int ms_shard_queue_restore(struct ms_shard_queue *s,
                           const uint8_t *bytes,
                           size_t len,
                           struct ms_error *err)
{
    Muster__KeptShards *m = muster__kept_shards__unpack(NULL, len, bytes);
    struct ms_shard_queue made;
    int rc;

    if (!m)
        return ms_error_set(
            err, -EINVAL, "these %zu bytes are no position of a queue of shards", len);
    rc = ms_shard_queue_decode(&made, m, err);
    muster__kept_shards__free_unpacked(m, NULL);
    if (rc < 0)
        return rc;
    if (!ms_shard_queue_spec_equal(&made.spec, &s->spec)) {
        ms_shard_queue_finish(&made);
        return ms_error_set(err,
                            -EINVAL,
                            "the checkpoint is of another data set: size, shard, "
                            "epochs, shuffle, seed or limits differ");
    }
    call_back(&made);
    if (made.last_lease < s->last_lease)
        made.last_lease = s->last_lease;
    ms_shard_queue_finish(s);
    *s = made;
    return 0;
}
