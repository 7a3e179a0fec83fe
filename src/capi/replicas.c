/* replicas.c - the replicas of a scheduler in C: the rollout is told of the cluster's workers,
 * also when that has been resized, by whomever */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/lock.h"
#include "capi/capi.h"
#include "capi/generate.h"

#include <errno.h>
#include <string.h>

#define RESIZE_GRACE_NS (5 * MS_NS_PER_S) /* of workers that go: they run nothing */

/* ---- the mesh ---------------------------------------------------------------------- */

/* In a submitted job a cluster is called JOB.ROLE. */
static const json_t *role_of(const struct muster_cluster *c, const json_t *job)
{
    const json_t *roles = json_object_get(job, "roles");
    const json_t *role = json_object_get(roles, c->name);
    const char *dot = strrchr(c->name, '.');

    return role || !dot ? role : json_object_get(roles, dot + 1);
}

void ms_capi_replicas_mesh(const struct muster_cluster *c,
                           const json_t *job,
                           struct muster_scheduler_options *o)
{
    const json_t *mesh = json_object_get(role_of(c, job), "mesh");

    if (o->tp || o->cp || o->pp || !mesh)
        return;
    o->tp = (uint32_t)json_integer_value(json_object_get(mesh, "tp"));
    o->cp = (uint32_t)json_integer_value(json_object_get(mesh, "cp"));
    o->pp = (uint32_t)json_integer_value(json_object_get(mesh, "pp"));
}

/* ---- followed ---------------------------------------------------------------------- */

static int
follow(struct muster_scheduler *s, const struct muster_cluster *c, struct ms_error *err)
{
    MS_CLEANUP(ms_cleanup_free)
    struct ms_peer **peers = calloc((size_t)c->world_size + 1, sizeof *peers);

    if (!peers)
        return ms_error_set(err, -ENOMEM, "no memory for %u workers", c->world_size);
    for (uint32_t i = 0; i < c->world_size; i++)
        peers[i] = c->workers[i].peer;
    return ms_rollout_follow(s->rollout, peers, c->world_size, err);
}

int ms_capi_replicas_init(struct muster_scheduler *s, struct ms_error *err)
{
    const struct muster_cluster *c = s->cluster;

    if (c->world_size == 0)
        return ms_error_set(err, -EINVAL, "cluster '%s' has no workers", c->name);
    s->changes = ms_head_changes(c->session->head);
    s->first = ms_peer_ref(c->workers[0].peer);
    return follow(s, c, err);
}

/* What the head says of it now. Negative: it cannot be told, ask again. */
static int look(struct muster_scheduler *s)
{
    struct muster_cluster *found = ms_capi_cluster_open(
        s->cluster->session, s->cluster->name, ms_peer_uid(s->first), NULL);
    int rc = found ? follow(s, found, NULL) : -EAGAIN;

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

/* ---- fewer ------------------------------------------------------------------------- */

static int drain(struct ms_rollout *r, uint32_t rank)
{
    return ms_rollout_drain(r, &rank, 1);
}

/* Until no request is left at those that go. */
static int await_gone(struct muster_scheduler *s,
                      int (*attempt)(struct ms_rollout *, uint32_t),
                      uint32_t number,
                      int64_t until_ns)
{
    for (;;) {
        uint64_t seen = ms_rollout_wait(s->rollout, 0, 0);
        int rc = attempt(s->rollout, number);

        if (rc != -EAGAIN)
            return rc;
        if (ms_now_ns() >= until_ns)
            return -ETIMEDOUT;
        ms_rollout_wait(s->rollout, seen, until_ns);
    }
}

int muster_scheduler_drain(struct muster_scheduler *s,
                           uint32_t rank,
                           int64_t timeout_ns,
                           struct muster_error *err)
{
    int rc = await_gone(s, drain, rank, ms_deadline_ns(ms_now_ns(), timeout_ns));

    if (rc == -ENOENT)
        return muster_error_set(err, -EINVAL, NULL, "there is no rank %u", rank);
    if (rc == -EINVAL)
        return muster_error_set(err, rc, NULL, "at least one replica must stay");
    if (rc == -ETIMEDOUT)
        return muster_error_set(
            err, rc, NULL, "rank %u did not let go of its requests", rank);
    return rc < 0 ? ms_capi_generate_failed(rc, "drain", err) : 0;
}

int muster_scheduler_undrain(struct muster_scheduler *s,
                             uint32_t rank,
                             struct muster_error *err)
{
    int rc = ms_rollout_undrain(s->rollout, &rank, 1);

    if (rc == -ENOENT)
        return muster_error_set(err, -EINVAL, NULL, "there is no rank %u", rank);
    return rc < 0 ? ms_capi_generate_failed(rc, "undrain", err) : 0;
}

static int check_size(const struct muster_scheduler *s,
                      uint32_t world_size,
                      struct muster_error *err)
{
    int rc =
        ms_rollout_status(s->rollout); /* before the lock: it may be a forked child */

    if (rc < 0)
        return ms_capi_generate_failed(rc, "resize", err);
    if (world_size == 0)
        return muster_error_set(err, -EINVAL, NULL, "a scheduler needs a replica");
    if (world_size % s->width != 0)
        return muster_error_set(
            err, -EINVAL, NULL, "a replica has %u ranks of its mesh", s->width);
    return 0;
}

int muster_scheduler_resize(struct muster_scheduler *s,
                            uint32_t world_size,
                            int64_t timeout_ns,
                            struct muster_error *err)
{
    int64_t until_ns = ms_deadline_ns(ms_now_ns(), timeout_ns);
    int rc = check_size(s, world_size, err);

    if (rc < 0)
        return rc;
    MS_LOCK(&s->lock);
    rc = await_gone(s, ms_rollout_limit, world_size / s->width, until_ns);
    if (rc == -EINVAL)
        muster_error_set(
            err, rc, NULL, "a scheduler needs a replica that is not drained");
    else if (rc < 0)
        ms_capi_generate_failed(rc, "requests of replicas that go", err);
    else
        rc = muster_cluster_resize(s->cluster, world_size, RESIZE_GRACE_NS, err);
    follow(s, s->cluster, NULL);
    ms_rollout_limit(s->rollout, MS_ROLLOUT_NO_LIMIT);
    return rc;
}

int muster_scheduler_restored(struct muster_scheduler *s, uint32_t rank)
{
    int rc = ms_rollout_restored(s->rollout, rank);

    return rc == -EALREADY || rc == -EBUSY ? -EAGAIN : rc;
}
