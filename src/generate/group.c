/* group.c - groups: submitted, admitted, finished, dropped */
#include "generate/scheduler_impl.h"

#include "base/clock.h"

#include <assert.h>
#include <errno.h>
#include <math.h>

#define RANK_MIN  0.05F /* change of what is expected that changes the order */
#define LEAST_MAX 64    /* samples of a group whose progress is looked at */

uint32_t ms_gen_group_find(const struct ms_scheduler *s, uint64_t id)
{
    uintptr_t found = id ? (uintptr_t)ms_map_find(&s->by_id, id) : 0;

    return found ? (uint32_t)(found - 1) : MS_NONE;
}

/* ---- submit ------------------------------------------------------------------------ */

static int check(const struct ms_scheduler *s, const struct ms_generate_event *e)
{
    uint64_t samples = (uint64_t)e->samples + e->surplus;

    if (e->id == 0 || e->samples == 0 || samples > MS_GROUP_SAMPLES_MAX ||
        e->max_new == 0 || e->max_new > MS_GENERATE_TOKENS_MAX ||
        e->prompt > MS_GENERATE_TOKENS_MAX)
        return -EINVAL;
    return ms_gen_group_find(s, e->id) == MS_NONE ? 0 : -EEXIST;
}

/* Room for all that a group of n may need later, so that nothing fails on the way. */
static int reserve(struct ms_scheduler *s, size_t n)
{
    size_t requests = s->request_count + n, groups = s->group_count + 1;

    if (requests >= MS_NONE ||
        ms_array_reserve(
            &s->requests, &s->request_room, requests, sizeof *s->requests) < 0 ||
        ms_array_reserve(&s->groups, &s->group_room, groups, sizeof *s->groups) < 0 ||
        ms_array_reserve(&s->queue.at, &s->queue.room, requests, sizeof *s->queue.at) <
            0 ||
        ms_array_reserve(
            &s->deadlines.at, &s->deadlines.room, groups, sizeof *s->deadlines.at) < 0)
        return -ENOMEM;
    return 0;
}

static uint64_t key_of_turn(uint64_t key, uint8_t turn)
{
    for (; turn > 0; turn--)
        key = ms_lengths_next_turn(key);
    return key;
}

static uint32_t group_new(struct ms_scheduler *s, const struct ms_generate_event *e)
{
    uint32_t i = s->free_group;

    if (i == MS_NONE)
        i = (uint32_t)s->group_count++;
    else
        s->free_group = s->groups[i].after;
    s->groups[i] = (struct ms_gen_group){
        .id = e->id,
        .key = key_of_turn(e->key, e->turn),
        .first = MS_NONE,
        .wanted = e->samples,
        .before = MS_NONE,
        .after = MS_NONE,
        .oldest = UINT32_MAX,
        .deadline_at = MS_NONE,
        .hint = e->hint,
        .turn = e->turn,
        .has_sibling = e->keep,
        .has_surplus = e->surplus > 0,
        .state = MS_GROUP_HELD,
        .deadline_ns = e->deadline_ns > 0 ? e->deadline_ns : MS_NEVER,
        .order = (int64_t)s->order++,
    };
    return i;
}

/* Which incarnation of the replica, with which weights, has its prefix. */
static void note_prefix(const struct ms_scheduler *s,
                        struct ms_gen_group *g,
                        const struct ms_generate_event *e)
{
    g->warm_epoch = e->epoch;
    g->warm_version = e->version;
    if (e->epoch == 0 && e->replica < s->replica_count) {
        g->warm_epoch = s->replicas[e->replica].epoch;
        g->warm_version = s->replicas[e->replica].version;
    }
}

static void
add_requests(struct ms_scheduler *s, uint32_t group, const struct ms_generate_event *e)
{
    struct ms_gen_group *g = &s->groups[group];

    for (uint32_t k = e->samples + e->surplus; k > 0; k--) { /* the first in front */
        uint32_t i = ms_gen_request_new(s);
        struct ms_gen_request *q = &s->requests[i];

        q->group = group;
        q->seq = (uint16_t)(k - 1);
        q->prompt = e->prompt;
        q->max_new = e->max_new;
        q->replica = e->replica;
        q->next = g->first;
        g->first = i;
        g->pending++;
    }
}

/* It has come to its limit: nobody knows how long it would have been. */
static bool is_cut(const struct ms_gen_request *q)
{
    return q->generated >= q->max_new;
}

/* Tokens of those samples that have not ended by themselves. */
static size_t list_least(const struct ms_scheduler *s,
                         const struct ms_gen_group *g,
                         uint32_t least[LEAST_MAX])
{
    size_t n = 0;

    for (uint32_t i = g->first; i != MS_NONE && n < LEAST_MAX;
         i = s->requests[i].next) {
        const struct ms_gen_request *q = &s->requests[i];

        if (q->generated > 0 && (q->state != MS_REQUEST_DONE || is_cut(q)))
            least[n++] = q->generated;
    }
    return n;
}

static void guess_length(struct ms_scheduler *s, uint32_t i)
{
    struct ms_gen_group *g = &s->groups[i];
    uint32_t least[LEAST_MAX];
    size_t n = list_least(s, g, least);

    g->guess = ms_lengths_guess(s->lengths, g->key, g->hint, &g->sums, least, n);
    g->expected =
        (float)ms_length_remaining(g->guess, 0, s->requests[g->first].max_new);
}

/* What the session has before it, by what its prompt's sessions did earlier: as many turns
 * as they had. */
static void look_ahead(struct ms_scheduler *s, uint32_t i)
{
    struct ms_gen_group *g = &s->groups[i];
    uint64_t key = g->key;
    double later = 0;

    g->unknown = !ms_lengths_has(s->lengths, key);
    for (int turn = g->turn + 1; turn <= UINT8_MAX; turn++) {
        key = ms_lengths_next_turn(key);
        if (!ms_lengths_has(s->lengths, key))
            break;
        later += ms_length_remaining(
            ms_lengths_guess(s->lengths, key, 0, &(struct ms_length_sums){0}, NULL, 0),
            0,
            s->requests[g->first].max_new);
    }
    g->later = (float)later;
}

/* A guess matters for the order only while some wait, and if it has changed. */
static void rank_queued(struct ms_scheduler *s, uint32_t i)
{
    struct ms_gen_group *g = &s->groups[i];
    float before = g->expected;
    uint32_t k = g->first;

    while (k != MS_NONE && s->requests[k].state != MS_REQUEST_QUEUED)
        k = s->requests[k].next;
    if (k == MS_NONE)
        return;
    guess_length(s, i);
    if (fabsf(g->expected - before) < RANK_MIN * before)
        g->expected = before;
    else
        for (; k != MS_NONE; k = s->requests[k].next)
            if (s->requests[k].state == MS_REQUEST_QUEUED)
                ms_gen_request_rank(s, k);
}

void ms_gen_groups_rank(struct ms_scheduler *s)
{
    for (uint32_t i = 0; i < s->group_count; i++)
        if (s->groups[i].state == MS_GROUP_OPEN)
            rank_queued(s, i);
}

void ms_gen_groups_guess(struct ms_scheduler *s)
{
    for (uint32_t i = 0; i < s->group_count; i++)
        if (s->groups[i].state == MS_GROUP_OPEN)
            guess_length(s, i);
}

int ms_gen_group_submit(struct ms_scheduler *s, const struct ms_generate_event *e)
{
    uint32_t i;
    int rc = check(s, e);

    if (rc == 0)
        rc = reserve(s, (size_t)e->samples + e->surplus);
    if (rc < 0)
        return rc;
    i = s->free_group == MS_NONE ? (uint32_t)s->group_count : s->free_group;
    if (ms_map_add(&s->by_id, e->id, (void *)(uintptr_t)(i + 1)) < 0)
        return -ENOMEM;
    i = group_new(s, e);
    note_prefix(s, &s->groups[i], e);
    add_requests(s, i, e);
    if (s->groups[i].deadline_ns != MS_NEVER)
        ms_deadlines_add(s, i);
    ms_gen_list_add(s, &s->held, i);
    s->stats.groups++;
    ms_staleness_enqueue(&s->admission);
    return 0;
}

int ms_gen_group_behind(struct ms_scheduler *s, const struct ms_generate_event *e)
{
    uint32_t i = ms_gen_request_find(s, e->id);
    struct ms_gen_request *q = i == MS_NONE ? NULL : &s->requests[i];

    if (!q)
        return -ENOENT;
    if (q->state != MS_REQUEST_HELD || e->tokens == 0 || e->tokens >= q->max_new)
        return -EINVAL;
    q->generated = e->tokens;
    q->oldest = e->version;
    return 0;
}

/* ---- admission --------------------------------------------------------------------- */

/* Of its surplus no more than is allowed now: the last ones are not begun. */
static void cut_surplus(struct ms_scheduler *s, struct ms_gen_group *g)
{
    uint32_t surplus = g->pending - g->wanted;
    uint32_t begin = g->wanted + (uint32_t)(surplus * s->surplus_share + 0.5);

    for (uint32_t i = g->first; i != MS_NONE; i = s->requests[i].next) {
        struct ms_gen_request *q = &s->requests[i];

        if (q->state != MS_REQUEST_HELD)
            continue; /* cancelled before */
        if (begin > 0) {
            begin--;
            continue;
        }
        q->state = MS_REQUEST_DONE;
        q->ends = 1;
        g->pending--;
    }
}

static void admit(struct ms_scheduler *s, uint32_t i)
{
    struct ms_gen_group *g = &s->groups[i];

    ms_gen_list_remove(s, &s->held, i);
    g->state = MS_GROUP_OPEN;
    g->counted = 1;
    ms_staleness_submit(&s->admission);
    if (ms_deliver_drop_old(s, i)) {
        ms_decide(s, MS_REFILL)->tokens = 1;
        return;
    }
    guess_length(s, i);
    look_ahead(s, i);
    if (g->has_surplus)
        cut_surplus(s, g);
    for (uint32_t q = g->first; q != MS_NONE; q = s->requests[q].next) {
        if (s->requests[q].state != MS_REQUEST_HELD)
            continue; /* cancelled before */
        s->requests[q].is_probe = q == g->first && s->requests[q].generated == 0 &&
                                  g->unknown && g->hint == 0 && !g->has_sibling;
        s->stats.live++;
        ms_gen_request_queue(s, q);
    }
}

void ms_gen_groups_admit(struct ms_scheduler *s)
{
    while (s->held.count > 0 &&
           (s->o.batch == 0 || ms_staleness_capacity(&s->admission, s->version) > 0))
        admit(s, s->held.first);
}

/* ---- the end ----------------------------------------------------------------------- */

static void group_free(struct ms_scheduler *s, uint32_t i)
{
    struct ms_gen_group *g = &s->groups[i];

    for (uint32_t q = g->first, next; q != MS_NONE; q = next) {
        next = s->requests[q].next;
        ms_gen_request_free(s, q);
    }
    ms_map_remove(&s->by_id, g->id);
    g->state = MS_GROUP_FREE;
    g->after = s->free_group;
    s->free_group = i;
    s->stats.groups--;
}

void ms_gen_group_request_over(struct ms_scheduler *s, uint32_t i)
{
    if (s->groups[i].state == MS_GROUP_ENDING && s->groups[i].pending == 0)
        group_free(s, i);
}

void ms_gen_group_release(struct ms_scheduler *s, uint32_t i)
{
    s->groups[i].state = MS_GROUP_ENDING;
    ms_gen_group_request_over(s, i);
}

/* All samples that are not there are not wanted any more. */
static void end_requests(struct ms_scheduler *s, uint32_t i, uint8_t why)
{
    for (uint32_t q = s->groups[i].first; q != MS_NONE; q = s->requests[q].next)
        ms_gen_request_end(s, q, why);
}

static void learn(struct ms_scheduler *s, const struct ms_gen_group *g)
{
    uint32_t least[LEAST_MAX];
    size_t n = list_least(s, g, least);

    ms_lengths_learn(s->lengths, g->key, &g->sums, least, n, s->version);
}

static void finish(struct ms_scheduler *s, uint32_t i)
{
    struct ms_gen_group *g = &s->groups[i];

    learn(s, g);
    ms_deadlines_remove(s, i);
    end_requests(s, i, MS_WHY_SURPLUS);
    ms_deliver_finished(s, i);
}

void ms_gen_group_sample_done(struct ms_scheduler *s, uint32_t request)
{
    struct ms_gen_request *q = &s->requests[request];
    struct ms_gen_group *g = &s->groups[q->group];

    q->state = MS_REQUEST_DONE;
    s->stats.live--;
    g->pending--;
    ms_bias_add(s->bins_all, q->generated);
    if (g->state != MS_GROUP_OPEN) {
        ms_gen_group_request_over(s, q->group);
        return;
    }
    g->done++;
    g->tokens += q->generated;
    if (q->oldest < g->oldest)
        g->oldest = q->oldest;
    if (!is_cut(q))
        ms_length_sums_add(&g->sums, q->generated);
    if (g->done >= g->wanted) {
        finish(s, q->group);
        return;
    }
    rank_queued(s, q->group);
}

static void leave_list(struct ms_scheduler *s, uint32_t i)
{
    struct ms_gen_group *g = &s->groups[i];

    if (g->state == MS_GROUP_HELD)
        ms_gen_list_remove(s, &s->held, i);
    else if (g->state == MS_GROUP_READY)
        ms_gen_list_remove(s, &s->ready, i);
    else if (g->state == MS_GROUP_LEASED)
        ms_gen_list_remove(s, &s->leased, i);
}

void ms_gen_group_drop(struct ms_scheduler *s, uint32_t i, uint8_t why)
{
    struct ms_gen_group *g = &s->groups[i];
    struct ms_generate_decision *d;

    if (g->state == MS_GROUP_ENDING || g->state == MS_GROUP_FREE)
        return;
    s->disturbed++;
    leave_list(s, i);
    ms_deadlines_remove(s, i);
    if (g->state == MS_GROUP_OPEN)
        learn(s, g);
    if (g->counted && (g->state == MS_GROUP_OPEN || g->state == MS_GROUP_JUDGED))
        ms_staleness_reject(&s->admission);
    else if (g->counted) /* it was accepted, and is taken back */
        s->admission.accepted--;
    else
        s->admission.enqueued--;
    g->state = MS_GROUP_ENDING;
    end_requests(s, i, why);
    s->stats.dropped++;
    s->stats.failed += ms_generate_is_failure(why);
    s->stats.stale += why == MS_WHY_STALE;
    s->stats.filtered += why == MS_WHY_FILTERED;
    d = ms_decide(s, MS_DROP);
    d->group = g->id;
    d->why = why;
    ms_gen_group_request_over(s, i);
}

void ms_gen_group_shrink(struct ms_scheduler *s, uint32_t request)
{
    uint32_t i = s->requests[request].group;
    struct ms_gen_group *g = &s->groups[i];

    if ((g->state != MS_GROUP_OPEN && g->state != MS_GROUP_HELD) ||
        s->requests[request].state == MS_REQUEST_DONE || s->requests[request].ends)
        return;
    s->disturbed++;
    ms_gen_request_end(s, request, MS_WHY_CANCELLED);
    if (--g->wanted == 0)
        ms_gen_group_drop(s, i, MS_WHY_CANCELLED);
    else if (g->state == MS_GROUP_OPEN && g->done >= g->wanted)
        finish(s, i);
}
