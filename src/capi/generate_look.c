/* generate_look.c - what a driver in C sees of its scheduler: numbers, explanations, news */
#include "capi/generate.h"

#include <errno.h>

_Static_assert(MUSTER_RID == MS_ROLLOUT_RID, "ids of requests are as they are shown");

static void add_up(struct ms_rollout *r, struct muster_scheduler_stats *out)
{
    struct ms_rollout_replica_stats one;

    for (uint32_t i = 0; ms_rollout_replica_stats(r, i, &one); i++) {
        out->replicas_up += one.state == MS_ROLLOUT_UP;
        out->streamed += one.tokens;
    }
}

void muster_scheduler_get_stats(struct muster_scheduler *s,
                                struct muster_scheduler_stats *out)
{
    struct ms_rollout_stats now;

    ms_capi_replicas_follow(s);
    ms_rollout_stats(s->rollout, &now);
    *out = (struct muster_scheduler_stats){.submitted = now.submitted,
                                           .delivered = now.core.delivered,
                                           .dropped = now.core.dropped,
                                           .failed = now.core.failed,
                                           .queued = now.core.queued,
                                           .running = now.core.running,
                                           .aborting = now.core.aborting,
                                           .sent = now.core.sent,
                                           .resumed = now.core.resumed,
                                           .moved = now.core.moved,
                                           .tokens = now.core.tokens,
                                           .version = now.version};
    add_up(s->rollout, out);
}

int muster_scheduler_explain(struct muster_scheduler *s,
                             const char *rid,
                             char *text,
                             size_t size)
{
    struct ms_explanation x;

    return rid ? ms_rollout_explain(s->rollout, rid, &x, text, size) : -ENOENT;
}

void muster_scheduler_get_history(struct muster_scheduler *s,
                                  uint64_t *saves,
                                  uint64_t *failures,
                                  struct muster_error *error)
{
    struct ms_rollout_stats now;

    ms_rollout_stats(s->rollout, &now);
    *saves = now.saves.saves;
    *failures = now.saves.failures;
    muster_error_set(error, now.saves.failures ? -EIO : 0, NULL, "%s", now.saves.error);
}

double muster_scheduler_bias(struct muster_scheduler *s)
{
    struct ms_rollout_stats now;

    ms_rollout_stats(s->rollout, &now);
    return now.bias;
}

int muster_scheduler_rid(struct muster_scheduler *s,
                         uint64_t group,
                         uint32_t seq,
                         char rid[MUSTER_RID])
{
    return ms_rollout_rid(s->rollout, group, seq, rid);
}

int muster_scheduler_listen(struct muster_scheduler *s)
{
    return ms_rollout_listen(s->rollout);
}

void muster_scheduler_unlisten(struct muster_scheduler *s, int fd)
{
    ms_rollout_unlisten(s->rollout, fd);
}
