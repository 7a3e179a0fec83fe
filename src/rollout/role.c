/* role.c - which workers of the role are replicas: as many as it has, but for those that are
 * drained; what is not so yet becomes so when a replica is released */
#include "rollout/rollout_impl.h"

#include "base/buf.h"

#include <errno.h>

static uint32_t stride_of(const struct ms_rollout *r)
{
    return r->mesh.tp * r->mesh.cp;
}

static uint32_t rank_of(const struct ms_rollout *r, uint32_t replica)
{
    return replica * stride_of(r);
}

uint32_t ms_rollout_rank(struct ms_rollout *r, uint32_t replica)
{
    MS_ROLLOUT_ENTER(r, MS_NOWHERE);

    return rank_of(r, replica);
}

int ms_rollout_number(const struct ms_rollout *r, uint32_t rank, uint32_t *replica)
{
    uint64_t ranks = (uint64_t)stride_of(r) * r->mesh.pp * r->member_count;

    if (rank >= ranks)
        return -ENOENT;
    *replica = rank / stride_of(r) % (uint32_t)r->member_count;
    return 0;
}

int ms_rollout_replica(struct ms_rollout *r, uint32_t rank, uint32_t *replica)
{
    int rc;
    MS_ROLLOUT_ENTER(r, -ECHILD);

    rc = ms_rollout_check(r);
    return rc < 0 ? rc : ms_rollout_number(r, rank, replica);
}

/* ---- as it should be --------------------------------------------------------------- */

static bool is_wanted(const struct ms_rollout *r, uint32_t number)
{
    return number < r->member_count && number < r->replicas_max &&
           !r->members[number].is_aside;
}

/* Requests that it has go elsewhere; it is gone when they have left. */
static void let_go(struct ms_rollout *r, struct replica *rep)
{
    const struct ms_generate_event e = {.what = MS_DRAIN, .replica = rep->number};

    rep->is_behind = false;
    if (rep->state == MS_ROLLOUT_DRAINING)
        return;
    if (rep->state != MS_ROLLOUT_UP) {
        ms_rollout_replica_released(r, rep);
        return;
    }
    rep->state = MS_ROLLOUT_DRAINING;
    rep->update = UPDATE_NONE;
    ms_rollout_later(r, e);
}

/* Another worker has its place. */
static void clear_place(struct ms_rollout *r, struct replica *rep)
{
    bool is_draining = rep->state == MS_ROLLOUT_DRAINING && !rep->is_behind;

    ms_rollout_replica_down(r, rep, "another worker has its place");
    if (!is_draining)
        ms_rollout_replica_released(r, rep);
}

int ms_rollout_role_settle(struct ms_rollout *r, uint32_t number)
{
    struct replica *rep = ms_rollout_replica_find(r, number);
    struct ms_peer *peer = is_wanted(r, number) ? r->members[number].peer : NULL;

    if (rep && !peer) {
        let_go(r, rep);
        return 0;
    }
    if (rep && rep->uid != ms_peer_uid(peer)) {
        clear_place(r, rep);
        rep = ms_rollout_replica_find(r, number);
    }
    return rep || !peer ? 0 : ms_rollout_replica_add(r, number, peer);
}

static int settle_all(struct ms_rollout *r)
{
    size_t count =
        r->replica_count > r->member_count ? r->replica_count : r->member_count;
    int rc = 0;

    for (size_t i = 0; i < count && rc == 0; i++)
        rc = ms_rollout_role_settle(r, (uint32_t)i);
    ms_rollout_step(r, NULL);
    return rc;
}

/* ---- its workers ------------------------------------------------------------------- */

static void members_resize(struct ms_rollout *r, size_t count)
{
    for (size_t i = count; i < r->member_count; i++)
        ms_peer_unref(r->members[i].peer);
    for (size_t i = r->member_count; i < count; i++)
        r->members[i] = (struct member){0};
    r->member_count = count;
}

void ms_rollout_role_finish(struct ms_rollout *r)
{
    members_resize(r, 0);
    free(r->members);
}

int ms_rollout_follow(struct ms_rollout *r,
                      struct ms_peer *const *peers,
                      uint32_t ranks,
                      struct ms_error *err)
{
    struct ms_mesh mesh;
    int rc;
    MS_ROLLOUT_ENTER(r, ms_error_set(err, -ECHILD, MS_ROLLOUT_FORKED));

    rc = ms_rollout_check(r);
    if (rc < 0)
        return ms_error_set(err, rc, "the scheduler is closed");
    mesh = r->mesh;
    mesh.dp = 0;
    if (ranks == 0)
        return ms_error_set(err, -EINVAL, "the role has no workers");
    rc = ms_mesh_fit(&mesh, ranks, err);
    if (rc < 0)
        return rc;
    if (mesh.dp > MS_GENERATE_REPLICAS_MAX)
        return ms_error_set(
            err, -EINVAL, "at most %d replicas", MS_GENERATE_REPLICAS_MAX);
    if (ms_array_reserve(&r->members, &r->member_room, mesh.dp, sizeof *r->members) < 0)
        return ms_error_set(err, -ENOMEM, "no memory for %u replicas", mesh.dp);
    members_resize(r, mesh.dp);
    for (uint32_t i = 0; i < mesh.dp; i++) {
        struct ms_peer *before = r->members[i].peer;

        r->members[i].peer = ms_peer_ref(peers[rank_of(r, i)]);
        ms_peer_unref(before);
    }
    rc = settle_all(r);
    return rc < 0 ? ms_error_set(err, rc, "no memory for a replica") : 0;
}

/* Is one of the first `replicas` not drained? */
static bool is_any_left(const struct ms_rollout *r, uint32_t replicas)
{
    for (size_t i = 0; i < r->member_count && i < replicas; i++)
        if (!r->members[i].is_aside && !r->members[i].is_going)
            return true;
    return false;
}

int ms_rollout_limit(struct ms_rollout *r, uint32_t replicas)
{
    int rc;
    MS_ROLLOUT_ENTER(r, -ECHILD);

    rc = ms_rollout_check(r);
    if (rc == 0 &&
        (replicas == 0 || (replicas < r->member_count && !is_any_left(r, replicas))))
        rc = -EINVAL;
    if (rc < 0)
        return rc;
    r->replicas_max = replicas;
    rc = settle_all(r);
    for (size_t i = replicas; i < r->replica_count; i++)
        if (r->replicas[i])
            return -EAGAIN;
    return rc;
}

/* ---- not used for a while ---------------------------------------------------------- */

/* -ENOENT: there is no such rank; -EINVAL: none would be left. Nothing has changed then. */
static int set_aside(struct ms_rollout *r, const uint32_t *ranks, size_t count)
{
    bool is_new = false, is_last;
    uint32_t number;

    for (size_t i = 0; i < count; i++)
        if (ms_rollout_number(r, ranks[i], &number) < 0)
            return -ENOENT;
    for (size_t i = 0; i < count; i++) {
        ms_rollout_number(r, ranks[i], &number);
        r->members[number].is_going = !r->members[number].is_aside;
        is_new = is_new || r->members[number].is_going;
    }
    is_last = is_new && !is_any_left(r, r->replicas_max);
    for (size_t i = 0; i < r->member_count; i++) {
        struct member *m = &r->members[i];

        m->is_aside = m->is_aside || (m->is_going && !is_last);
        m->is_going = false;
    }
    return is_last ? -EINVAL : 0;
}

int ms_rollout_drain(struct ms_rollout *r, const uint32_t *ranks, size_t count)
{
    uint32_t number;
    int rc;
    MS_ROLLOUT_ENTER(r, -ECHILD);

    rc = ms_rollout_check(r);
    if (rc == 0)
        rc = set_aside(r, ranks, count);
    if (rc == 0)
        rc = settle_all(r);
    for (size_t i = 0; rc == 0 && i < count; i++)
        if (ms_rollout_number(r, ranks[i], &number) == 0 &&
            ms_rollout_replica_find(r, number))
            rc = -EAGAIN;
    return rc;
}

int ms_rollout_undrain(struct ms_rollout *r, const uint32_t *ranks, size_t count)
{
    uint32_t number;
    int rc;
    MS_ROLLOUT_ENTER(r, -ECHILD);

    rc = ms_rollout_check(r);
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = ms_rollout_number(r, ranks[i], &number);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        ms_rollout_number(r, ranks[i], &number);
        r->members[number].is_aside = false;
    }
    return rc < 0 ? rc : settle_all(r);
}
