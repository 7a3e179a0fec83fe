/* batches.c - groups that are over are handed out: in batches, one by one, or to be judged */
#include "rollout/rollout_impl.h"

#include <assert.h>
#include <errno.h>

/* ---- batches ----------------------------------------------------------------------- */

void ms_rollout_group_delivered(struct ms_rollout *r, uint64_t id)
{
    struct group *g = ms_rollout_group_find(r, id);

    if (!g)
        return;
    g->state = GROUP_LEASED;
    g->batch = r->last_batch;
    ms_list_add_tail(&r->leased, &g->link);
}

static int report(struct ms_rollout *r, uint32_t what, uint64_t batch)
{
    const struct ms_generate_event e = {.what = what, .id = batch};

    return ms_rollout_step(r, &e);
}

/* -EAGAIN: so many are not ready. */
static int begin_batch(struct ms_rollout *r, uint32_t groups)
{
    const struct ms_generate_event e = {
        .what = MS_PULL, .id = r->last_batch + 1, .samples = groups};
    int rc = ms_rollout_check(r);

    if (rc < 0 || groups == 0)
        return rc < 0 ? rc : -EINVAL;
    ms_rollout_step(r, NULL); /* what waits may drop some */
    if (ms_scheduler_stats(r->core).ready < groups)
        return -EAGAIN;
    r->last_batch++;
    return ms_rollout_step(r, &e);
}

int ms_rollout_pull(struct ms_rollout *r,
                    uint32_t groups,
                    struct ms_rollout_group **out)
{
    uint32_t n = 0;
    int rc;
    MS_ROLLOUT_ENTER(r, -ECHILD);

    rc = begin_batch(r, groups);
    if (rc < 0)
        return rc;
    ms_list_each (g, &r->leased, struct group, link)
        if (g->batch == r->last_batch)
            out[n++] = ms_rollout_group_take(r, g);
    assert(n == groups);
    return report(r, MS_CONSUMED, r->last_batch);
}

static int return_batch(struct ms_rollout *r, uint64_t batch)
{
    int rc;

    ms_list_each (g, &r->leased, struct group, link)
        if (g->batch == batch) {
            ms_list_remove(&g->link);
            g->state = GROUP_READY;
        }
    rc = report(r, MS_RETURNED, batch);
    ms_rollout_news(r);
    return rc;
}

int ms_rollout_lease(struct ms_rollout *r,
                     uint32_t groups,
                     struct ms_rollout_group **out,
                     uint64_t *batch)
{
    uint32_t n = 0;
    int rc;
    MS_ROLLOUT_ENTER(r, -ECHILD);

    rc = begin_batch(r, groups);
    if (rc < 0)
        return rc;
    ms_list_each (g, &r->leased, struct group, link)
        if (rc == 0 && g->batch == r->last_batch) {
            out[n] = ms_rollout_group_copy(g->out);
            rc = out[n++] ? 0 : -ENOMEM;
        }
    if (rc == 0) {
        *batch = r->last_batch;
        return 0;
    }
    while (n-- > 0)
        ms_rollout_group_free(out[n]);
    return_batch(r, r->last_batch);
    return rc;
}

int ms_rollout_consumed(struct ms_rollout *r, uint64_t batch)
{
    int rc;
    MS_ROLLOUT_ENTER(r, -ECHILD);

    rc = ms_rollout_check(r);
    if (rc == 0)
        rc = report(r, MS_CONSUMED, batch);
    if (rc < 0)
        return rc;
    ms_list_each (g, &r->leased, struct group, link)
        if (g->batch == batch)
            ms_rollout_group_free(ms_rollout_group_take(r, g));
    return 0;
}

int ms_rollout_give_back(struct ms_rollout *r, uint64_t batch)
{
    int rc;
    MS_ROLLOUT_ENTER(r, -ECHILD);

    rc = ms_rollout_check(r);
    return rc < 0 ? rc : return_batch(r, batch);
}

/* ---- one by one -------------------------------------------------------------------- */

int ms_rollout_take(struct ms_rollout *r, uint64_t id, struct ms_rollout_group **out)
{
    const struct ms_generate_event e = {.what = MS_TAKE, .id = id};
    struct group *g;
    int rc;
    MS_ROLLOUT_ENTER(r, -ECHILD);

    rc = ms_rollout_check(r);
    if (rc < 0)
        return rc;
    g = ms_rollout_group_find(r, id);
    if (!g)
        return -ENOENT;
    if (g->state != GROUP_DROPPED && (rc = ms_rollout_step(r, &e)) < 0)
        return rc == -ENOENT ? -EAGAIN : rc;
    *out = ms_rollout_group_take(r, g);
    return 0;
}

int ms_rollout_take_dropped(struct ms_rollout *r, struct ms_rollout_group **out)
{
    int rc;
    MS_ROLLOUT_ENTER(r, -ECHILD);

    rc = ms_rollout_check(r);
    if (rc < 0)
        return rc;
    if (ms_list_is_empty(&r->dropped))
        return -EAGAIN;
    *out = ms_rollout_group_take(r, ms_list_first(&r->dropped, struct group, link));
    return 0;
}

/* ---- judged ------------------------------------------------------------------------ */

int ms_rollout_judge(struct ms_rollout *r, struct ms_rollout_group **out)
{
    struct group *g;
    int rc;
    MS_ROLLOUT_ENTER(r, -ECHILD);

    rc = ms_rollout_check(r);
    if (rc < 0)
        return rc;
    if (ms_list_is_empty(&r->judged))
        return -EAGAIN;
    g = ms_list_first(&r->judged, struct group, link);
    *out = ms_rollout_group_copy(g->out);
    if (!*out)
        return -ENOMEM;
    ms_list_remove(&g->link);
    return 0;
}

int ms_rollout_verdict(struct ms_rollout *r, uint64_t id, bool keep)
{
    const struct ms_generate_event e = {.what = MS_VERDICT, .id = id, .keep = keep};
    struct group *g;
    bool is_kept;
    int rc;
    MS_ROLLOUT_ENTER(r, -ECHILD);

    rc = ms_rollout_check(r);
    if (rc < 0)
        return rc;
    g = ms_rollout_group_find(r, id);
    is_kept = g && keep && g->state == GROUP_JUDGED;
    if (is_kept)
        g->state = GROUP_READY; /* the step may drop it again */
    rc = ms_rollout_step(r, &e);
    if (rc < 0 && is_kept && g->state == GROUP_READY)
        g->state = GROUP_JUDGED;
    ms_rollout_news(r);
    return rc;
}

uint32_t ms_rollout_take_refill(struct ms_rollout *r)
{
    uint32_t n;
    MS_ROLLOUT_ENTER(r, 0);

    n = r->refill;
    r->refill = 0;
    return n;
}
