/* replicas.c - the replicas of a scheduler are the workers of its cluster, also when that has
 * been resized, by whomever */
#include "base/clock.h"
#include "base/limits.h"
#include "base/lock.h"
#include "capi/capi.h"
#include "capi/generate.h"

#include <errno.h>

#define RESIZE_GRACE_NS (5 * MS_NS_PER_S) /* of workers that go: they run nothing */
#define NOT_LOOKED      UINT64_MAX

/* Those that it has not got yet: also a rank may be another worker, if the cluster has shrunk
 * and grown since. -EEXIST: not all, try again. */
static int
add(struct muster_scheduler *s, const struct muster_cluster *c, struct ms_error *err)
{
    int rc = 0;

    for (uint32_t i = 0; i < c->world_size && (rc == 0 || rc == -EEXIST); i++) {
        const struct ms_rollout_replica what = {
            .peer = c->workers[i].peer, .slots = s->slots, .kv_tokens = s->kv_tokens};
        int added;

        if (i < s->count && !ms_rollout_has(s->rollout, i))
            continue; /* `drain` was asked for */
        added = ms_rollout_add(s->rollout, i, &what, err);
        if (added < 0)
            rc = added;
        else if (i >= s->count)
            s->count = i + 1;
    }
    return rc;
}

static void drop(struct muster_scheduler *s, uint32_t world_size)
{
    while (s->count > world_size)
        ms_rollout_drain(s->rollout, --s->count);
}

int ms_capi_replicas_init(struct muster_scheduler *s, struct ms_error *err)
{
    const struct muster_cluster *c = s->cluster;

    if (c->world_size == 0)
        return ms_error_set(err, -EINVAL, "cluster '%s' has no workers", c->name);
    s->changes = ms_head_changes(c->session->head);
    s->first = ms_peer_ref(c->workers[0].peer);
    return add(s, c, err);
}

/* Not another cluster of the same name. */
static bool is_same(const struct muster_scheduler *s,
                    const struct muster_cluster *found)
{
    for (uint32_t i = 0; i < found->world_size; i++)
        if (found->workers[i].status->uid == ms_peer_uid(s->first))
            return true;
    return false;
}

/* What the head says of it now. Negative: it cannot be told, or done, ask again. */
static int look(struct muster_scheduler *s)
{
    struct muster_cluster *found =
        muster_cluster_open(s->cluster->session, s->cluster->name, NULL);
    int rc = -EAGAIN;

    if (found && is_same(s, found)) {
        drop(s, found->world_size);
        rc = add(s, found, NULL);
    }
    muster_cluster_close(found);
    return rc;
}

void ms_capi_replicas_follow(struct muster_scheduler *s)
{
    const struct muster_session *session = s->cluster->session;
    uint64_t changes;

    if (ms_capi_check_open(session, NULL) < 0)
        return;
    changes = ms_head_changes(session->head);
    if (pthread_mutex_trylock(&s->lock) != 0)
        return; /* another thread is about it */
    if (changes != s->changes && look(s) == 0)
        s->changes = changes;
    pthread_mutex_unlock(&s->lock);
}

/* Until no request is left at those that go. -ESHUTDOWN, -ECHILD: there will be no news. */
static int
await_drained(struct muster_scheduler *s, uint32_t from, uint32_t to, int64_t until_ns)
{
    for (uint32_t i = from; i < to; i++)
        for (;;) {
            uint64_t seen = ms_rollout_wait(s->rollout, 0, 0);
            int rc = ms_rollout_status(s->rollout);

            if (rc < 0)
                return rc;
            if (!ms_rollout_has(s->rollout, i))
                break;
            if (ms_now_ns() >= until_ns)
                return -ETIMEDOUT;
            ms_rollout_wait(s->rollout, seen, until_ns);
        }
    return 0;
}

/* Before the lock is taken: in a forked child a thread that is not there may hold it. */
static int check_usable(const struct muster_scheduler *s, struct muster_error *err)
{
    int rc = ms_rollout_status(s->rollout);

    return rc < 0 ? muster_error_set(err, rc, NULL, MS_ROLLOUT_FORKED) : 0;
}

static bool is_last(const struct muster_scheduler *s, uint32_t rank)
{
    for (uint32_t i = 0; i < s->count; i++)
        if (i != rank && ms_rollout_has(s->rollout, i))
            return false;
    return true;
}

int muster_scheduler_drain(struct muster_scheduler *s,
                           uint32_t rank,
                           int64_t timeout_ns,
                           struct muster_error *err)
{
    int64_t until_ns = ms_deadline_ns(ms_now_ns(), timeout_ns);
    int rc = check_usable(s, err);

    if (rc < 0)
        return rc;
    MS_LOCK(&s->lock);
    if (rank >= s->count)
        return muster_error_set(err, -EINVAL, NULL, "there is no rank %u", rank);
    if (!ms_rollout_has(s->rollout, rank))
        return 0;
    if (is_last(s, rank))
        return muster_error_set(err, -EINVAL, NULL, "at least one replica must stay");
    ms_rollout_drain(s->rollout, rank);
    rc = await_drained(s, rank, rank + 1, until_ns);
    return rc < 0 ? muster_error_set(
                        err, rc, NULL, "rank %u did not let go of its requests", rank)
                  : 0;
}

int muster_scheduler_undrain(struct muster_scheduler *s,
                             uint32_t rank,
                             struct muster_error *err)
{
    const struct muster_cluster *c = s->cluster;
    struct ms_rollout_replica what = {.slots = s->slots, .kv_tokens = s->kv_tokens};
    struct ms_error why = {0};
    int rc = check_usable(s, err);

    if (rc < 0)
        return rc;
    MS_LOCK(&s->lock);
    if (rank >= s->count || rank >= c->world_size)
        return muster_error_set(err, -EINVAL, NULL, "there is no rank %u", rank);
    what.peer = c->workers[rank].peer;
    rc = ms_rollout_add(s->rollout, rank, &what, &why);
    return rc < 0 ? ms_capi_error(&why, err) : 0;
}

int muster_scheduler_resize(struct muster_scheduler *s,
                            uint32_t world_size,
                            int64_t timeout_ns,
                            struct muster_error *err)
{
    int64_t until_ns = ms_deadline_ns(ms_now_ns(), timeout_ns);
    uint32_t before;
    int rc = check_usable(s, err);

    if (rc < 0)
        return rc;
    MS_LOCK(&s->lock);
    if (world_size == 0)
        return muster_error_set(err, -EINVAL, NULL, "a scheduler needs a replica");
    before = s->count;
    drop(s, world_size);
    rc = await_drained(s, world_size, before, until_ns);
    if (rc < 0)
        muster_error_set(err, rc, NULL, "replicas did not let go of their requests");
    else
        rc = muster_cluster_resize(s->cluster, world_size, RESIZE_GRACE_NS, err);
    if (add(s, s->cluster, NULL) < 0)
        s->changes = NOT_LOOKED; /* later: one is still being drained */
    return rc;
}
