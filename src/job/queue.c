/* queue.c - jobs that share one machine: in their order, as long as there is enough */
#include "job/queue.h"
#include "base/cleanup.h"

#include <errno.h>
#include <stdlib.h>

int ms_job_queue_compare(const struct ms_job_queued *a, const struct ms_job_queued *b)
{
    if (a->priority != b->priority)
        return a->priority > b->priority ? -1 : 1;
    if (a->submitted_ns != b->submitted_ns)
        return a->submitted_ns < b->submitted_ns ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

bool ms_job_demand_is_nothing(const struct ms_job_demand *d)
{
    return d->cpu_milli == 0 && d->memory == 0 && d->devices == 0;
}

void ms_job_demand_add(struct ms_job_demand *to, const struct ms_job_demand *more)
{
    to->cpu_milli += more->cpu_milli;
    to->memory += more->memory;
    to->devices += more->devices;
}

static uint64_t less(uint64_t from, uint64_t taken)
{
    return from > taken ? from - taken : 0;
}

void ms_job_demand_take(struct ms_job_demand *from, const struct ms_job_demand *taken)
{
    from->cpu_milli = less(from->cpu_milli, taken->cpu_milli);
    from->memory = less(from->memory, taken->memory);
    from->devices = (uint32_t)less(from->devices, taken->devices);
}

enum ms_job_lack ms_job_demand_lacks(const struct ms_job_demand *wants,
                                     const struct ms_job_demand *machine,
                                     const struct ms_job_demand *free)
{
    if (wants->cpu_milli > free->cpu_milli)
        return MS_JOB_LACKS_CPUS;
    if (wants->memory > free->memory)
        return MS_JOB_LACKS_MEMORY;
    if (machine->devices && wants->devices > free->devices)
        return MS_JOB_LACKS_DEVICES;
    return MS_JOB_LACKS_NOTHING;
}

/* Those that wait, in their order. */
static int by_place(const void *a, const void *b)
{
    const struct ms_job_claim *const *x = a, *const *y = b;

    return ms_job_queue_compare(&(*x)->place, &(*y)->place);
}

static void say_lack(struct ms_job_claim *c,
                     enum ms_job_lack lacks,
                     const struct ms_job_demand *free)
{
    c->lacks = lacks;
    c->want = lacks == MS_JOB_LACKS_CPUS     ? c->wants.cpu_milli
              : lacks == MS_JOB_LACKS_MEMORY ? c->wants.memory
                                             : c->wants.devices;
    c->free = lacks == MS_JOB_LACKS_CPUS     ? free->cpu_milli
              : lacks == MS_JOB_LACKS_MEMORY ? free->memory
                                             : free->devices;
}

/* The first one that must wait, and then all behind it. */
static void go_through(struct ms_job_claim *claims,
                       struct ms_job_claim **waiting,
                       size_t count,
                       const struct ms_job_demand *machine,
                       struct ms_job_demand *free,
                       bool is_anybody_there)
{
    const struct ms_job_claim *blocked = NULL;

    for (size_t i = 0; i < count; i++) {
        struct ms_job_claim *c = waiting[i];
        enum ms_job_lack lacks = ms_job_demand_lacks(&c->wants, machine, free);

        if (blocked) {
            c->lacks = MS_JOB_LACKS_TURN;
            c->behind = (size_t)(blocked - claims);
        } else if (lacks && is_anybody_there) {
            say_lack(c, lacks, free);
            blocked = c;
        } else {
            ms_job_demand_take(free, &c->wants);
            is_anybody_there = true;
        }
    }
    if (blocked) /* it is for those who wait */
        *free = (struct ms_job_demand){0};
}

int ms_job_queue_decide(struct ms_job_claim *claims,
                        size_t count,
                        const struct ms_job_demand *machine,
                        struct ms_job_demand *left)
{
    MS_CLEANUP(ms_cleanup_free)
    struct ms_job_claim **waiting = calloc(count + 1, sizeof(struct ms_job_claim *));
    struct ms_job_demand free = *machine;
    bool is_anybody_there = false;
    size_t n = 0;

    if (!waiting)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        struct ms_job_claim *c = &claims[i];

        c->lacks = MS_JOB_LACKS_NOTHING;
        if (ms_job_demand_is_nothing(&c->wants))
            continue;
        if (c->is_holding) {
            ms_job_demand_take(&free, &c->wants);
            is_anybody_there = true;
        } else {
            waiting[n++] = c;
        }
    }
    qsort(waiting, n, sizeof(struct ms_job_claim *), by_place);
    go_through(claims, waiting, n, machine, &free, is_anybody_there);
    if (left)
        *left = free;
    return 0;
}
