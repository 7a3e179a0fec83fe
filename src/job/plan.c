/* plan.c - place a job's roles one after the other in the books of some nodes */
#include "job/plan.h"
#include "base/cleanup.h"
#include "resource/shape.h"

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

/* A group of one bundle for each rank. */
static int ask_group(struct ms_job_plan *p,
                     const struct ms_job_role *r,
                     struct ms_group **out,
                     struct ms_buf *table,
                     struct ms_error *err)
{
    size_t count = r->world_size ? r->world_size : 1;
    MS_CLEANUP(ms_cleanup_free)
    struct ms_bundle *bundles =
        count <= MS_PLACE_BUNDLES_MAX ? calloc(count, sizeof *bundles) : NULL;
    struct ms_place_request request = {
        .name = r->name,
        .bundles = bundles,
        .count = count,
        .strategy = r->strategy,
        .same = r->same,
    };
    int kind = r->kind ? ms_stock_kind(&p->books.stock, r->kind, err) : 0;

    if (!bundles || kind < 0)
        return bundles ? kind : no_memory(err);
    for (size_t i = 0; i < count; i++) {
        bundles[i] = r->bundle;
        bundles[i].kind = (uint8_t)kind;
    }
    return ms_books_ask(&p->books, &request, 0, 0, 0, out, table, err);
}

/* Its ranks stand in the bundles of a group of its name. */
static int place_in_group(struct ms_job_plan *p,
                          const struct ms_job_role *r,
                          struct ms_claim **out,
                          struct ms_buf *table,
                          struct ms_error *err)
{
    uint32_t count = r->world_size ? r->world_size : 1;
    MS_CLEANUP(ms_cleanup_free) struct ms_seat *seats = NULL;
    struct ms_claim_request request = {
        .request = {.cluster = r->name, .world_size = count}, .seat_count = count};
    struct ms_group *g = NULL;
    int rc = ask_group(p, r, &g, table, err);

    if (rc < 0)
        return rc;
    seats = calloc(count, sizeof *seats);
    if (!seats)
        return no_memory(err);
    for (uint32_t i = 0; i < count; i++)
        seats[i] = (struct ms_seat){g, i};
    request.seats = seats;
    return ms_books_claim(&p->books, &request, out, table, err);
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
