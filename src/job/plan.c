/* plan.c - place a job's roles one after the other in the books of some nodes */
#include "job/plan.h"
#include "base/cleanup.h"

#include <errno.h>

static int no_memory(struct ms_error *err)
{
    return ms_error_set(err, -ENOMEM, "out of memory");
}

void ms_job_plan_init(struct ms_job_plan *p)
{
    *p = (struct ms_job_plan){0};
    ms_books_init(&p->books);
}

void ms_job_plan_finish(struct ms_job_plan *p)
{
    free(p->claims);
    free(p->first_ids);
    ms_scope_finish(&p->scope);
    ms_books_finish(&p->books);
}

int ms_job_plan_add_worker(struct ms_job_plan *p,
                           const char *cluster,
                           const Muster__WorkerStatus *w)
{
    struct ms_piece piece = {.count = (uint32_t)w->n_devices};
    struct ms_layout l = {
        .world_size = 1,
        .first = (uint32_t[]){0, 1},
        .pieces = &piece,
        .devices = w->devices,
        .cpu_milli = w->cpu_milli,
        .memory = w->memory,
    };

    return ms_books_adopt(&p->books, cluster, w->rank, 0, w->node, &l);
}

/* ---- roles ----------------------------------------------------------------------- */

/* Its ranks stand in the bundles of a group, which has the name of the role whose they are. */
static int place_in_group(struct ms_job_plan *p,
                          const struct ms_job_role *r,
                          struct ms_claim **out,
                          struct ms_buf *table,
                          struct ms_error *err)
{
    const struct ms_job_role *of = r->place;
    uint32_t count = r->world_size ? r->world_size : 1;
    MS_CLEANUP(ms_cleanup_free) struct ms_seat *seats = calloc(count, sizeof *seats);
    struct ms_bundle bundle = of->bundle;
    struct ms_place_request like = {.name = of->name,
                                    .bundles = &bundle,
                                    .count = ms_job_role_bundles(of),
                                    .strategy = of->strategy,
                                    .same = of->same};
    struct ms_claim_request request = {
        .request = {.cluster = r->name, .world_size = count},
        .seats = seats,
        .seat_count = count};
    int kind = of->kind ? ms_stock_kind(&p->books.stock, of->kind, err) : 0;
    int rc;

    if (!seats || kind < 0)
        return seats ? kind : no_memory(err);
    bundle.kind = (uint8_t)kind;
    rc = ms_books_seat(&p->books,
                       &(struct ms_seats_request){.like = &like, .count = count},
                       seats,
                       table,
                       err);
    return rc < 0 ? rc : ms_books_claim(&p->books, &request, out, table, err);
}

static int place_role(struct ms_job_plan *p,
                      const struct ms_job_role *r,
                      struct ms_claim **out,
                      struct ms_buf *table,
                      struct ms_error *err)
{
    struct ms_claim_request request = {
        .scope = {.devices_per_node = MS_ALL_DEVICES},
        .request =
            {
                .cluster = r->name,
                .world_size = r->world_size ? r->world_size : !r->device_count,
                .devices = r->devices,
                .device_count = r->device_count,
                .devices_per_worker = r->num_gpus_per_worker,
                .cpu_milli = r->cpu_milli,
                .memory = r->memory,
                .device_memory = r->gpu_memory,
            },
    };

    return r->has_bundle ? place_in_group(p, r, out, table, err)
                         : ms_books_claim(&p->books, &request, out, table, err);
}

int ms_job_plan_make(struct ms_job_plan *p,
                     const struct ms_job *job,
                     struct ms_buf *table,
                     struct ms_error *err)
{
    struct ms_scope_request all = {.devices_per_node = MS_ALL_DEVICES};
    int rc = ms_scope_init(&p->scope, &p->books.stock, &all, table, err);

    if (rc < 0)
        return rc;
    p->claims = calloc(job->role_count + 1, sizeof(struct ms_claim *));
    p->first_ids = calloc(p->books.stock.count + 1, sizeof *p->first_ids);
    if (!p->claims || !p->first_ids)
        return no_memory(err);
    for (size_t i = 0; i < p->scope.count; i++)
        p->first_ids[p->scope.nodes[i]] = p->scope.first[i];
    p->job = job;
    for (size_t i = 0; i < job->role_count && rc == 0; i++) {
        struct ms_claim *claim = NULL;

        rc = place_role(p, &job->roles[i], &claim, table, err);
        p->claims[i] = claim;
    }
    return rc;
}
