/* node_ranges.c - which nodes of a job are asked for at first, again, and later */
#include "job/node_ranges.h"

size_t ms_job_nodes_count(const struct ms_job *job)
{
    return job->node_count ? job->node_count : 1;
}

/* NULL: it is needed for itself. */
static const struct ms_job_node_range *range_of(const struct ms_job *job, size_t node)
{
    for (size_t i = 0; i < job->node_range_count; i++) {
        const struct ms_job_node_range *r = &job->node_ranges[i];

        if (node >= r->first && node - r->first < r->count.max)
            return r;
    }
    return NULL;
}

size_t ms_job_nodes_least(const struct ms_job *job, uint32_t *out)
{
    size_t count = 0;

    for (size_t i = 0; i < ms_job_nodes_count(job); i++) {
        const struct ms_job_node_range *r = range_of(job, i);

        if (!r || i - r->first < r->count.min)
            out[count++] = (uint32_t)i;
    }
    return count;
}

static uint32_t count_present(const struct ms_job_node_range *r, const uint8_t *is)
{
    uint32_t count = 0;

    for (size_t i = r->first; i < r->first + r->count.max; i++)
        count += is[i] != MS_JOB_NODE_ABSENT;
    return count;
}

uint32_t ms_job_nodes_held(const struct ms_job *job, size_t range, const uint8_t *is)
{
    const struct ms_job_node_range *r = &job->node_ranges[range];
    uint32_t count = count_present(r, is);

    return count > r->count.min ? count : r->count.min;
}

/* Nobody is asked for again in its place: its range has enough without it. */
static bool is_spare(const struct ms_job_node_range *r, const uint8_t *is)
{
    return r && count_present(r, is) >= r->count.min;
}

bool ms_job_nodes_find_lost(const struct ms_job *job, const uint8_t *is, uint32_t *node)
{
    size_t count = ms_job_nodes_count(job);

    for (size_t i = 0; i < count; i++) {
        const struct ms_job_node_range *r;

        if (is[i] != MS_JOB_NODE_ABSENT && is[i] != MS_JOB_NODE_ENDED)
            continue;
        r = is[i] == MS_JOB_NODE_ABSENT ? range_of(job, i) : NULL;
        if (!is_spare(r, is)) {
            *node = (uint32_t)i;
            return true;
        }
        while (i + 1 < r->first + r->count.max && is[i + 1] != MS_JOB_NODE_ENDED)
            i++; /* what is absent there is spare too */
    }
    return false;
}

size_t
ms_job_nodes_more(const struct ms_job *job, size_t range, uint8_t *is, uint32_t *out)
{
    const struct ms_job_node_range *r = &job->node_ranges[range];
    uint32_t present = count_present(r, is);
    size_t wanted = r->count.unit - present % r->count.unit, count = 0;

    if (present < r->count.min)
        return 0;
    for (size_t i = r->first; i < r->first + r->count.max && count < wanted; i++)
        if (is[i] == MS_JOB_NODE_ABSENT) {
            is[i] = MS_JOB_NODE_ASKED;
            out[count++] = (uint32_t)i;
        }
    return count;
}
