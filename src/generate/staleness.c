/* staleness.c - AReaL's capacity formula and its counters */
#include "generate/staleness.h"

static int64_t at_least_one(int64_t n)
{
    return n > 1 ? n : 1;
}

int64_t ms_staleness_capacity(const struct ms_staleness *s, int64_t version)
{
    int64_t concurrent = at_least_one(s->concurrent_max) - s->running;
    int64_t allowed = (s->staleness_max + version + 1) * at_least_one(s->batch);
    int64_t fresh = allowed - (s->accepted + s->running);

    return concurrent < fresh ? concurrent : fresh;
}

int64_t ms_staleness_pending_max(const struct ms_staleness *s)
{
    return (s->staleness_max + 1) * s->batch;
}

void ms_staleness_enqueue(struct ms_staleness *s)
{
    s->enqueued++;
}

void ms_staleness_submit(struct ms_staleness *s)
{
    s->enqueued--;
    s->running++;
}

void ms_staleness_accept(struct ms_staleness *s)
{
    s->running--;
    s->accepted++;
}

void ms_staleness_reject(struct ms_staleness *s)
{
    s->running--;
    s->rejected++;
}

void ms_staleness_recover(struct ms_staleness *s, int64_t version)
{
    s->enqueued = s->running = s->rejected = 0;
    s->accepted = version * at_least_one(s->batch);
}
