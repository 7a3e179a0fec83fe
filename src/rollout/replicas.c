/* replicas.c - the workers that generate: up, down, sought, let go, measured */
#include "rollout/rollout_impl.h"

#include "base/buf.h"

#include <errno.h>
#include <stdio.h>

struct replica *ms_rollout_replica_find(const struct ms_rollout *r, uint32_t number)
{
    return number < r->replica_count ? r->replicas[number] : NULL;
}

/* ---- up ---------------------------------------------------------------------------- */

void ms_rollout_replica_up(struct ms_rollout *r, struct replica *rep)
{
    rep->state = MS_ROLLOUT_UP;
    rep->epoch = ++r->epochs; /* later than all of this number before */
    rep->update = UPDATE_NONE;
    rep->failure[0] = '\0';
    ms_rollout_weights_go_on(r, rep);
    ms_rollout_later(r,
                     (struct ms_generate_event){.what = MS_REPLICA_UP,
                                                .replica = rep->number,
                                                .epoch = rep->epoch,
                                                .samples = r->slots,
                                                .tokens = r->kv_tokens,
                                                .version = rep->version});
    ms_rollout_news(r);
}

/* Of what it was given last. A worker that was never here has the weights that all began
 * with. */
static uint32_t version_of(struct ms_rollout *r, uint64_t uid)
{
    uintptr_t known = (uintptr_t)ms_map_remove(&r->versions, uid);

    return known ? (uint32_t)(known - 1) : r->first_version;
}

static void keep_version(struct ms_rollout *r, const struct replica *rep)
{
    if (rep->version == r->first_version)
        return;
    ms_map_remove(&r->versions, rep->uid);
    ms_map_add(&r->versions, rep->uid, (void *)((uintptr_t)rep->version + 1));
}

static struct replica *make(struct ms_rollout *r, uint32_t number, struct ms_peer *peer)
{
    struct replica *rep = calloc(1, sizeof *rep);

    if (!rep)
        return NULL;
    if (ms_array_reserve(
            &r->replicas, &r->replica_room, (size_t)number + 1, sizeof *r->replicas) <
        0) {
        free(rep);
        return NULL;
    }
    if (r->replica_count <= number)
        r->replica_count = (size_t)number + 1;
    rep->number = number;
    rep->peer = ms_peer_ref(peer);
    rep->uid = ms_peer_uid(peer);
    rep->version = version_of(r, rep->uid);
    ms_list_init(&rep->calls);
    return r->replicas[number] = rep;
}

int ms_rollout_replica_add(struct ms_rollout *r, uint32_t number, struct ms_peer *peer)
{
    struct replica *rep = make(r, number, peer);

    if (!rep)
        return -ENOMEM;
    if (r->is_updating || rep->version != r->version) { /* it has missed it */
        rep->state = MS_ROLLOUT_WAITING;
        ms_rollout_news(r);
    } else {
        ms_rollout_replica_up(r, rep);
    }
    return 0;
}

/* ---- down -------------------------------------------------------------------------- */

void ms_rollout_replica_down(struct ms_rollout *r, struct replica *rep, const char *why)
{
    if (rep->state == MS_ROLLOUT_DOWN)
        return;
    snprintf(rep->failure, sizeof rep->failure, "%s", why);
    if (ms_peer_uid(rep->peer) ==
        rep->uid) /* what has come is of the worker that we knew */
        ms_list_each (c, &rep->calls, struct open_call, link)
            ms_rollout_call_take_items(r, c);
    ms_list_each (c, &rep->calls, struct open_call, link)
        if (!ms_rollout_call_finish_whole(r, c) && c->request)
            snprintf(c->request->sample->failure, MS_ROLLOUT_FAILURE, "%s", why);
    ms_rollout_call_drop_all(r, rep);
    ms_rollout_later(r,
                     (struct ms_generate_event){.what = MS_REPLICA_DOWN,
                                                .replica = rep->number,
                                                .epoch = rep->epoch});
    rep->is_pausing = false;
    if (rep->state == MS_ROLLOUT_DRAINING && !rep->is_behind) {
        uint32_t number = rep->number;

        ms_rollout_replica_released(r, rep);
        ms_rollout_role_settle(r, number);
        return;
    }
    rep->state = MS_ROLLOUT_DOWN;
    rep->is_behind = false;
    rep->update = UPDATE_NONE;
    rep->seek_ns = ms_now_ns();
    r->tick_ns = rep->seek_ns;
    ms_rollout_news(r);
}

bool ms_rollout_replica_has_changed(struct ms_rollout *r, struct replica *rep)
{
    if (rep->state == MS_ROLLOUT_DOWN || ms_peer_uid(rep->peer) == rep->uid)
        return false;
    ms_rollout_replica_down(r, rep, "another worker has its place");
    return true;
}

void ms_rollout_replicas_check(struct ms_rollout *r)
{
    for (size_t i = 0; i < r->replica_count; i++)
        if (r->replicas[i])
            ms_rollout_replica_has_changed(r, r->replicas[i]);
    if (r->event_count > 0)
        ms_rollout_step(r, NULL);
}

/* ---- sought ------------------------------------------------------------------------ */

void ms_rollout_replica_found(struct ms_rollout *r, struct replica *rep)
{
    uint64_t uid = ms_peer_uid(rep->peer);

    if (rep->state != MS_ROLLOUT_DOWN)
        return;
    if (uid != rep->uid) {
        rep->uid = uid;
        rep->version = r->first_version; /* as a new worker begins */
        rep->no_pause = rep->is_standing = false;
    }
    if (r->is_updating || rep->version != r->version) {
        rep->state = MS_ROLLOUT_WAITING;
        ms_rollout_news(r);
        return;
    }
    ms_rollout_replica_up(r, rep);
}

/* Ask for those that are down; when to ask next. */
int64_t ms_rollout_replicas_tick(struct ms_rollout *r, int64_t now_ns)
{
    int64_t next_ns = MS_NEVER;

    for (size_t i = 0; i < r->replica_count; i++) {
        struct replica *rep = r->replicas[i];

        if (!rep || rep->state != MS_ROLLOUT_DOWN || !ms_list_is_empty(&rep->calls))
            continue;
        if (rep->seek_ns <= now_ns) {
            rep->seek_ns = now_ns + MS_ROLLOUT_SEEK_NS;
            if (ms_rollout_call_start(r, rep, CALL_SEEK, NULL))
                continue;
        }
        if (rep->seek_ns < next_ns)
            next_ns = rep->seek_ns;
    }
    return next_ns;
}

/* ---- let go ------------------------------------------------------------------------ */

void ms_rollout_replica_released(struct ms_rollout *r, struct replica *rep)
{
    ms_rollout_call_drop_all(r, rep);
    if (rep->is_standing && ms_peer_uid(rep->peer) == rep->uid &&
        ms_rollout_call_start(r, rep, CALL_RESUME, NULL))
        ms_rollout_call_drop_all(r, rep);
    keep_version(r, rep);
    r->replicas[rep->number] = NULL;
    ms_peer_unref(rep->peer);
    free(rep);
    ms_rollout_news(r);
}

/* ---- measured ---------------------------------------------------------------------- */

/* How long a step takes: tokens of one request since it was heard of last. */
void ms_rollout_replica_measure(struct ms_rollout *r,
                                struct replica *rep,
                                struct open_call *c,
                                uint32_t tokens,
                                int64_t now_ns)
{
    if (tokens == 0 || c->tokens - tokens == c->before || now_ns < rep->load_ns)
        return; /* the first chunk has the prefill in it */
    rep->load_ns = now_ns + MS_ROLLOUT_LOAD_NS;
    ms_rollout_later(
        r,
        (struct ms_generate_event){.what = MS_LOAD,
                                   .replica = rep->number,
                                   .epoch = rep->epoch,
                                   .samples = rep->running,
                                   .step_ns = (now_ns - c->heard_ns) / tokens});
}
