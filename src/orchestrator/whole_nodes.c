/* whole_nodes.c - a gang that asks for all of each described node */
#include "orchestrator/whole_nodes.h"

#include "agent/machine/machine.h"
#include "resource/shape.h"

#include <errno.h>
#include <stdlib.h>

static Muster__NodeShape *
shape_of(const Muster__NodeShape *told, bool is_here, struct ms_error *err)
{
    Muster__NodeShape *s;

    if (is_here || !told)
        return ms_machine_shape(told ? told->name : "localhost", told, err);
    s = ms_shape_copy(told);
    if (!s) {
        ms_error_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    s->look_for_devices = false;
    if (s->cpus < 0)
        s->cpus = MS_WHOLE_NODES_OPEN_CPUS;
    if (s->memory == 0)
        s->memory = MS_WHOLE_NODES_OPEN_MEMORY;
    return s;
}

/* All that a node has; what is open is not asked for. */
static int fill_bundle(struct ms_bundle *b, const struct ms_stock_node *n)
{
    struct ms_extra_need *extras = calloc(n->extra_count + 1, sizeof *extras);
    bool is_open = n->cpu_milli >= (uint64_t)MS_WHOLE_NODES_OPEN_CPUS * MS_WHOLE_MILLI;

    *b = (struct ms_bundle){.cpu_milli = is_open ? 0 : n->cpu_milli,
                            .memory =
                                n->memory >= MS_WHOLE_NODES_OPEN_MEMORY ? 0 : n->memory,
                            .devices = n->device_count,
                            .extras = extras,
                            .extra_count = n->extra_count};
    for (size_t i = 0; extras && i < n->extra_count; i++)
        extras[i] = (struct ms_extra_need){n->extras[i].name, n->extras[i].total};
    return extras ? 0 : -ENOMEM;
}

static int add(struct ms_whole_nodes *w,
               const Muster__NodeShape *told,
               bool is_here,
               struct ms_error *err)
{
    Muster__NodeShape *s = shape_of(told, is_here, err);
    int64_t at;

    if (!s)
        return err && err->code ? err->code : -ENOMEM;
    w->shapes[w->count++] = s;
    at = ms_stock_add_shape(&w->stock, s, err);
    return at < 0 ? (int)at : 0;
}

int ms_whole_nodes_init(struct ms_whole_nodes *w,
                        const Muster__NodeShape *const *nodes,
                        size_t count,
                        bool are_here,
                        struct ms_error *err)
{
    size_t room = count ? count : 1;
    int rc = 0;

    *w = (struct ms_whole_nodes){.shapes = calloc(room, sizeof *w->shapes),
                                 .bundles = calloc(room, sizeof *w->bundles)};
    if (!w->shapes || !w->bundles)
        return ms_error_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < room && rc == 0; i++)
        rc = add(w, count ? nodes[i] : NULL, are_here, err);
    for (size_t i = 0; i < w->count && rc == 0; i++)
        if (fill_bundle(&w->bundles[i], &w->stock.nodes[i]) < 0)
            rc = ms_error_set(err, -ENOMEM, "out of memory");
    w->pieces = (struct ms_place_request){.bundles = w->bundles,
                                          .count = w->count,
                                          .strategy = MS_STRATEGY_STRICT_SPREAD};
    return rc;
}

int ms_whole_nodes_stock(const struct ms_whole_nodes *w,
                         struct ms_stock *out,
                         struct ms_error *err)
{
    *out = (struct ms_stock){0};
    for (size_t i = 0; i < w->count; i++)
        if (ms_stock_add_shape(out, w->shapes[i], err) < 0) {
            ms_stock_finish(out);
            return -ENOMEM;
        }
    return 0;
}

void ms_whole_nodes_finish(struct ms_whole_nodes *w)
{
    for (size_t i = 0; i < w->count; i++) {
        ms_shape_destroy(w->shapes[i]);
        free((void *)(uintptr_t)w->bundles[i].extras);
    }
    free(w->shapes);
    free(w->bundles);
    ms_stock_finish(&w->stock);
    *w = (struct ms_whole_nodes){0};
}
