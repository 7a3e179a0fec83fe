/* partials.c - surplus that was begun is kept for the next group of its prompt */
#include "rollout/rollout_impl.h"

#include "plain/value.h"

#include <errno.h>
#include <string.h>

#define FNV_OFFSET UINT64_C(0xcbf29ce484222325)
#define FNV_PRIME  UINT64_C(0x100000001b3)

static uint64_t digest(const struct ms_plain_writer *w)
{
    struct iovec iov[MS_PLAIN_IOV_MAX];
    int count = ms_plain_iov(w, iov);
    uint64_t hash = FNV_OFFSET;

    for (int i = 0; i < count; i++) {
        const uint8_t *at = iov[i].iov_base;

        for (size_t k = 0; k < iov[i].iov_len; k++)
            hash = (hash ^ at[k]) * FNV_PRIME;
    }
    return hash;
}

/* The key is the caller's word; tokens go on only behind those of the very same prompt. */
static uint64_t asked(const struct group *g)
{
    struct ms_plain_writer w;
    uint64_t hash;

    ms_plain_writer_init(&w);
    ms_value_encode(&w, MS_PLAIN_ITEM, g->prompt);
    if (g->sampling)
        ms_value_encode(&w, MS_PLAIN_ITEM, g->sampling);
    hash = digest(&w);
    ms_plain_writer_finish(&w);
    return hash;
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

static void keep(struct ms_rollout *r, struct group *g, struct ms_rollout_sample *s)
{
    struct ms_rollout_sample *kept = calloc(1, sizeof *kept);
    struct ms_partial one = {.key = g->out->key,
                             .asked = asked(g),
                             .tokens = (uint32_t)s->count,
                             .oldest = ms_rollout_oldest_version(s),
                             .what = kept};

    if (!kept)
        return; /* as if it were not asked for */
    move(kept, s);
    if (ms_partials_keep(r->partials, &one) < 0)
        ms_rollout_partial_release(kept);
}

void ms_rollout_partials_keep(struct ms_rollout *r, struct group *g)
{
    for (uint32_t i = 0; g->keeps_surplus && i < g->out->count; i++) {
        struct ms_rollout_sample *s = &g->out->samples[i];

        if (!s->is_done && s->count > 0 && !g->requests[i].is_unwanted &&
            !g->requests[i].stream)
            keep(r, g, s);
    }
}

void ms_rollout_partials_take(struct ms_rollout *r, struct group *g)
{
    uint64_t of;

    if (ms_partials_stats(r->partials).held == 0)
        return;
    of = asked(g);
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
