/* groups.c - groups and their samples, from submit until they are handed out */
#include "rollout/rollout_impl.h"

#include "base/buf.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

enum { TEXT_PER_TOKEN = 4 };

struct group *ms_rollout_group_find(const struct ms_rollout *r, uint64_t id)
{
    return ms_map_find(&r->groups, id);
}

/* ---- results ----------------------------------------------------------------------- */

void ms_rollout_group_free(struct ms_rollout_group *g)
{
    for (uint32_t i = 0; g && i < g->count; i++) {
        free(g->samples[i].tokens);
        free(g->samples[i].logprobs);
        free(g->samples[i].runs);
    }
    if (g)
        free(g->samples);
    free(g);
}

static struct ms_rollout_group *result_make(uint64_t id, uint64_t key, uint32_t count)
{
    struct ms_rollout_group *g = calloc(1, sizeof *g);

    if (!g)
        return NULL;
    g->samples = calloc(count, sizeof *g->samples);
    if (!g->samples) {
        free(g);
        return NULL;
    }
    g->id = id;
    g->key = key;
    g->count = count;
    for (uint32_t i = 0; i < count; i++) {
        g->samples[i].seq = i;
        g->samples[i].replica = MS_NOWHERE;
    }
    return g;
}

static void *copied(const void *at, size_t count, size_t size)
{
    return at ? ms_bytes_copy(at, count * size) : NULL;
}

static bool sample_copy(struct ms_rollout_sample *to, const struct ms_rollout_sample *s)
{
    *to = *s;
    to->room = s->count;
    to->run_room = s->run_count;
    to->tokens = copied(s->tokens, s->count, sizeof *s->tokens);
    to->logprobs = copied(s->logprobs, s->count, sizeof *s->logprobs);
    to->runs = copied(s->runs, s->run_count, sizeof *s->runs);
    return (!s->tokens || to->tokens) && (!s->logprobs || to->logprobs) &&
           (!s->runs || to->runs);
}

struct ms_rollout_group *ms_rollout_group_copy(const struct ms_rollout_group *g)
{
    struct ms_rollout_group *copy = result_make(g->id, g->key, g->count);

    if (!copy)
        return NULL;
    copy->wanted = g->wanted;
    copy->why = g->why;
    for (uint32_t i = 0; i < g->count; i++)
        if (!sample_copy(&copy->samples[i], &g->samples[i])) {
            ms_rollout_group_free(copy);
            return NULL;
        }
    return copy;
}

/* ---- life -------------------------------------------------------------------------- */

/* What still runs of it goes on without it. */
static void leave_requests(struct ms_rollout *r, struct group *g)
{
    for (uint32_t i = 0; i < g->out->count; i++) {
        struct request *q = &g->requests[i];

        if (q->id)
            ms_map_remove(&r->requests, q->id);
        if (q->stream)
            q->stream->request = NULL;
    }
}

static void group_free(struct group *g)
{
    ms_rollout_group_free(g->out);
    muster_value_destroy(g->prompt);
    muster_value_destroy(g->sampling);
    free(g->requests);
    free(g);
}

struct ms_rollout_group *ms_rollout_group_take(struct ms_rollout *r, struct group *g)
{
    struct ms_rollout_group *out = g->out;

    leave_requests(r, g);
    ms_map_remove(&r->groups, out->id);
    ms_list_remove(&g->link);
    g->out = NULL;
    group_free(g);
    return out;
}

void ms_rollout_groups_finish(struct ms_rollout *r)
{
    struct group *g;
    size_t at = 0;

    while ((g = ms_map_next(&r->groups, &at)))
        group_free(g);
}

/* ---- submit ------------------------------------------------------------------------ */

static uint32_t prompt_tokens(const struct ms_rollout_submit *s)
{
    size_t n = 0;

    if (s->prompt_tokens)
        return s->prompt_tokens;
    switch (muster_value_kind(s->prompt)) {
    case MUSTER_LIST:
        n = muster_list_count(s->prompt);
        break;
    case MUSTER_TENSOR:
        n = muster_tensor_count(s->prompt);
        break;
    case MUSTER_TEXT:
        muster_value_get_text(s->prompt, &n);
        n /= TEXT_PER_TOKEN;
        break;
    default:
        break;
    }
    return n < MS_GENERATE_TOKENS_MAX ? (uint32_t)n : MS_GENERATE_TOKENS_MAX;
}

/* Tokens that the sample begins with: copied, with the versions that made them. */
static bool begin_behind(struct group *g, const struct ms_rollout_sample *before)
{
    struct ms_rollout_sample *to = &g->out->samples[0];

    to->tokens = copied(before->tokens, before->count, sizeof *to->tokens);
    to->logprobs = copied(before->logprobs, before->count, sizeof *to->logprobs);
    to->runs = copied(before->runs, before->run_count, sizeof *to->runs);
    to->count = to->room = before->count;
    to->run_count = to->run_room = before->run_count;
    return to->tokens && to->runs && (to->logprobs || !before->logprobs);
}

static struct group *group_make(struct ms_rollout *r,
                                const struct ms_rollout_submit *s,
                                const struct ms_gen_turn *t)
{
    uint32_t count = s->samples + s->surplus;
    struct group *g = calloc(1, sizeof *g);

    if (!g)
        return NULL;
    ms_list_init(&g->link);
    g->out = result_make(r->last_group + 1, t->key, count);
    g->requests = calloc(count, sizeof *g->requests);
    g->prompt = muster_value_copy(s->prompt);
    g->sampling = s->sampling ? muster_value_copy(s->sampling) : NULL;
    if (!g->out || !g->requests || !g->prompt || (s->sampling && !g->sampling)) {
        group_free(g);
        return NULL;
    }
    if (s->before && !begin_behind(g, s->before)) {
        group_free(g);
        return NULL;
    }
    g->out->wanted = s->samples;
    g->max_new = s->max_new_tokens;
    g->keeps_surplus = s->keeps_surplus && t->turn == 0; /* its prompt comes again */
    for (uint32_t i = 0; i < count; i++) {
        g->requests[i].group = g;
        g->requests[i].sample = &g->out->samples[i];
    }
    return g;
}

static int check_before(const struct ms_rollout_submit *s, struct ms_error *err)
{
    uint64_t versions = 0;

    for (size_t i = 0; i < s->before->run_count; i++)
        versions += s->before->runs[i].tokens;
    if (s->samples != 1 || s->surplus != 0)
        return ms_error_set(err, -EINVAL, "a group that goes on has one sample");
    if (s->before->count == 0 || versions != s->before->count)
        return ms_error_set(err, -EINVAL, "a version for each token, of at least one");
    if (s->before->count >= s->max_new_tokens)
        return ms_error_set(err,
                            -EINVAL,
                            "a sample of %zu tokens is whole at max_new_tokens %u",
                            s->before->count,
                            s->max_new_tokens);
    return 0;
}

static int check(const struct ms_rollout_submit *s, struct ms_error *err)
{
    if (s->samples == 0 || s->samples > MS_GROUP_SAMPLES_MAX ||
        s->surplus > MS_GROUP_SAMPLES_MAX - s->samples)
        return ms_error_set(err,
                            -EINVAL,
                            "a group has 1 to %d samples, surplus included",
                            MS_GROUP_SAMPLES_MAX);
    if (s->max_new_tokens == 0 || s->max_new_tokens > MS_GENERATE_TOKENS_MAX)
        return ms_error_set(err, -EINVAL, "max_new_tokens is from 1 to 2^30");
    if (s->sampling && muster_value_kind(s->sampling) != MUSTER_MAP)
        return ms_error_set(err, -EINVAL, "sampling is a map");
    return s->before ? check_before(s, err) : 0;
}

/* Samples of one prompt may come as groups of their own: the first one is the probe. */
static bool has_sibling(const struct ms_rollout *r, uint64_t key, uint32_t turn)
{
    return turn == 0 && key != 0 && ms_map_find(&r->keys, key);
}

static void is_open(struct ms_rollout *r, struct group *g, uint32_t turn)
{
    if (turn == 0 && g->out->key != 0) /* without it there is one more probe */
        (void)ms_map_add(&r->keys, g->out->key, g);
}

static void is_over(struct ms_rollout *r, struct group *g)
{
    if (ms_map_find(&r->keys, g->out->key) == g)
        ms_map_remove(&r->keys, g->out->key);
}

/* Those of its samples that have tokens already. */
static void go_behind(struct ms_rollout *r, const struct group *g)
{
    for (uint32_t i = 0; i < g->out->count; i++) {
        const struct ms_rollout_sample *s = &g->out->samples[i];
        const struct ms_generate_event e = {
            .what = MS_BEHIND,
            .id = ms_scheduler_request(r->core, g->out->id, i),
            .tokens = (uint32_t)s->count,
            .version = s->count > 0 ? ms_rollout_oldest_version(s) : 0};
        int rc = s->count > 0 ? ms_rollout_step(r, &e) : 0;

        assert(rc == 0); /* it was only just submitted, and has less than it may */
    }
}

static int enter(struct ms_rollout *r,
                 struct group *g,
                 const struct ms_rollout_submit *s,
                 const struct ms_gen_turn *t)
{
    const struct ms_generate_event e = {
        .what = MS_SUBMIT,
        .id = g->out->id,
        .key = t->key,
        .samples = s->samples,
        .surplus = s->surplus,
        .prompt = prompt_tokens(s),
        .max_new = s->max_new_tokens,
        .hint = s->hint,
        .replica = t->replica,
        .epoch = t->epoch,
        .version = t->weights,
        .turn = (uint8_t)(t->turn < UINT8_MAX ? t->turn : UINT8_MAX),
        .keep = has_sibling(r, t->key, t->turn),
        .deadline_ns = s->deadline_ns == MS_NEVER ? 0 : s->deadline_ns};
    int rc = ms_map_add(&r->groups, g->out->id, g);

    if (rc < 0)
        return rc;
    rc = ms_rollout_step(r, &e);
    if (rc < 0) {
        ms_map_remove(&r->groups, g->out->id);
        return rc;
    }
    go_behind(r, g);
    return 0;
}

int ms_rollout_submit(struct ms_rollout *r,
                      const struct ms_rollout_submit *s,
                      uint64_t *group,
                      struct ms_error *err)
{
    struct ms_gen_turn turn = {0};
    struct group *g;
    int rc = check(s, err);
    MS_ROLLOUT_ENTER(r, ms_error_set(err, -ECHILD, MS_ROLLOUT_FORKED));

    if (rc == 0 && (rc = ms_rollout_check(r)) < 0)
        ms_error_set(err, rc, "the scheduler is closed");
    if (rc == 0 && (rc = ms_rollout_turn_of(r, s, &turn)) < 0)
        ms_error_set(err, rc, "its session was finished, or was idle for too long");
    if (rc < 0)
        return rc;
    g = group_make(r, s, &turn);
    if (g && !s->before && turn.turn == 0)
        ms_rollout_partials_take(r, g);
    rc = g ? enter(r, g, s, &turn) : -ENOMEM;
    if (rc < 0) {
        if (g)
            group_free(g);
        return ms_error_sys(err, rc, "a group of %u samples", s->samples);
    }
    for (uint32_t i = 0; i < g->out->count; i++)
        ms_rollout_rid_print(
            r, ms_scheduler_request(r->core, g->out->id, i), g->out->samples[i].rid);
    is_open(r, g, turn.turn);
    if (s->session && ms_gen_sessions_begin(r->sessions, s->session) == 0)
        g->session = s->session;
    *group = r->last_group = g->out->id;
    r->submitted++;
    if (r->tick_ns > ms_now_ns() + MS_ROLLOUT_BURST_NS)
        r->tick_ns = ms_now_ns() + MS_ROLLOUT_BURST_NS;
    ms_rollout_arm(r);
    return 0;
}

/* ---- over -------------------------------------------------------------------------- */

static void note_cache(struct ms_rollout *r, struct ms_rollout_sample *s)
{
    const struct replica *rep = ms_rollout_replica_find(r, s->replica);

    s->epoch = rep ? rep->epoch : 0;
    s->weights = rep ? rep->version : 0;
}

void ms_rollout_request_ended(struct ms_rollout *r, const struct ms_generate_event *e)
{
    struct request *q = ms_map_find(&r->requests, e->id);

    if (q && !q->is_unwanted && q->group->state == GROUP_OPEN &&
        q->sample->attempt == e->attempt &&
        (e->what == MS_FINISHED || e->tokens >= q->group->max_new)) {
        q->sample->is_done = true;
        note_cache(r, q->sample);
    }
}

void ms_rollout_group_ready(struct ms_rollout *r, uint64_t id)
{
    struct group *g = ms_rollout_group_find(r, id);

    if (!g)
        return;
    is_over(r, g);
    ms_rollout_turn_over(r, g);
    ms_rollout_partials_keep(r, g);
    g->state = r->has_filter ? GROUP_JUDGED : GROUP_READY;
    if (r->has_filter)
        ms_list_add_tail(&r->judged, &g->link);
    r->learnt++;
    ms_rollout_news(r);
}

void ms_rollout_group_dropped(struct ms_rollout *r, uint64_t id, uint16_t why)
{
    struct group *g = ms_rollout_group_find(r, id);

    if (!g)
        return;
    is_over(r, g);
    ms_list_remove(&g->link);
    g->state = GROUP_DROPPED;
    g->out->why = why;
    ms_rollout_turn_over(r, g);
    r->learnt++;
    ms_list_add_tail(&r->dropped, &g->link);
    ms_rollout_news(r);
}

/* ---- cancelled --------------------------------------------------------------------- */

static int step_locked(struct ms_rollout *r, const struct ms_generate_event *e)
{
    int rc;
    MS_ROLLOUT_ENTER(r, -ECHILD);

    rc = ms_rollout_check(r);
    return rc < 0 ? rc : ms_rollout_step(r, e);
}

int ms_rollout_cancel(struct ms_rollout *r, uint64_t group)
{
    const struct ms_generate_event e = {.what = MS_CANCEL_GROUP, .id = group};

    return step_locked(r, &e);
}

int ms_rollout_cancel_all(struct ms_rollout *r)
{
    const struct ms_generate_event e = {.what = MS_CANCEL_ALL};

    return step_locked(r, &e);
}

int ms_rollout_cancel_rid(struct ms_rollout *r, const char *rid)
{
    struct ms_generate_event e = {.what = MS_CANCEL};
    int rc = ms_rollout_rid_parse(r, rid, &e.id);
    struct request *q;
    MS_ROLLOUT_ENTER(r, -ECHILD);

    if (rc == 0)
        rc = ms_rollout_check(r);
    if (rc < 0)
        return rc;
    ms_rollout_step(r, NULL); /* its end may be among what waits */
    q = ms_map_find(&r->requests, e.id);
    if (q && !q->sample->is_done)
        q->is_unwanted = true; /* and what it has is no surplus to be kept */
    return ms_rollout_step(r, &e);
}
