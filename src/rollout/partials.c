/* partials.c - surplus that was begun is kept for the next group of its prompt */
#include "rollout/rollout_impl.h"

#include "plain/value.h"

#include <errno.h>
#include <string.h>

#define FNV_OFFSET UINT64_C(0xcbf29ce484222325)
#define FNV_PRIME  UINT64_C(0x100000001b3)

/* False: it could not be written. */
static bool digest(const struct ms_plain_writer *w, uint64_t *out)
{
    struct iovec iov[MS_PLAIN_IOV_MAX];
    int count = ms_plain_iov(w, iov);
    uint64_t hash = FNV_OFFSET;

    if (count < 0)
        return false;
    for (int i = 0; i < count; i++) {
        const uint8_t *at = iov[i].iov_base;

        for (size_t k = 0; k < iov[i].iov_len; k++)
            hash = (hash ^ at[k]) * FNV_PRIME;
    }
    *out = hash;
    return true;
}

/* The key is the caller's word; tokens go on only behind those of the very same prompt.
 * False: it is not known which one that is. */
static bool asked(const struct group *g, uint64_t *out)
{
    struct ms_plain_writer w;
    bool is_known;

    ms_plain_writer_init(&w);
    ms_value_encode(&w, MS_PLAIN_ITEM, g->prompt);
    if (g->sampling)
        ms_value_encode(&w, MS_PLAIN_ITEM, g->sampling);
    is_known = digest(&w, out);
    ms_plain_writer_finish(&w);
    return is_known;
}

void ms_rollout_partial_release(void *what)
{
    struct ms_rollout_sample *s = what;

    free(s->tokens);
    free(s->logprobs);
    free(s->runs);
    free(s);
}

/* What there is of a sample, out of it. */
static void move(struct ms_rollout_sample *to, struct ms_rollout_sample *from)
{
    to->tokens = from->tokens;
    to->logprobs = from->logprobs;
    to->runs = from->runs;
    to->count = from->count;
    to->room = from->room;
    to->run_count = from->run_count;
    to->run_room = from->run_room;
    from->tokens = NULL;
    from->logprobs = NULL;
    from->runs = NULL;
    from->count = from->room = from->run_count = from->run_room = 0;
}

uint32_t ms_rollout_oldest_version(const struct ms_rollout_sample *s)
{
    uint32_t oldest = s->runs[0].version;

    for (size_t i = 1; i < s->run_count; i++)
        if (s->runs[i].version < oldest)
            oldest = s->runs[i].version;
    return oldest;
}

static void
keep(struct ms_rollout *r, uint64_t key, uint64_t of, struct ms_rollout_sample *s)
{
    struct ms_rollout_sample *kept = calloc(1, sizeof *kept);
    struct ms_partial one = {.key = key,
                             .asked = of,
                             .tokens = (uint32_t)s->count,
                             .oldest = ms_rollout_oldest_version(s),
                             .what = kept};

    if (!kept)
        return; /* as if it were not asked for */
    move(kept, s);
    if (ms_partials_keep(r->partials, &one) < 0)
        ms_rollout_partial_release(kept);
}

/* It was begun, has not ended, and is not too old. */
static bool goes_on(const struct ms_rollout *r, const struct request *q)
{
    const struct ms_rollout_sample *s = q->sample;
    bool has_ended = s->is_done || (s->reason[0] && strcmp(s->reason, "length") != 0);

    return !has_ended && s->count > 0 && !q->is_unwanted && !q->stream &&
           (uint64_t)ms_rollout_oldest_version(s) + r->staleness_max >= r->version;
}

void ms_rollout_partials_keep(struct ms_rollout *r, struct group *g)
{
    bool is_known = false;
    uint64_t of = 0;

    if (!g->keeps_surplus || g->out->key == 0)
        return;
    for (uint32_t i = 0; i < g->out->count; i++) {
        if (!goes_on(r, &g->requests[i]))
            continue;
        is_known = is_known || asked(g, &of);
        if (!is_known)
            return;
        keep(r, g->out->key, of, &g->out->samples[i]);
    }
}

void ms_rollout_partials_take(struct ms_rollout *r, struct group *g)
{
    uint64_t of;

    if (!ms_partials_has(r->partials, g->out->key) || !asked(g, &of))
        return;
    for (uint32_t i = 0; i < g->out->count; i++) {
        struct ms_rollout_sample *kept =
            ms_partials_take(r->partials, g->out->key, of, g->max_new);

        if (!kept)
            return;
        move(&g->out->samples[i], kept);
        free(kept);
    }
}

void ms_rollout_partials_expire(struct ms_rollout *r)
{
    if (r->version > r->staleness_max)
        ms_partials_expire(r->partials, r->version - r->staleness_max);
}
