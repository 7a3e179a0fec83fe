/* samples.c - what has become of a group, for drivers in C */
#include "capi/generate.h"

#include <errno.h>
#include <stdlib.h>

struct muster_samples {
    struct ms_rollout_group *group;
    struct muster_version_run *runs; /* of all samples, one after the other */
    size_t *first;                   /* where those of each sample begin */
    uint32_t *shown;                 /* samples that count, by their seq */
    size_t count;
};

/* Of a group that was dropped all samples are shown, as far as they came. */
static void choose(struct muster_samples *s)
{
    size_t run = 0;

    for (uint32_t i = 0; i < s->group->count; i++) {
        const struct ms_rollout_sample *one = &s->group->samples[i];

        s->first[i] = run;
        for (size_t k = 0; k < one->run_count; k++)
            s->runs[run++] = (struct muster_version_run){
                .version = one->runs[k].version, .tokens = one->runs[k].tokens};
        if (one->is_done || s->group->why != MS_WHY_NONE)
            s->shown[s->count++] = i;
    }
}

struct muster_samples *ms_capi_samples(struct ms_rollout_group *g)
{
    struct muster_samples *s = calloc(1, sizeof *s);
    size_t runs = 0;

    if (!s) {
        ms_rollout_group_free(g);
        return NULL;
    }
    for (uint32_t i = 0; i < g->count; i++)
        runs += g->samples[i].run_count;
    s->group = g;
    s->runs = calloc(runs + 1, sizeof *s->runs);
    s->first = calloc((size_t)g->count + 1, sizeof *s->first);
    s->shown = calloc((size_t)g->count + 1, sizeof *s->shown);
    if (!s->runs || !s->first || !s->shown) {
        muster_samples_destroy(s);
        return NULL;
    }
    choose(s);
    return s;
}

void ms_capi_samples_error(const struct ms_rollout_group *g, struct muster_error *err)
{
    const char *failure = "";

    for (uint32_t i = 0; i < g->count; i++)
        if (g->samples[i].failure[0])
            failure = g->samples[i].failure;
    muster_error_set(err,
                     -EREMOTEIO,
                     NULL,
                     "group %llu was dropped (%s)%s%s",
                     (unsigned long long)g->id,
                     ms_generate_why_name(g->why),
                     *failure ? ": " : "",
                     failure);
}

uint64_t muster_samples_group(const struct muster_samples *s)
{
    return s->group->id;
}

uint64_t muster_samples_key(const struct muster_samples *s)
{
    return s->group->key;
}

const char *muster_samples_dropped(const struct muster_samples *s)
{
    return s->group->why == MS_WHY_NONE ? NULL : ms_generate_why_name(s->group->why);
}

size_t muster_samples_count(const struct muster_samples *s)
{
    return s->count;
}

bool muster_samples_at(const struct muster_samples *s,
                       size_t index,
                       struct muster_sample *out)
{
    const struct ms_rollout_sample *one;

    if (index >= s->count)
        return false;
    one = &s->group->samples[s->shown[index]];
    *out = (struct muster_sample){
        .tokens = one->tokens,
        .logprobs = one->logprobs,
        .count = one->count,
        .versions = s->runs + s->first[s->shown[index]],
        .version_count = one->run_count,
        .finish_reason = one->reason,
        .replica = one->replica == MS_NOWHERE ? -1 : (int32_t)one->replica,
        .attempt = one->attempt,
        .seq = one->seq,
        .rid = one->rid,
        .failure = one->failure};
    return true;
}

void muster_samples_destroy(struct muster_samples *s)
{
    if (!s)
        return;
    ms_rollout_group_free(s->group);
    free(s->runs);
    free(s->first);
    free(s->shown);
    free(s);
}
