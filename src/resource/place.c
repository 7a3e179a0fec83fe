/* place.c - placement groups: checks, holding, giving back */
#include "resource/place.h"
#include "base/cleanup.h"
#include "resource/amount.h"
#include "resource/place_impl.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

static const char *const names[] = {
    [MS_STRATEGY_PACK] = "PACK",
    [MS_STRATEGY_SPREAD] = "SPREAD",
    [MS_STRATEGY_STRICT_PACK] = "STRICT_PACK",
    [MS_STRATEGY_STRICT_SPREAD] = "STRICT_SPREAD",
};

int ms_strategy_parse(const char *text, enum ms_strategy *out, struct ms_error *err)
{
    for (size_t i = 0; i < MS_COUNT(names); i++)
        if (strcmp(text, names[i]) == 0) {
            *out = (enum ms_strategy)i;
            return 0;
        }
    return ms_error_set(err,
                        -EINVAL,
                        "strategy '%s' is none of PACK, SPREAD, STRICT_PACK and "
                        "STRICT_SPREAD",
                        text);
}

const char *ms_strategy_name(enum ms_strategy s)
{
    return names[s];
}

/* ---- domains --------------------------------------------------------------------- */

struct valued {
    const char *value;
    uint32_t node;
};

static int compare_valued(const void *a, const void *b)
{
    const struct valued *x = a, *y = b;
    int rc = strcmp(x->value, y->value);

    return rc ? rc : (x->node > y->node) - (x->node < y->node);
}

/* See place_impl.h; malloc'd. NULL: out of memory. */
static uint32_t *find_domains(const struct ms_stock *s, const char *same)
{
    MS_CLEANUP(ms_cleanup_free)
    struct valued *values = same ? calloc(s->count + 1, sizeof *values) : NULL;
    uint32_t *of = same && !values ? NULL : calloc(s->count + 1, sizeof *of);
    size_t count = 0;

    if (!of || !same)
        return of;
    for (uint32_t i = 0; i < s->count; i++) {
        const struct ms_stock_node *n = &s->nodes[i];
        const char *value = ms_label_find(n->labels, n->label_count, same);

        of[i] = UINT32_MAX;
        if (value)
            values[count++] = (struct valued){value, i};
    }
    qsort(values, count, sizeof *values, compare_valued);
    for (size_t i = 0, first = 0; i < count; i++) {
        if (strcmp(values[i].value, values[first].value) != 0)
            first = i;
        of[values[i].node] = values[first].node;
    }
    return of;
}

/* ---- placing --------------------------------------------------------------------- */

static int check_request(const struct ms_place_request *r, struct ms_error *err)
{
    int rc = 0;

    if (r->count == 0)
        return ms_error_set(err, -EINVAL, "group '%s' has no bundles", r->name);
    if (r->count > MS_PLACE_BUNDLES_MAX)
        return ms_error_set(err,
                            -EINVAL,
                            "group '%s': %zu bundles are more than %zu",
                            r->name,
                            r->count,
                            MS_PLACE_BUNDLES_MAX);
    for (size_t i = 0; i < r->count && rc == 0; i++) {
        rc = ms_bundle_check(&r->bundles[i], err);
        if (rc < 0)
            ms_error_wrap(err, "group '%s': bundle %zu", r->name, i);
    }
    return rc;
}

static bool is_equal(const struct ms_place_request *r)
{
    for (size_t i = 1; i < r->count; i++)
        if (!ms_bundle_is_equal(&r->bundles[0], &r->bundles[i]))
            return false;
    return true;
}

static int placement_init(struct ms_placement *p, const struct ms_place_request *r)
{
    uint64_t total = 0;

    *p = (struct ms_placement){.count = r->count};
    p->nodes = calloc(r->count, sizeof *p->nodes);
    p->first = calloc(r->count + 1, sizeof *p->first);
    if (!p->nodes || !p->first)
        return -ENOMEM;
    for (size_t i = 0; i < r->count; i++) {
        total += ms_bundle_width(&r->bundles[i]);
        if (total > UINT32_MAX)
            return -ENOMEM;
        p->first[i + 1] = (uint32_t)total;
    }
    p->devices = calloc(total ? total : 1, sizeof *p->devices);
    return p->devices ? 0 : -ENOMEM;
}

void ms_placement_finish(struct ms_placement *p)
{
    free(p->nodes);
    free(p->first);
    free(p->devices);
    *p = (struct ms_placement){0};
}

static int
no_place(const struct ms_place_request *r, int rc, uint64_t steps, struct ms_error *err)
{
    if (rc == -ENOMEM)
        return ms_error_set(err, rc, "group '%s': out of memory", r->name);
    if (rc == -EAGAIN)
        return ms_error_set(
            err,
            rc,
            "group '%s': no way to place its %zu bundles (%s) was found "
            "in %llu steps",
            r->name,
            r->count,
            ms_strategy_name(r->strategy),
            (unsigned long long)steps);
    return ms_error_set(err,
                        rc,
                        "group '%s': its %s (%s) cannot be placed on what is free",
                        r->name,
                        ms_amount_count(r->count, "bundle").text,
                        ms_strategy_name(r->strategy));
}

static int place(struct ms_stock *s,
                 const struct ms_place_request *r,
                 struct ms_placement *out,
                 struct ms_error *err)
{
    MS_CLEANUP(ms_cleanup_free) uint32_t *domain_of = find_domains(s, r->same);
    struct ms_placement p = {0};
    uint64_t steps = 0;
    int rc = domain_of ? placement_init(&p, r) : -ENOMEM;

    if (rc == 0 && is_equal(r)) {
        rc = ms_place_equal(s, r, domain_of, &p);
        for (size_t i = 0; rc == 0 && i < r->count; i++) {
            bool taken = ms_bundle_take(
                &r->bundles[i], &s->nodes[p.nodes[i]], p.devices + p.first[i]);

            assert(taken);
        }
    } else if (rc == 0) {
        rc = ms_place_mixed(s, r, domain_of, &p, &steps);
    }
    if (rc < 0) {
        ms_placement_finish(&p);
        return no_place(r, rc, steps, err);
    }
    *out = p;
    return 0;
}

int ms_place(struct ms_stock *s,
             const struct ms_place_request *r,
             struct ms_placement *out,
             struct ms_error *err)
{
    struct ms_stock_view view;
    int rc = check_request(r, err);

    if (rc < 0 || !r->scope)
        return rc < 0 ? rc : place(s, r, out, err);
    rc = ms_stock_view_init(&view, s, r->scope, err);
    if (rc < 0) {
        ms_error_wrap(err, "group '%s'", r->name);
        return rc == -ENOENT ? -ENOSPC : rc;
    }
    rc = place(&view.stock, r, out, err);
    for (size_t i = 0; rc == 0 && i < out->count; i++)
        out->nodes[i] = view.scope.nodes[out->nodes[i]];
    ms_stock_view_finish(&view);
    return rc;
}

void ms_place_hold(struct ms_stock *s,
                   const struct ms_place_request *r,
                   const struct ms_placement *p)
{
    for (size_t i = 0; i < p->count; i++)
        ms_bundle_hold(
            &r->bundles[i], &s->nodes[p->nodes[i]], p->devices + p->first[i]);
}

void ms_place_release(struct ms_stock *s,
                      const struct ms_place_request *r,
                      struct ms_placement *p)
{
    for (size_t i = 0; i < p->count; i++)
        ms_bundle_give(
            &r->bundles[i], &s->nodes[p->nodes[i]], p->devices + p->first[i]);
    ms_placement_finish(p);
}
