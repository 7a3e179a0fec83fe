/* group_request.c - reading a PlaceGroup message */
#include "head/place/group_request.h"
#include "head/place/place_impl.h"

#include <errno.h>
#include <stdlib.h>

void ms_group_request_finish(struct ms_group_request *w)
{
    for (size_t i = 0; i < w->specs; i++) {
        ms_selector_finish(&w->selectors[i]);
        free(w->extras[i]);
    }
    free(w->selectors);
    free(w->extras);
    free(w->bundles);
}

static size_t count_of(const Muster__BundleSpec *b)
{
    return b->count ? b->count : 1;
}

/* -E2BIG, -ENOMEM */
static int
reserve(struct ms_group_request *w, const Muster__PlaceGroup *m, struct ms_error *err)
{
    size_t total = 0;

    for (size_t i = 0; i < m->n_bundles; i++) {
        total += count_of(m->bundles[i]);
        if (total > MS_PLACE_BUNDLES_MAX)
            return ms_error_set(err,
                                -E2BIG,
                                "group '%s': more than %zu bundles",
                                m->name,
                                MS_PLACE_BUNDLES_MAX);
    }
    w->bundles = calloc(total + 1, sizeof *w->bundles);
    w->selectors = calloc(m->n_bundles + 1, sizeof *w->selectors);
    w->extras = calloc(m->n_bundles + 1, sizeof *w->extras);
    if (!w->bundles || !w->selectors || !w->extras)
        return ms_error_set(err, -ENOMEM, "group '%s': out of memory", m->name);
    w->specs = m->n_bundles;
    w->request.bundles = w->bundles;
    return 0;
}

static int read_parts(struct ms_group_request *w,
                      const Muster__BundleSpec *m,
                      size_t at,
                      struct ms_bundle *b,
                      struct ms_error *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < m->n_labels; i++)
        rc = ms_selector_add(
            &w->selectors[at], m->labels[i]->name, m->labels[i]->condition, err);
    if (m->n_labels)
        b->selector = &w->selectors[at];
    if (rc < 0 || m->n_resources == 0)
        return rc;
    w->extras[at] = calloc(m->n_resources, sizeof **w->extras);
    if (!w->extras[at])
        return ms_error_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < m->n_resources; i++)
        w->extras[at][i] =
            (struct ms_extra_need){m->resources[i]->name, m->resources[i]->amount};
    b->extras = w->extras[at];
    b->extra_count = m->n_resources;
    return 0;
}

static int kind_of(struct ms_stock *kinds, const char *kind, struct ms_error *err)
{
    if (kinds)
        return ms_stock_kind(kinds, kind, err);
    return ms_error_set(
        err, -ENOTSUP, "kind '%.32s': name what it has by a label instead", kind);
}

static int read_bundle(struct ms_group_request *w,
                       struct ms_stock *kinds,
                       const Muster__BundleSpec *m,
                       size_t at,
                       struct ms_error *err)
{
    int kind = m->kind[0] ? kind_of(kinds, m->kind, err) : 0;
    struct ms_bundle b = {.cpu_milli = m->cpu_milli,
                          .memory = m->memory,
                          .devices = m->devices,
                          .share_milli = m->share_milli,
                          .device_memory = m->device_memory,
                          .kind = (uint8_t)(kind > 0 ? kind : 0),
                          .one_domain = m->one_domain};
    int rc = kind < 0 ? kind : read_parts(w, m, at, &b, err);

    for (size_t i = 0; rc == 0 && i < count_of(m); i++)
        w->bundles[w->request.count++] = b;
    return rc;
}

int ms_group_request_read(struct ms_group_request *w,
                          struct ms_stock *kinds,
                          const Muster__PlaceGroup *m,
                          struct ms_error *err)
{
    int rc = reserve(w, m, err);

    w->request.name = m->name;
    w->request.same = m->same[0] ? m->same : NULL;
    ms_place_scope(m->scope, &w->scope);
    if (m->scope && (m->scope->n_nodes || m->scope->is_limited || m->scope->num_nodes))
        w->request.scope = &w->scope;
    if (rc == 0 && m->strategy[0])
        rc = ms_strategy_parse(m->strategy, &w->request.strategy, err);
    for (size_t i = 0; rc == 0 && i < m->n_bundles; i++)
        rc = read_bundle(w, kinds, m->bundles[i], i, err);
    return rc;
}
