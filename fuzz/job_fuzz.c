/* A job's description: what can be read can be planned, or is refused with a reason. */
#include "job/plan.h"
#include "resource/shape.h"

#include <assert.h>

enum { NODES_MAX = 64, RANKS_MAX = 1000 }; /* what a run is worth */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool is_small(const struct ms_job *job)
{
    for (size_t i = 0; i < job->role_count; i++)
        if (job->roles[i].world_size > RANKS_MAX ||
            job->roles[i].device_count > RANKS_MAX)
            return false;
    return job->node_count <= NODES_MAX;
}

static void plan(const struct ms_job *job)
{
    struct ms_job_plan p;
    struct ms_buf text = {0};
    struct ms_error err = {0};
    int rc = 0;

    ms_job_plan_init(&p);
    for (size_t i = 0; i < job->node_count && rc == 0; i++)
        rc = ms_books_node_came(&p.books, job->nodes[i], &err);
    if (rc == 0)
        rc = ms_job_plan_make(&p, job, &text, &err);
    assert(rc == 0 || err.text[0]);
    if (rc == 0) {
        rc = ms_job_plan_print(&p, &text);
        json_decref(ms_job_plan_json(&p));
    }
    ms_buf_finish(&text);
    ms_job_plan_finish(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ms_error err = {0};
    struct ms_job job;

    if (ms_job_read(&job, "x", (const char *)data, size, &err) < 0) {
        assert(err.text[0]);
        return 0;
    }
    if (is_small(&job))
        plan(&job);
    ms_job_finish(&job);
    return 0;
}
