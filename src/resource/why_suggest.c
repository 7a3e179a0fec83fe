/* why_suggest.c - the nearest change with which a group can be placed */
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

/* What may be limited, in the units of a suggestion. */
enum resource { DEVICES, CPUS, MEMORY };

static uint64_t amount_of(const struct ms_bundle *b, enum resource what)
{
    return what == DEVICES ? b->devices
           : what == CPUS  ? b->cpu_milli / 1000
                           : b->memory >> 20;
}

static void limit(struct ms_bundle *b, enum resource what, uint64_t most)
{
    if (what == DEVICES && b->devices > most)
        b->devices = (uint32_t)most;
    if (what == CPUS && b->cpu_milli > most * 1000)
        b->cpu_milli = most * 1000;
    if (what == MEMORY && b->memory > most << 20)
        b->memory = most << 20;
}

static bool fits_with(struct trial *t,
                      const struct ms_place_request *r,
                      enum resource what,
                      uint64_t most)
{
    reset(t, r);
    for (size_t i = 0; i < r->count; i++)
        limit(&t->bundles[i], what, most);
    return fits(t);
}

/* The most of a resource with which it fits; less always fits better. 0: with none. */
static uint64_t
largest(struct trial *t, const struct ms_place_request *r, enum resource what)
{
    uint64_t low = 1, high = 0; /* low fits, high does not */

    for (size_t i = 0; i < r->count; i++)
        if (amount_of(&r->bundles[i], what) > high)
            high = amount_of(&r->bundles[i], what);
    if (high < 2 || !fits_with(t, r, what, 1))
        return 0;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;

        if (fits_with(t, r, what, middle))
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

static const char *begin(const struct ms_buf *out, size_t start)
{
    return out->len > start ? ", or " : "it fits ";
}

static int suggest_strategy(struct trial *t,
                            const struct ms_place_request *r,
                            struct ms_buf *out,
                            size_t start)
{
    reset(t, r);
    if (r->strategy == MS_STRATEGY_STRICT_PACK)
        t->request.strategy = MS_STRATEGY_PACK;
    else if (r->strategy == MS_STRATEGY_STRICT_SPREAD)
        t->request.strategy = MS_STRATEGY_SPREAD;
    else
        return 0;
    return fits(t) ? ms_buf_printf(out,
                                   "%swith strategy %s",
                                   begin(out, start),
                                   ms_strategy_name(t->request.strategy))
                   : 0;
}

static int suggest_same(struct trial *t,
                        const struct ms_place_request *r,
                        struct ms_buf *out,
                        size_t start)
{
    reset(t, r);
    t->request.same = NULL;
    return r->same && fits(t)
               ? ms_buf_printf(out, "%son more than one %s", begin(out, start), r->same)
               : 0;
}

static int suggest_amount(struct trial *t,
                          const struct ms_place_request *r,
                          struct ms_buf *out,
                          size_t start)
{
    enum resource what = DEVICES;
    uint64_t most = largest(t, r, what);

    while (!most && what < MEMORY)
        most = largest(t, r, ++what);
    if (!most)
        return 0;
    if (what == MEMORY)
        return ms_buf_printf(out,
                             "%swith %s for each",
                             begin(out, start),
                             ms_amount_bytes(most << 20).text);
    return ms_buf_printf(
        out,
        "%swith %llu %s%s for each",
        begin(out, start),
        (unsigned long long)most,
        what == CPUS ? "CPU" : ms_stock_kind_name(t->stock, r->bundles[0].kind),
        most == 1 ? "" : "s");
}

static int suggest_count(struct trial *t,
                         const struct ms_place_request *r,
                         struct ms_buf *out,
                         size_t start)
{
    size_t count = largest_count(t, r);

    return count ? ms_buf_printf(out,
                                 "%swith %zu bundle%s",
                                 begin(out, start),
                                 count,
                                 count == 1 ? "" : "s")
                 : 0;
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
