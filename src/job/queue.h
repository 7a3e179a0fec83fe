/* queue.h - which of the jobs on one machine may start, and what the others wait for; pure
 *
 * Jobs go by priority, then by age. The first in the queue starts when what it wants is free,
 * or when nobody holds anything: one that wants more than the machine has runs alone. Nobody
 * overtakes: what a job waits for is not given to those behind it. A job that wants nothing
 * never waits.
 */
#ifndef MS_JOB_QUEUE_H
#define MS_JOB_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The place of a job in the queue. */
struct ms_job_queued {
    int32_t priority; /* higher ones go first */
    int64_t submitted_ns;
    uint64_t id; /* decides between equals: the smaller */
};

/* <0: a goes before b; for qsort and by hand. */
int ms_job_queue_compare(const struct ms_job_queued *a, const struct ms_job_queued *b);

/* What a job wants of the machine, or what that has. */
struct ms_job_demand {
    uint64_t cpu_milli, memory;
    uint32_t
        devices; /* of a machine: 0 means that they are only described, and not counted */
};

/* What a job waits for. */
enum ms_job_lack {
    MS_JOB_LACKS_NOTHING, /* it may start, or has */
    MS_JOB_LACKS_TURN,    /* a job before it waits */
    MS_JOB_LACKS_CPUS,
    MS_JOB_LACKS_MEMORY,
    MS_JOB_LACKS_DEVICES,
};

struct ms_job_claim {
    struct ms_job_queued place;
    struct ms_job_demand wants;
    bool is_holding; /* it was admitted, and has given nothing back */
    /* decided: */
    enum ms_job_lack lacks;
    size_t behind;       /* LACKS_TURN: the claim that it waits behind */
    uint64_t want, free; /* of what it lacks */
};

bool ms_job_demand_is_nothing(const struct ms_job_demand *d);
void ms_job_demand_add(struct ms_job_demand *to, const struct ms_job_demand *more);
/* What is less than 0 then is 0. */
void ms_job_demand_take(struct ms_job_demand *from, const struct ms_job_demand *taken);

/* Decide of all claims. What those hold or may take now is gone for the others. 0 or
 * -ENOMEM. *left, if given, is what nobody has taken or waits for. */
int ms_job_queue_decide(struct ms_job_claim *claims,
                        size_t count,
                        const struct ms_job_demand *machine,
                        struct ms_job_demand *left);

/* Does it fit into what is free of this machine? If not, what is missing. */
enum ms_job_lack ms_job_demand_lacks(const struct ms_job_demand *wants,
                                     const struct ms_job_demand *machine,
                                     const struct ms_job_demand *free);

#endif
