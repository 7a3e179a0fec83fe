/* staleness.c - AReaL's capacity formula and its counters */
#include "generate/staleness.h"

/* Python's "no limit" is sys.maxsize: sums and products stop at the ends of the type. */
static int64_t add(int64_t a, int64_t b)
{
    int64_t sum;

    if (__builtin_add_overflow(a, b, &sum))
        return a < 0 ? INT64_MIN : INT64_MAX;
    return sum;
}

static int64_t subtract(int64_t a, int64_t b)
{
    int64_t rest;

    if (__builtin_sub_overflow(a, b, &rest))
        return a < 0 ? INT64_MIN : INT64_MAX;
    return rest;
}

static int64_t multiply(int64_t a, int64_t b)
{
    int64_t product;

    if (__builtin_mul_overflow(a, b, &product))
        return (a < 0) != (b < 0) ? INT64_MIN : INT64_MAX;
    return product;
}

static int64_t at_least_one(int64_t n)
{
    return n > 1 ? n : 1;
}

int64_t ms_staleness_capacity(const struct ms_staleness *s, int64_t version)
{
    int64_t concurrent = subtract(at_least_one(s->concurrent_max), s->running);
    int64_t versions = add(add(s->staleness_max, version), 1);
    int64_t allowed = multiply(versions, at_least_one(s->batch));
    int64_t fresh = subtract(allowed, add(s->accepted, s->running));

    return concurrent < fresh ? concurrent : fresh;
}

int64_t ms_staleness_pending_max(const struct ms_staleness *s)
{
    return multiply(add(s->staleness_max, 1), s->batch);
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
    s->accepted = multiply(version, at_least_one(s->batch));
}
