/* generate.c - include/muster/generate.h over src/rollout: schedulers and what is asked of them */
#include "capi/generate.h"
#include "base/clock.h"
#include "base/limits.h"
#include "capi/capi.h"

#include <errno.h>
#include <string.h>

#define NEVER_STALE (UINT32_C(1) << 31)
#define FOLLOW_NS   (MS_NS_PER_S / 2) /* until a cluster of another size is noticed */

int ms_capi_generate_failed(int rc, const char *what, struct muster_error *err)
{
    if (rc == -ECHILD)
        return muster_error_set(err, rc, NULL, "%s: " MS_ROLLOUT_FORKED, what);
    if (rc == -ESHUTDOWN)
        return muster_error_set(err, rc, NULL, "%s: the scheduler is closed", what);
    return muster_error_set(err, rc, NULL, "%s: %s", what, strerror(-rc));
}

/* Of an older program the options are shorter: what it does not know is as it was. */
#define TAKE_OPTIONS(to, from)                                                         \
    memcpy(&(to), from, (from)->size < sizeof(to) ? (from)->size : sizeof(to))

/* ---- life -------------------------------------------------------------------------- */

static struct ms_rollout_options
rollout_options(const struct muster_scheduler_options *o)
{
    return (struct ms_rollout_options){
        .policy = o->policy,
        .engine = o->engine,
        .history = o->history,
        .history_prompts = (size_t)o->history_prompts,
        .version = o->version,
        .slots = o->slots,
        .kv_tokens = o->kv_tokens,
        .tp = o->tp,
        .cp = o->cp,
        .pp = o->pp,
        .session_ttl_ns = o->session_ttl_ns,
        .core = {.seed = o->seed,
                 .chunk = o->chunk,
                 .staleness_max = o->max_staleness < 0 || o->max_staleness > NEVER_STALE
                                      ? NEVER_STALE
                                      : (uint32_t)o->max_staleness,
                 .batch = o->batch,
                 .filter = o->filter,
                 .poison_replicas = o->poison,
                 .silence_ns = o->silence_ns,
                 .probe_ns = o->probe_ns,
                 .rebalance_ns = o->rebalance_ns,
                 .ageing = o->ageing,
                 .bias_max = o->max_bias},
    };
}

struct muster_scheduler *
muster_scheduler_create(struct muster_cluster *c,
                        const struct muster_scheduler_options *options,
                        struct muster_error *err)
{
    struct muster_scheduler_options o = MUSTER_SCHEDULER_OPTIONS;
    struct ms_rollout_options ro;
    struct muster_scheduler *s;
    struct ms_error why = {0};
    const json_t *job;

    if (!c) {
        ms_capi_missing("a cluster", err);
        return NULL;
    }
    if (options)
        TAKE_OPTIONS(o, options);
    job = ms_capi_job(c->session, err);
    if (!job)
        return NULL;
    ms_capi_generation_take(job, &o);
    ms_capi_replicas_mesh(c, job, &o);
    s = calloc(1, sizeof *s);
    if (!s) {
        ms_capi_no_memory(err);
        return NULL;
    }
    pthread_mutex_init(&s->lock, NULL);
    s->cluster = c;
    s->width = (o.tp ? o.tp : 1) * (o.cp ? o.cp : 1) * (o.pp ? o.pp : 1);
    ro = rollout_options(&o);
    ro.role = c->name;
    s->rollout = ms_rollout_create(&ro, &why);
    if (!s->rollout || ms_capi_replicas_init(s, &why) < 0) {
        ms_capi_error(&why, err);
        muster_scheduler_destroy(s);
        return NULL;
    }
    return s;
}

void muster_scheduler_destroy(struct muster_scheduler *s)
{
    if (!s)
        return;
    ms_rollout_destroy(s->rollout);
    ms_peer_unref(s->first);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* ---- groups ------------------------------------------------------------------------ */

int muster_scheduler_submit(struct muster_scheduler *s,
                            const struct muster_value *prompt,
                            const struct muster_submit_options *options,
                            uint64_t *group,
                            struct muster_error *err)
{
    struct muster_submit_options o = MUSTER_SUBMIT_OPTIONS;
    struct ms_rollout_submit submit;
    struct ms_error why = {0};
    int rc;

    if (!prompt)
        return ms_capi_missing("a prompt", err);
    if (options)
        TAKE_OPTIONS(o, options);
    submit = (struct ms_rollout_submit){
        .key = o.key,
        .prompt = prompt,
        .sampling = o.sampling,
        .samples = o.samples,
        .surplus = o.surplus,
        .keeps_surplus = o.keep_surplus,
        .prompt_tokens = o.prompt_tokens,
        .max_new_tokens = o.max_new_tokens,
        .hint = o.hint,
        .replica = o.replica < 0 ? MS_NOWHERE : (uint32_t)o.replica,
        .turn = o.turn,
        .session = o.session,
        .deadline_ns = ms_deadline_ns(
            ms_now_ns(), o.timeout_ns ? o.timeout_ns : MS_CALL_TIMEOUT_NS)};
    ms_capi_replicas_follow(s);
    rc = ms_rollout_submit(s->rollout, &submit, group, &why);
    return rc < 0 ? ms_capi_error(&why, err) : 0;
}

int muster_scheduler_session(struct muster_scheduler *s,
                             uint64_t key,
                             uint32_t turn,
                             uint64_t *session,
                             struct muster_error *err)
{
    struct ms_error why = {0};
    int rc = ms_rollout_session_open(s->rollout, key, turn, session, &why);

    return rc < 0 ? ms_capi_error(&why, err) : 0;
}

int muster_scheduler_session_finish(struct muster_scheduler *s, uint64_t session)
{
    return ms_rollout_session_finish(s->rollout, session);
}

/* Wait for news, once, or for a while; -ETIMEDOUT with the reason. */
static int wait_news(struct muster_scheduler *s,
                     uint64_t seen,
                     int64_t until_ns,
                     struct muster_error *err)
{
    int64_t now_ns = ms_now_ns(), look_ns = now_ns + FOLLOW_NS;

    if (now_ns >= until_ns)
        return muster_error_set(
            err, -ETIMEDOUT, NULL, "what was waited for did not come in time");
    ms_rollout_wait(s->rollout, seen, until_ns < look_ns ? until_ns : look_ns);
    ms_capi_replicas_follow(s);
    return 0;
}

/* The next failure that was not reported yet; other drops are not reported. */
static int tell_failure(struct muster_scheduler *s, struct muster_error *err)
{
    struct ms_rollout_group *g;

    while (ms_rollout_take_dropped(s->rollout, &g) == 0) {
        bool is_failure = ms_generate_is_failure(g->why);

        if (is_failure)
            ms_capi_samples_error(g, err);
        ms_rollout_group_free(g);
        if (is_failure)
            return -EREMOTEIO;
    }
    return 0;
}

static int wrap_all(struct ms_rollout_group **groups,
                    uint32_t count,
                    struct muster_samples **out,
                    struct muster_error *err)
{
    int rc = 0;

    for (uint32_t i = 0; i < count; i++) {
        out[i] = ms_capi_samples(groups[i]);
        if (!out[i])
            rc = -ENOMEM;
    }
    for (uint32_t i = 0; rc < 0 && i < count; i++)
        muster_samples_destroy(out[i]);
    return rc < 0 ? ms_capi_no_memory(err) : 0;
}

/* batch NULL: they are consumed at once. */
static int get_batch(struct muster_scheduler *s,
                     uint32_t count,
                     int64_t timeout_ns,
                     struct muster_samples **out,
                     uint64_t *batch,
                     struct muster_error *err)
{
    int64_t until_ns = ms_deadline_ns(ms_now_ns(), timeout_ns);
    MS_CLEANUP(ms_cleanup_free)
    struct ms_rollout_group **groups = calloc((size_t)count + 1, sizeof *groups);
    int rc = 0;

    if (!groups)
        return ms_capi_no_memory(err);
    while (rc == 0) {
        uint64_t seen = ms_rollout_wait(s->rollout, 0, 0);

        rc = tell_failure(s, err);
        if (rc < 0)
            return rc;
        rc = batch ? ms_rollout_lease(s->rollout, count, groups, batch)
                   : ms_rollout_pull(s->rollout, count, groups);
        if (rc == 0)
            return wrap_all(groups, count, out, err);
        rc = rc == -EAGAIN ? wait_news(s, seen, until_ns, err)
                           : ms_capi_generate_failed(rc, "a batch", err);
    }
    return rc;
}

int muster_scheduler_get_batch(struct muster_scheduler *s,
                               uint32_t count,
                               int64_t timeout_ns,
                               struct muster_samples **out,
                               struct muster_error *err)
{
    return get_batch(s, count, timeout_ns, out, NULL, err);
}

int muster_scheduler_lease(struct muster_scheduler *s,
                           uint32_t count,
                           int64_t timeout_ns,
                           struct muster_samples **out,
                           uint64_t *batch,
                           struct muster_error *err)
{
    uint64_t leased = 0;
    int rc = get_batch(s, count, timeout_ns, out, &leased, err);

    if (rc == 0)
        *batch = leased;
    else if (leased)
        ms_rollout_give_back(s->rollout, leased);
    return rc;
}

int muster_scheduler_consumed(struct muster_scheduler *s, uint64_t batch)
{
    return ms_rollout_consumed(s->rollout, batch);
}

int muster_scheduler_give_back(struct muster_scheduler *s, uint64_t batch)
{
    return ms_rollout_give_back(s->rollout, batch);
}

/* Try again at each news until it is there. */
static int
wait_one(struct muster_scheduler *s,
         int (*attempt)(struct ms_rollout *, uint64_t, struct ms_rollout_group **),
         uint64_t id,
         int64_t timeout_ns,
         struct muster_samples **out,
         struct muster_error *err)
{
    int64_t until_ns = ms_deadline_ns(ms_now_ns(), timeout_ns);
    struct ms_rollout_group *g;
    int rc = 0;

    while (rc == 0) {
        uint64_t seen = ms_rollout_wait(s->rollout, 0, 0);

        rc = attempt(s->rollout, id, &g);
        if (rc == 0)
            return wrap_all(&g, 1, out, err);
        rc = rc == -EAGAIN ? wait_news(s, seen, until_ns, err)
                           : ms_capi_generate_failed(rc, "a group", err);
    }
    return rc;
}

int muster_scheduler_wait(struct muster_scheduler *s,
                          uint64_t group,
                          int64_t timeout_ns,
                          struct muster_samples **out,
                          struct muster_error *err)
{
    return wait_one(s, ms_rollout_take, group, timeout_ns, out, err);
}

static int judge(struct ms_rollout *r, uint64_t id, struct ms_rollout_group **out)
{
    (void)id;
    return ms_rollout_judge(r, out);
}

int muster_scheduler_judge(struct muster_scheduler *s,
                           int64_t timeout_ns,
                           struct muster_samples **out,
                           struct muster_error *err)
{
    return wait_one(s, judge, 0, timeout_ns, out, err);
}

int muster_scheduler_verdict(struct muster_scheduler *s, uint64_t group, bool keep)
{
    return ms_rollout_verdict(s->rollout, group, keep);
}

uint32_t muster_scheduler_missing(struct muster_scheduler *s)
{
    return ms_rollout_take_refill(s->rollout);
}

int muster_scheduler_cancel(struct muster_scheduler *s, uint64_t group)
{
    return ms_rollout_cancel(s->rollout, group);
}

int muster_scheduler_cancel_rid(struct muster_scheduler *s, const char *rid)
{
    return rid ? ms_rollout_cancel_rid(s->rollout, rid) : -ENOENT;
}

int muster_scheduler_cancel_all(struct muster_scheduler *s)
{
    return ms_rollout_cancel_all(s->rollout);
}

/* ---- weights ----------------------------------------------------------------------- */

int muster_scheduler_weights_begin(struct muster_scheduler *s,
                                   uint32_t version,
                                   enum muster_weights_mode mode,
                                   bool rolling,
                                   int64_t drain_ns,
                                   struct muster_error *err)
{
    int64_t until_ns = drain_ns > 0 ? ms_deadline_ns(ms_now_ns(), drain_ns) : MS_NEVER;
    int rc = ms_rollout_weights_begin(
        s->rollout, version, (enum ms_weights_mode)mode, rolling, until_ns);

    if (rc == -EINVAL)
        return muster_error_set(err,
                                rc,
                                NULL,
                                "version %u is not after %u",
                                version,
                                ms_rollout_version(s->rollout));
    return rc < 0 ? ms_capi_generate_failed(rc, "an update of the weights", err) : 0;
}

int muster_scheduler_weights_next(struct muster_scheduler *s,
                                  int64_t timeout_ns,
                                  uint32_t *rank,
                                  struct muster_error *err)
{
    int64_t until_ns = ms_deadline_ns(ms_now_ns(), timeout_ns);

    for (;;) {
        uint64_t seen = ms_rollout_wait(s->rollout, 0, 0);
        uint32_t replica = 0;
        int rc = ms_rollout_weights_next(s->rollout, &replica);

        if (rc > 0)
            *rank = ms_rollout_rank(s->rollout, replica);
        if (rc >= 0)
            return rc;
        rc = rc == -EAGAIN
                 ? wait_news(s, seen, until_ns, err)
                 : ms_capi_generate_failed(rc, "an update of the weights", err);
        if (rc < 0)
            return rc;
    }
}

int muster_scheduler_weights_ready(struct muster_scheduler *s, uint32_t rank)
{
    uint32_t replica;
    int rc = ms_rollout_replica(s->rollout, rank, &replica);

    return rc < 0 ? rc : ms_rollout_weights_ready(s->rollout, replica);
}

int muster_scheduler_weights_failed(struct muster_scheduler *s)
{
    return ms_rollout_weights_failed(s->rollout);
}

int muster_scheduler_pause(struct muster_scheduler *s,
                           enum muster_weights_mode mode,
                           int64_t timeout_ns,
                           struct muster_error *err)
{
    int64_t until_ns = ms_deadline_ns(ms_now_ns(), timeout_ns);
    int rc = ms_rollout_pause(s->rollout, (enum ms_weights_mode)mode);

    if (rc < 0)
        return ms_capi_generate_failed(rc, "pause", err);
    for (;;) {
        uint64_t seen = ms_rollout_wait(s->rollout, 0, 0);

        rc = ms_rollout_is_paused(s->rollout);
        if (rc == 0)
            return 0;
        rc = rc == -EAGAIN ? wait_news(s, seen, until_ns, err)
                           : ms_capi_generate_failed(rc, "pause", err);
        if (rc < 0)
            return rc;
    }
}

int muster_scheduler_resume(struct muster_scheduler *s)
{
    return ms_rollout_resume(s->rollout);
}
