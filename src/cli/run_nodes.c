#include "cli/run_nodes.h"

#include "agent/machine.h"
#include "resource/shape.h"

#include <errno.h>
#include <stdlib.h>

static int add(struct ms_run_nodes *n,
               const char *name,
               const Muster__NodeShape *told,
               struct ms_error *err)
{
    Muster__NodeShape *s = ms_machine_shape(name, told, err);
    int64_t at;

    if (!s)
        return -ENOMEM;
    n->shapes[n->count++] = s;
    at = ms_stock_add_shape(&n->stock, s, err);
    return at < 0 ? (int)at : 0;
}

/* All that a node has. */
static int fill_bundle(struct ms_bundle *b, const struct ms_stock_node *n)
{
    struct ms_extra_need *extras = calloc(n->extra_count + 1, sizeof *extras);

    *b = (struct ms_bundle){.cpu_milli = n->cpu_milli,
                            .memory = n->memory,
                            .devices = n->device_count,
                            .extras = extras,
                            .extra_count = n->extra_count};
    for (size_t i = 0; extras && i < n->extra_count; i++)
        extras[i] = (struct ms_extra_need){n->extras[i].name, n->extras[i].total};
    return extras ? 0 : -ENOMEM;
}

int ms_run_nodes_init(struct ms_run_nodes *n,
                      const struct ms_job *job,
                      const char *key,
                      struct ms_error *err)
{
    size_t count = job->has_nodes ? job->node_count : 1;
    int rc = 0;

    *n = (struct ms_run_nodes){.shapes = calloc(count, sizeof *n->shapes),
                               .bundles = calloc(count, sizeof *n->bundles)};
    ms_stock_init(&n->stock);
    if (!n->shapes || !n->bundles)
        return ms_error_set(err, -ENOMEM, "out of memory");
    if (!job->has_nodes)
        rc = add(n, "localhost", NULL, err);
    for (size_t i = 0; i < job->node_count && rc == 0; i++)
        rc = add(n, job->nodes[i]->name, job->nodes[i], err);
    for (size_t i = 0; i < n->count && rc == 0; i++)
        if (fill_bundle(&n->bundles[i], &n->stock.nodes[i]) < 0)
            rc = ms_error_set(err, -ENOMEM, "out of memory");
    n->pieces = (struct ms_place_request){.name = key,
                                          .bundles = n->bundles,
                                          .count = n->count,
                                          .strategy = MS_STRATEGY_STRICT_SPREAD};
    return rc;
}

int ms_run_nodes_stock(const struct ms_run_nodes *n,
                       struct ms_stock *out,
                       struct ms_error *err)
{
    ms_stock_init(out);
    for (size_t i = 0; i < n->count; i++)
        if (ms_stock_add_shape(out, n->shapes[i], err) < 0) {
            ms_stock_finish(out);
            return -ENOMEM;
        }
    return 0;
}

void ms_run_nodes_finish(struct ms_run_nodes *n)
{
    for (size_t i = 0; i < n->count; i++) {
        ms_shape_destroy(n->shapes[i]);
        free((void *)(uintptr_t)n->bundles[i].extras);
    }
    free(n->shapes);
    free(n->bundles);
    ms_stock_finish(&n->stock);
    *n = (struct ms_run_nodes){0};
}
