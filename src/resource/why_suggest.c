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
enum resource { DEVICES, CPUS, MEMORY, BUNDLES };

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
    if (what == BUNDLES)
        t->request.count = most;
    for (size_t i = 0; i < r->count; i++)
        limit(&t->bundles[i], what, most);
    return fits(t);
}

/* The most of a resource with which it fits; less always fits better. 0: with none. */
static uint64_t
largest(struct trial *t, const struct ms_place_request *r, enum resource what)
{
    uint64_t low = 1, high = what == BUNDLES ? r->count : 0; /* high does not fit */

    for (size_t i = 0; what != BUNDLES && i < r->count; i++)
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

/* ---- as text --------------------------------------------------------------------- */

static const char *begin(const struct ms_buf *out, size_t start)
{
    return out->len > start ? ", or " : "it fits ";
}

static void
suggest_strategy(struct trial *t, const struct ms_place_request *r, struct ms_buf *out)
{
    bool is_pack = r->strategy == MS_STRATEGY_STRICT_PACK;

    if (!is_pack && r->strategy != MS_STRATEGY_STRICT_SPREAD)
        return;
    reset(t, r);
    t->request.strategy = is_pack ? MS_STRATEGY_PACK : MS_STRATEGY_SPREAD;
    if (fits(t))
        ms_buf_printf(
            out, "it fits with strategy %s", ms_strategy_name(t->request.strategy));
}

static void suggest_amount(struct trial *t,
                           const struct ms_place_request *r,
                           const char *before,
                           struct ms_buf *out)
{
    enum resource what = DEVICES;
    uint64_t most = largest(t, r, what);

    while (!most && what < MEMORY)
        most = largest(t, r, ++what);
    if (most && what == MEMORY)
        ms_buf_printf(
            out, "%swith %s for each", before, ms_amount_bytes(most << 20).text);
    else if (most)
        ms_buf_printf(out,
                      "%swith %llu %s%s for each",
                      before,
                      (unsigned long long)most,
                      what == CPUS ? "CPU"
                                   : ms_stock_kind_name(t->stock, r->bundles[0].kind),
                      most == 1 ? "" : "s");
}

int ms_place_suggest(struct ms_stock *s,
                     const struct ms_place_request *r,
                     struct ms_buf *out)
{
    MS_CLEANUP(trial_finish)
    struct trial t = {.stock = s, .bundles = calloc(r->count, sizeof *t.bundles)};
    size_t start = out->len, count;

    if (!t.bundles)
        return out->failed = -ENOMEM;
    suggest_strategy(&t, r, out);
    reset(&t, r);
    t.request.same = NULL;
    if (r->same && fits(&t))
        ms_buf_printf(out, "%son more than one %s", begin(out, start), r->same);
    suggest_amount(&t, r, begin(out, start), out);
    count = largest(&t, r, BUNDLES);
    if (count)
        ms_buf_printf(
            out, "%swith %s", begin(out, start), ms_amount_count(count, "bundle").text);
    return out->failed;
}
