/* queue.c - which job is next */
#include "job/core/core.h"

int ms_job_queue_compare(const struct ms_job_queued *a, const struct ms_job_queued *b)
{
    if (a->priority != b->priority)
        return a->priority > b->priority ? -1 : 1;
    if (a->submitted_ns != b->submitted_ns)
        return a->submitted_ns < b->submitted_ns ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}
