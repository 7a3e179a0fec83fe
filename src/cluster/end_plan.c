/* end_plan.c - in which order ranks of a cluster end: rank 0 last */
#include "cluster/end_plan.h"
#include "base/clock.h"
#include "cluster/spec.h"

#include <assert.h>
#include <errno.h>

/* Rank 0 has at least this part of the grace to itself. */
#define FIRST_SHARE 4

/* The next one that ends; NULL comes before the first and after the last. */
static const struct ms_slot *next(const struct ms_end_plan *p,
                                  const struct ms_cluster *c,
                                  const struct ms_slot *after)
{
    size_t i = after ? after->rank + (size_t)1 : 0;

    if (!p->is_all)
        return ms_cluster_next_changing(c, after);
    return i < c->count ? &c->slots[i] : NULL;
}

/* Rank 0 lives, and others of these have to end before it. */
static bool has_first(const struct ms_end_plan *p, const struct ms_cluster *c)
{
    const struct ms_slot *first = next(p, c, NULL);

    return first && first->rank == 0 && next(p, c, first) && ms_slot_is_live(first);
}

/* It hosts engines of Python's. */
static bool can_clean(const struct ms_cluster *c)
{
    return c->spec && c->spec->n_steps && !ms_cluster_spec_is_native(c->spec);
}

void ms_end_plan_init(struct ms_end_plan *p,
                      const struct ms_cluster *c,
                      bool is_all,
                      int64_t grace_ns,
                      int64_t now_ns)
{
    *p = (struct ms_end_plan){.is_all = is_all,
                              .grace_ns = grace_ns,
                              .until_ns = ms_deadline_ns(now_ns, grace_ns),
                              .waves = {MS_END_ALL},
                              .count = 1};
    if (grace_ns <= 0 || !has_first(p, c))
        return;
    p->cleans_first = can_clean(c);
    p->waves[0] = MS_END_OTHERS;
    p->waves[1] = MS_END_FIRST;
    p->count = 2;
}

static int64_t
grace_of(const struct ms_end_plan *p, enum ms_end_who who, int64_t now_ns)
{
    int64_t share_ns = p->grace_ns / FIRST_SHARE, left_ns;

    switch (who) {
    case MS_END_OTHERS:
        return p->grace_ns - share_ns;
    case MS_END_FIRST: /* what the others have left of it */
        left_ns = p->until_ns - now_ns;
        return left_ns > share_ns ? left_ns : share_ns;
    default:
        return p->grace_ns > 0 ? p->grace_ns : 0;
    }
}

bool ms_end_plan_next(struct ms_end_plan *p, int64_t now_ns, struct ms_end_wave *out)
{
    if (p->at == p->count)
        return false;
    out->who = p->waves[p->at++];
    out->grace_ns = grace_of(p, out->who, now_ns);
    return true;
}

int64_t ms_end_plan_time_ns(const struct ms_end_plan *p)
{
    return ms_deadline_ns(MS_STOP_GRACE_NS, p->grace_ns);
}

bool ms_end_plan_asks(const struct ms_end_plan *p,
                      const struct ms_end_wave *wave,
                      const struct ms_slot *slot)
{
    return (p->is_all || slot->is_changing) && slot->now.uid && slot->now.address &&
           (wave->who == MS_END_ALL ||
            (slot->rank == 0) == (wave->who == MS_END_FIRST));
}

size_t ms_end_plan_left(const struct ms_end_plan *p, const struct ms_cluster *c)
{
    size_t n = 0;

    for (const struct ms_slot *s = NULL; (s = next(p, c, s));)
        n += ms_slot_is_live(s);
    return n;
}

int ms_end_plan_late(const struct ms_end_plan *p,
                     const struct ms_cluster *c,
                     struct ms_error *err)
{
    const struct ms_slot *one = NULL;
    size_t count = 0;

    for (const struct ms_slot *s = NULL; (s = next(p, c, s)); count++)
        if (!one && ms_slot_is_live(s))
            one = s;
    assert(one);
    return ms_error_set(err,
                        -ETIMEDOUT,
                        "%zu of %zu workers of cluster '%s' have not ended in time, "
                        "among them rank %u (pid %d on node %s)",
                        ms_end_plan_left(p, c),
                        count,
                        c->name,
                        one->rank,
                        (int)one->now.pid,
                        one->node);
}
