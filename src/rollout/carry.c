/* carry.c - what the scheduler has decided is done */
#include "rollout/rollout_impl.h"

static struct ms_generate_event report(uint32_t what, uint64_t id, uint32_t attempt)
{
    return (struct ms_generate_event){.what = what, .id = id, .attempt = attempt};
}

static void send(struct ms_rollout *r, const struct ms_generate_decision *d)
{
    struct replica *rep = ms_rollout_replica_find(r, d->replica);
    struct group *g = ms_rollout_group_find(r, d->group);
    struct request *q = g && d->seq < g->out->count ? &g->requests[d->seq] : NULL;

    if (!rep || rep->epoch != d->epoch || !q) {
        ms_rollout_later(r, report(MS_FAILED, d->id, d->attempt));
        return;
    }
    if (!q->id) {
        q->id = d->id;
        ms_map_add(&r->requests, d->id, q);
    }
    q->sample->replica = d->replica;
    q->sample->attempt = d->attempt;
    if (rep->state == MS_ROLLOUT_DOWN || ms_rollout_replica_has_changed(r, rep))
        return; /* the event that says so is on its way, and is the answer */
    if (ms_rollout_call_start_generate(r, rep, q, d) < 0)
        ms_rollout_later(r, report(MS_FAILED, d->id, d->attempt));
}

/* Of this attempt, or NULL. */
static struct open_call *stream_of(struct replica *rep,
                                   const struct ms_generate_decision *d)
{
    ms_list_each (c, &rep->calls, struct open_call, link)
        if (c->kind == CALL_GENERATE && c->id == d->id && c->attempt == d->attempt)
            return c;
    return NULL;
}

/* Is the request sent again after an abort for this reason? */
static bool goes_on(uint16_t why)
{
    return why == MS_WHY_MOVED || why == MS_WHY_YIELDED || why == MS_WHY_WEIGHTS ||
           why == MS_WHY_DRAINED || why == MS_WHY_SILENT || why == MS_WHY_PREEMPTED;
}

/* The stream is cancelled, and then the engine is asked for an answer: it comes behind the
 * cancel, so the attempt is over then. */
static void abort_one(struct ms_rollout *r, const struct ms_generate_decision *d)
{
    struct replica *rep = ms_rollout_replica_find(r, d->replica);
    struct open_call *stream = rep ? stream_of(rep, d) : NULL, *ack;
    struct request *q = ms_map_find(&r->requests, d->id);
    struct muster_value *rid;
    char text[MS_ROLLOUT_RID];
    uint32_t tokens;

    if (stream && ms_rollout_call_take_items(r, stream) < 0)
        return;
    if (!stream || ms_rollout_call_finish_whole(r, stream)) {
        if (q && !goes_on(d->why)) /* its end is on its way to the scheduler */
            q->is_unwanted = true;
        return;
    }
    tokens = stream->tokens;
    ms_rollout_call_drop(
        r, stream); /* before the question, so that the answer is behind it */
    ms_rollout_rid_print(r, d->id, text);
    rid = muster_value_text(text);
    ack = rid ? ms_rollout_call_start(r, rep, CALL_ABORT, rid) : NULL;
    muster_value_destroy(rid);
    if (!ack) {
        ms_rollout_replica_down(r, rep, "no memory to abort a request");
        return;
    }
    ack->id = d->id;
    ack->attempt = d->attempt;
    ack->tokens = tokens;
}

static void probe(struct ms_rollout *r, const struct ms_generate_decision *d)
{
    struct replica *rep = ms_rollout_replica_find(r, d->replica);

    if (rep && rep->epoch == d->epoch)
        ms_rollout_call_start(r, rep, CALL_PROBE, NULL);
}

static void evict(struct ms_rollout *r, const struct ms_generate_decision *d)
{
    struct replica *rep = ms_rollout_replica_find(r, d->replica);

    if (rep && rep->epoch == d->epoch)
        ms_rollout_replica_down(
            r, rep, "it did not answer when it was asked whether it runs");
}

static void release(struct ms_rollout *r, const struct ms_generate_decision *d)
{
    struct replica *rep = ms_rollout_replica_find(r, d->replica);

    if (!rep || rep->epoch != d->epoch)
        return;
    if (rep->is_behind) {
        ms_rollout_weights_wait(r, rep);
        return;
    }
    ms_rollout_replica_released(r, rep);
    ms_rollout_role_settle(r, d->replica);
}

static void update(struct ms_rollout *r, const struct ms_generate_decision *d)
{
    struct replica *rep = ms_rollout_replica_find(r, d->replica);

    if (rep && rep->epoch == d->epoch)
        ms_rollout_weights_tell(r, rep);
}

void ms_rollout_carry_out(struct ms_rollout *r, const struct ms_generate_decision *d)
{
    ms_rollout_mark_decision(r, d);
    switch ((enum ms_decide_what)d->what) {
    case MS_SEND:
        send(r, d);
        break;
    case MS_ABORT:
        abort_one(r, d);
        break;
    case MS_PROBE:
        probe(r, d);
        break;
    case MS_EVICT:
        evict(r, d);
        break;
    case MS_RELEASED:
        release(r, d);
        break;
    case MS_UPDATE:
        update(r, d);
        break;
    case MS_UPDATED:
        ms_rollout_weights_updated(r, d->version);
        break;
    case MS_READY:
        ms_rollout_group_ready(r, d->group);
        break;
    case MS_DROP:
        ms_rollout_group_dropped(r, d->group, d->why);
        break;
    case MS_REFILL:
        r->refill += d->tokens;
        ms_rollout_news(r);
        break;
    case MS_DELIVER:
        ms_rollout_group_delivered(r, d->group);
        break;
    case MS_BATCH:
        break;
    }
}
