/* notes.c - shards that were set aside, among the events of their job */
#include "head/head_impl.h"
#include "head/jobs/jobs.h"
#include "head/shards/shards_impl.h"

#include <inttypes.h>

void ms_head_shards_note(const struct ms_head_shards *s, size_t known)
{
    const struct ms_shard_queue *q = &s->q;
    size_t last = q->failed.count - known > MS_SHARDS_TOLD_MAX
                      ? known + MS_SHARDS_TOLD_MAX
                      : q->failed.count;

    for (size_t i = known; i < last; i++) {
        const struct ms_shard *shard = &q->failed.at[i];
        struct ms_shard_range range = ms_shard_queue_range(q, shard->position);

        ms_jobs_note(s->head->jobs,
                     s->driver,
                     "shards %s: %" PRIu64 " to %" PRIu64 " of epoch %" PRIu64
                     " are set aside (failures: %u, deaths of workers: %u): %s",
                     s->name,
                     range.start,
                     range.end - 1,
                     range.epoch,
                     shard->failures,
                     shard->deaths,
                     shard->reason ? shard->reason : "no reason was given");
    }
    if (last < q->failed.count)
        ms_jobs_note(s->head->jobs,
                     s->driver,
                     "shards %s: %zu more are set aside",
                     s->name,
                     q->failed.count - last);
}
