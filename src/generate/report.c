/* report.c - what engines report of requests */
#include "generate/scheduler_impl.h"

/* The request that a report is about; MS_NONE if it is late. */
static uint32_t subject(struct ms_scheduler *s, const struct ms_generate_event *e)
{
    uint32_t i = ms_gen_request_find(s, e->id);

    if (i != MS_NONE && s->requests[i].attempt == e->attempt &&
        (s->requests[i].state == MS_REQUEST_RUNNING ||
         s->requests[i].state == MS_REQUEST_ABORTING))
        return i;
    s->stats.late++;
    return MS_NONE;
}

/* It has left its replica and is not wanted. */
static void over(struct ms_scheduler *s, uint32_t i)
{
    struct ms_gen_request *q = &s->requests[i];

    q->state = MS_REQUEST_DONE;
    s->stats.live--;
    s->stats.surplus_tokens += q->generated;
    if (q->generated > 0)
        ms_bias_add(s->bins_all, q->generated); /* at least so long */
    s->groups[q->group].pending--;
    ms_gen_group_request_over(s, q->group);
}

/* The attempt has ended without its request having ended. */
static void attempt_over(struct ms_scheduler *s, uint32_t i)
{
    struct ms_gen_request *q = &s->requests[i];
    bool silent = q->state == MS_REQUEST_ABORTING && q->why == MS_WHY_SILENT;

    ms_gen_request_leave(s, i);
    if (q->state == MS_REQUEST_RUNNING)
        q->why = MS_WHY_CHUNK;
    if (q->ends)
        over(s, i);
    else if (silent)
        ms_gen_request_failed(s, i);
    else
        ms_gen_request_queue(s, i);
}

static void finished(struct ms_scheduler *s, uint32_t i)
{
    struct ms_gen_request *q = &s->requests[i];

    ms_gen_request_leave(s, i);
    if (q->ends)
        over(s, i);
    else
        ms_gen_group_sample_done(s, i);
}

static void refused(struct ms_scheduler *s, uint32_t i)
{
    ms_gen_request_queue(s, i);
    ms_gen_group_drop(s, s->requests[i].group, MS_WHY_REFUSED);
}

int ms_report_take(struct ms_scheduler *s, const struct ms_generate_event *e)
{
    uint32_t i = subject(s, e);
    struct ms_gen_request *q;

    if (i == MS_NONE)
        return 0;
    q = &s->requests[i];
    if (e->what != MS_FAILED) {
        ms_gen_request_heard(s, i);
        ms_gen_request_tokens(s, i, e->tokens);
    }
    if (e->what == MS_FINISHED || ((e->what == MS_CHUNK || e->what == MS_ABORTED) &&
                                   q->generated == q->max_new)) {
        finished(s, i); /* also one that was being aborted: it was quicker */
    } else if (e->what == MS_FAILED) {
        ms_gen_request_leave(s, i);
        q->why = MS_WHY_FAILED;
        if (q->ends)
            over(s, i);
        else if (e->keep)
            refused(s, i);
        else
            ms_gen_request_failed(s, i);
    } else if (e->what != MS_PROGRESS && e->what != MS_WAITING) {
        attempt_over(s, i);
    }
    return 0;
}

int ms_report_fell_back(struct ms_scheduler *s, const struct ms_generate_event *e)
{
    struct ms_gen_replica *r = ms_gen_replica_of(s, e);
    uint32_t i = subject(s, e);

    if (i != MS_NONE && e->version < s->requests[i].oldest)
        s->requests[i].oldest = e->version;
    if (!r || e->version >= r->version)
        return 0;
    r->version = e->version;
    return r->state == MS_REPLICA_DRAINING ? 0 : ms_gen_replica_drain(s, e);
}
