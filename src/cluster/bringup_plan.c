/* bringup_plan.c - starting ranks of a cluster: what is asked when, and when it has failed */
#include "cluster/bringup_plan.h"
#include "base/clock.h"

#include <errno.h>

/* After a failure, for those of other ranks. */
#define TOGETHER_NS (500 * MS_NS_PER_MS)
/* For workers that take too long to say where they are. */
#define WHERE_NS (1 * MS_NS_PER_S)

int64_t ms_bringup_step_ns(const Muster__ClusterSpec *spec)
{
    uint64_t told_ns = spec->step_timeout_ns;

    if (told_ns == 0)
        return MS_CALL_TIMEOUT_NS;
    return told_ns < INT64_MAX ? (int64_t)told_ns : INT64_MAX;
}

int64_t ms_bringup_process_ns(int64_t step_timeout_ns)
{
    return step_timeout_ns < MS_START_NS - MS_START_SLACK_NS
               ? step_timeout_ns + MS_START_SLACK_NS
               : MS_START_NS;
}

static struct ms_bringup_answer answer(enum ms_bringup_do what)
{
    return (struct ms_bringup_answer){.what = what};
}

static struct ms_bringup_answer answer_at(enum ms_bringup_do what, int64_t timer_ns)
{
    return (struct ms_bringup_answer){what, true, timer_ns};
}

static struct ms_bringup_answer end(struct ms_bringup_plan *p)
{
    p->phase = MS_BRINGUP_ENDING;
    return answer(MS_BRINGUP_DO_END);
}

void ms_bringup_plan_init(struct ms_bringup_plan *p,
                          struct ms_cluster *c,
                          int64_t step_timeout_ns)
{
    *p = (struct ms_bringup_plan){.phase = MS_BRINGUP_NODES,
                                  .step_timeout_ns = step_timeout_ns > 0
                                                         ? step_timeout_ns
                                                         : ms_bringup_step_ns(c->spec)};
    ms_changing_each (s, c) {
        s->steps_sent = 0;
        s->start_run = 0;
        s->has_answered = false;
    }
}

/* ---- processes ------------------------------------------------------------------- */

static struct ms_bringup_answer begin_steps(struct ms_bringup_plan *p,
                                            const struct ms_cluster *c)
{
    int64_t steps = (int64_t)c->spec->n_steps;

    p->phase = MS_BRINGUP_STEPS;
    if (steps == 0)
        return answer(MS_BRINGUP_DO_DONE);
    ms_changing_each (s, c)
        p->open++;
    return answer_at(MS_BRINGUP_DO_STEPS,
                     ms_deadline_ns(0, p->step_timeout_ns * steps));
}

struct ms_bringup_answer ms_bringup_plan_answered(struct ms_bringup_plan *p,
                                                  const struct ms_cluster *c,
                                                  struct ms_error *err)
{
    for (struct ms_slot *s = NULL; !err->code && (s = ms_cluster_next_changing(c, s));)
        if (!s->now.address)
            ms_error_set(
                err,
                -EPROTO,
                "cannot create cluster '%s': an agent did not answer for every worker",
                c->name);
    if (err->code)
        return end(p);
    if (p->phase != MS_BRINGUP_NODES)
        return begin_steps(p, c);
    p->phase = MS_BRINGUP_HELPERS;
    return answer(MS_BRINGUP_DO_HELPERS);
}

/* ---- steps ----------------------------------------------------------------------- */

bool ms_bringup_plan_is_open(const struct ms_bringup_plan *p)
{
    return p->phase == MS_BRINGUP_STEPS ||
           (p->phase == MS_BRINGUP_FAILING && p->open > 0);
}

/* Let others that fail for the same reason say so. The end is never asked for at once: who
 * tells of a failure may look at the plan afterwards. */
static struct ms_bringup_answer begin_failing(struct ms_bringup_plan *p)
{
    bool is_new = p->phase == MS_BRINGUP_STEPS || p->open == 0;

    p->phase = MS_BRINGUP_FAILING;
    return is_new ? answer_at(MS_BRINGUP_DO_NOTHING, p->open ? TOGETHER_NS : 0)
                  : answer(MS_BRINGUP_DO_NOTHING);
}

struct ms_bringup_answer ms_bringup_plan_rank_done(struct ms_bringup_plan *p,
                                                   struct ms_slot *s)
{
    if (s->has_answered)
        return answer(MS_BRINGUP_DO_NOTHING);
    if (p->phase == MS_BRINGUP_STEPS && s->steps_sent < s->cluster->spec->n_steps)
        return answer(MS_BRINGUP_DO_MORE); /* more was done to all others meanwhile */
    s->has_answered = true;
    p->open--;
    if (p->phase == MS_BRINGUP_FAILING)
        return begin_failing(p);
    return answer(p->open == 0 ? MS_BRINGUP_DO_DONE : MS_BRINGUP_DO_NOTHING);
}

struct ms_bringup_answer
ms_bringup_plan_rank_failed(struct ms_bringup_plan *p, struct ms_slot *s, bool *counts)
{
    *counts = !s->has_answered;
    if (s->has_answered)
        return answer(MS_BRINGUP_DO_NOTHING);
    s->has_answered = true;
    p->open--;
    return begin_failing(p);
}

struct ms_bringup_answer ms_bringup_plan_late(struct ms_bringup_plan *p)
{
    if (p->phase != MS_BRINGUP_STEPS || p->is_late)
        return end(p);
    p->is_late = true;
    return answer_at(MS_BRINGUP_DO_ASK_WHERE, WHERE_NS);
}

struct ms_bringup_answer ms_bringup_plan_cancel(struct ms_bringup_plan *p,
                                                bool is_asked)
{
    if (p->phase == MS_BRINGUP_ENDING)
        return answer(MS_BRINGUP_DO_NOTHING);
    if (p->open > 0 || !is_asked) /* steps have begun, or nobody answers any more */
        return end(p);
    p->phase = MS_BRINGUP_FAILING; /* until the nodes have answered */
    return answer(MS_BRINGUP_DO_NOTHING);
}

/* ---- new incarnations ------------------------------------------------------------ */

int ms_cluster_renew(struct ms_registry *r,
                     struct ms_cluster *c,
                     uint64_t (*next_uid)(void),
                     struct ms_error *err)
{
    int rc = 0;

    for (struct ms_slot *s = NULL; rc == 0 && (s = ms_cluster_next_changing(c, s));)
        rc = ms_slot_renew(r, s, next_uid());
    if (rc == 0)
        return 0;
    ms_error_sys(err, rc, "cluster '%s'", c->name);
    ms_cluster_end_unstarted(r, c, false, err->text);
    return rc;
}
