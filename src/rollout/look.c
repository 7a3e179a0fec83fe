/* look.c - what others may see of a rollout: its numbers and those of its replicas, why a
 * request is where it is, and the timeline of events and decisions */
#include "rollout/rollout_impl.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

const char *ms_rollout_state_name(uint32_t state)
{
    static const char *const names[] = {[MS_ROLLOUT_FREE] = "free",
                                        [MS_ROLLOUT_UP] = "up",
                                        [MS_ROLLOUT_DRAINING] = "draining",
                                        [MS_ROLLOUT_DOWN] = "down",
                                        [MS_ROLLOUT_WAITING] = "waits for weights"};

    return state < MS_COUNT(names) ? names[state] : "unknown";
}

void ms_rollout_stats(struct ms_rollout *r, struct ms_rollout_stats *out)
{
    *out = (struct ms_rollout_stats){0};
    MS_ROLLOUT_ENTER(r, );

    if (ms_rollout_check(r) == 0)
        ms_rollout_replicas_check(r);
    *out = (struct ms_rollout_stats){.core = ms_scheduler_stats(r->core),
                                     .submitted = r->submitted,
                                     .sessions = ms_gen_sessions_count(r->sessions),
                                     .partials = ms_partials_stats(r->partials),
                                     .version = r->version,
                                     .bias = ms_scheduler_bias(r->core),
                                     .correlation = ms_lengths_icc(r->lengths),
                                     .saves = r->save_stats};
}

bool ms_rollout_replica_stats(struct ms_rollout *r,
                              uint32_t i,
                              struct ms_rollout_replica_stats *out)
{
    const struct replica *rep;
    MS_ROLLOUT_ENTER(r, false);

    if (i >= r->replica_count)
        return false;
    rep = r->replicas[i];
    *out = (struct ms_rollout_replica_stats){.replica = i, .state = MS_ROLLOUT_FREE};
    if (!rep)
        return true;
    out->state = rep->state;
    out->slots = r->slots;
    out->version = rep->version;
    out->epoch = rep->epoch;
    out->running = rep->running;
    out->tokens = rep->tokens;
    snprintf(out->failure, sizeof out->failure, "%s", rep->failure);
    return true;
}

int ms_rollout_explain(struct ms_rollout *r,
                       const char *rid,
                       struct ms_explanation *x,
                       char *text,
                       size_t size)
{
    uint64_t id;
    int rc = ms_rollout_rid_parse(r, rid, &id);
    MS_ROLLOUT_ENTER(r, -ECHILD);

    if (rc == 0)
        rc = ms_rollout_check(r);
    if (rc == 0)
        rc = ms_scheduler_explain(r->core, id, 0, 0, x);
    if (rc == 0)
        ms_explanation_print(x, text, size);
    return rc;
}

int ms_rollout_rid(struct ms_rollout *r,
                   uint64_t group,
                   uint32_t seq,
                   char rid[MS_ROLLOUT_RID])
{
    const struct group *g;
    MS_ROLLOUT_ENTER(r, -ECHILD);

    g = ms_rollout_group_find(r, group);
    if (!g || seq >= g->out->count)
        return -ENOENT;
    memcpy(rid, g->out->samples[seq].rid, MS_ROLLOUT_RID);
    return 0;
}

/* ---- the timeline ------------------------------------------------------------------ */

static struct ms_rollout_mark *mark(struct ms_rollout *r)
{
    struct ms_rollout_mark *m = &r->marks[r->mark_count++ % MS_ROLLOUT_MARKS];

    *m = (struct ms_rollout_mark){.at_ns = ms_now_ns(), .replica = MS_NOWHERE};
    return m;
}

void ms_rollout_mark_decision(struct ms_rollout *r,
                              const struct ms_generate_decision *d)
{
    struct ms_rollout_mark *m = mark(r);

    m->is_decision = true;
    m->what = d->what;
    m->why = d->why;
    m->seq = d->seq;
    m->request = d->what == MS_SEND || d->what == MS_ABORT ? d->id : 0;
    m->group = d->group;
    m->replica = d->replica;
    m->attempt = d->attempt;
    m->tokens = d->tokens;
    m->version = d->version;
}

/* Progress and load come too often, and ticks say nothing. */
void ms_rollout_mark_event(struct ms_rollout *r, const struct ms_generate_event *e)
{
    bool is_report = e->what >= MS_PROGRESS && e->what <= MS_FAILED;
    const struct request *q = is_report ? ms_map_find(&r->requests, e->id) : NULL;
    struct ms_rollout_mark *m;

    if (e->what == MS_PROGRESS || e->what == MS_WAITING || e->what == MS_LOAD ||
        e->what == MS_TICK)
        return;
    m = mark(r);
    m->what = (uint16_t)e->what;
    m->request = is_report ? e->id : 0;
    m->group = q ? q->group->out->id : e->what == MS_SUBMIT ? e->id : 0;
    m->seq = q ? (uint16_t)q->sample->seq : 0;
    m->replica = e->what == MS_REPLICA_UP || e->what == MS_REPLICA_DOWN ||
                         e->what == MS_DRAIN || e->what == MS_WEIGHTS_READY
                     ? e->replica
                 : q ? q->sample->replica
                     : MS_NOWHERE;
    m->attempt = e->attempt;
    m->tokens = is_report ? e->tokens : e->samples;
    m->version = e->version;
}

size_t ms_rollout_marks(struct ms_rollout *r,
                        uint64_t from,
                        struct ms_rollout_mark *out,
                        size_t room,
                        uint64_t *next)
{
    uint64_t first;
    size_t n = 0;
    *next = from;
    MS_ROLLOUT_ENTER(r, 0);

    first = r->mark_count > MS_ROLLOUT_MARKS ? r->mark_count - MS_ROLLOUT_MARKS : 0;
    if (from < first)
        from = first;
    for (; from < r->mark_count && n < room; from++)
        out[n++] = r->marks[from % MS_ROLLOUT_MARKS];
    *next = from;
    return n;
}
