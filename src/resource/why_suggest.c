/* The nearest change with which a group can be placed. */
#include "base/cleanup.h"
#include "resource/amount.h"
#include "resource/why.h"

#include <errno.h>
#include <stdlib.h>

/* A copy of the request that may be changed. */
struct trial {
    struct ms_stock *stock;
    struct ms_place_request request;
    struct ms_bundle *bundles;
};

static void trial_finish(struct trial *t)
{
    free(t->bundles);
}

static void reset(struct trial *t, const struct ms_place_request *r)
{
    t->request = *r;
    t->request.bundles = t->bundles;
    t->request.steps_max = MS_PLACE_STEPS_MAX / 20; /* a hint is not worth more */
    for (size_t i = 0; i < r->count; i++)
        t->bundles[i] = r->bundles[i];
}

static bool fits(struct trial *t)
{
    struct ms_placement p;

    if (ms_place(t->stock, &t->request, &p, NULL) < 0)
        return false;
    ms_place_release(t->stock, &t->request, &p);
    return true;
}

/* The most that one bundle asks of a resource, and a limit to it for all. */
typedef uint64_t get_fn(const struct ms_bundle *b);
typedef void limit_fn(struct ms_bundle *b, uint64_t most);

static uint64_t get_devices(const struct ms_bundle *b)
{
    return b->devices;
}

static void limit_devices(struct ms_bundle *b, uint64_t most)
{
    if (b->devices > most)
        b->devices = (uint32_t)most;
}

static uint64_t get_cpus(const struct ms_bundle *b)
{
    return b->cpu_milli / 1000;
}

static void limit_cpus(struct ms_bundle *b, uint64_t most)
{
    if (b->cpu_milli > most * 1000)
        b->cpu_milli = most * 1000;
}

static uint64_t get_memory(const struct ms_bundle *b)
{
    return b->memory >> 20;
}

static void limit_memory(struct ms_bundle *b, uint64_t most)
{
    if (b->memory > most << 20)
        b->memory = most << 20;
}

static bool fits_with(struct trial *t,
                      const struct ms_place_request *r,
                      limit_fn *limit,
                      uint64_t most)
{
    reset(t, r);
    for (size_t i = 0; i < r->count; i++)
        limit(&t->bundles[i], most);
    return fits(t);
}

/* The most of a resource with which it fits; less always fits better. 0: with none. */
static uint64_t
largest(struct trial *t, const struct ms_place_request *r, get_fn *get, limit_fn *limit)
{
    uint64_t low = 0, high = 0;

    for (size_t i = 0; i < r->count; i++)
        if (get(&r->bundles[i]) > high)
            high = get(&r->bundles[i]);
    if (high < 2 || !fits_with(t, r, limit, 1))
        return 0;
    low = 1; /* fits; `high` does not */
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;

        if (fits_with(t, r, limit, middle))
            low = middle;
        else
            high = middle;
    }
    return low;
}

static size_t largest_count(struct trial *t, const struct ms_place_request *r)
{
    size_t low = 0, high = r->count;

    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;

        reset(t, r);
        t->request.count = middle;
        if (fits(t))
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* ---- as text --------------------------------------------------------------------- */

static int begin(struct ms_buf *out, size_t start)
{
    return ms_buf_printf(out, out->len > start ? ", or " : "it fits ");
}

static int suggest_strategy(struct trial *t,
                            const struct ms_place_request *r,
                            struct ms_buf *out,
                            size_t start)
{
    int rc;

    reset(t, r);
    if (r->strategy == MS_STRATEGY_STRICT_PACK)
        t->request.strategy = MS_STRATEGY_PACK;
    else if (r->strategy == MS_STRATEGY_STRICT_SPREAD)
        t->request.strategy = MS_STRATEGY_SPREAD;
    else
        return 0;
    if (!fits(t))
        return 0;
    rc = begin(out, start);
    return rc ? rc
              : ms_buf_printf(
                    out, "with strategy %s", ms_strategy_name(t->request.strategy));
}

static int suggest_same(struct trial *t,
                        const struct ms_place_request *r,
                        struct ms_buf *out,
                        size_t start)
{
    int rc;

    reset(t, r);
    t->request.same = NULL;
    if (!r->same || !fits(t))
        return 0;
    rc = begin(out, start);
    return rc ? rc : ms_buf_printf(out, "on more than one %s", r->same);
}

static int suggest_amount(struct trial *t,
                          const struct ms_place_request *r,
                          struct ms_buf *out,
                          size_t start)
{
    uint64_t devices = largest(t, r, get_devices, limit_devices);
    uint64_t cpus = devices ? 0 : largest(t, r, get_cpus, limit_cpus);
    uint64_t memory = devices || cpus ? 0 : largest(t, r, get_memory, limit_memory);
    int rc;

    if (!devices && !cpus && !memory)
        return 0;
    rc = begin(out, start);
    if (rc == 0 && devices)
        rc = ms_buf_printf(out,
                           "with %llu %s%s",
                           (unsigned long long)devices,
                           ms_stock_kind_name(t->stock, r->bundles[0].kind),
                           devices == 1 ? "" : "s");
    else if (rc == 0 && cpus)
        rc = ms_buf_printf(
            out, "with %llu CPU%s", (unsigned long long)cpus, cpus == 1 ? "" : "s");
    else if (rc == 0) {
        rc = ms_buf_printf(out, "with ");
        rc = rc ? rc : ms_amount_print_bytes(memory << 20, out);
    }
    return rc ? rc : ms_buf_printf(out, " for each");
}

static int suggest_count(struct trial *t,
                         const struct ms_place_request *r,
                         struct ms_buf *out,
                         size_t start)
{
    size_t count = largest_count(t, r);
    int rc;

    if (count == 0)
        return 0;
    rc = begin(out, start);
    return rc ? rc
              : ms_buf_printf(out, "with %zu bundle%s", count, count == 1 ? "" : "s");
}

int ms_place_suggest(struct ms_stock *s,
                     const struct ms_place_request *r,
                     struct ms_buf *out)
{
    MS_CLEANUP(trial_finish)
    struct trial t = {.stock = s, .bundles = calloc(r->count, sizeof *t.bundles)};
    size_t start = out->len;
    int rc;

    if (!t.bundles)
        return -ENOMEM;
    rc = suggest_strategy(&t, r, out, start);
    rc = rc ? rc : suggest_same(&t, r, out, start);
    rc = rc ? rc : suggest_amount(&t, r, out, start);
    return rc ? rc : suggest_count(&t, r, out, start);
}
