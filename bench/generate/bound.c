/* bound.c - a lower bound of the makespan
 *
 * The greatest of: the longest request alone; the k longest, which progress at no more than
 * k / tau(k / replicas) tokens a second together; all tokens at full batches with all
 * prefill; and the area of cache that all requests take over time. A session counts as one
 * request, since its turns come one after the other.
 */
#include "sim.h"

#include "base/cleanup.h"

#include <assert.h>
#include <math.h>

static int longest_first(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x > y ? -1 : x < y;
}

static double of_longest(const struct sim_case *c, const uint32_t *sorted, size_t n)
{
    double sum = 0, most = 0;

    for (size_t k = 1; k <= n && k <= (size_t)c->replicas * c->slots; k++) {
        double batch = fmax(1, (double)k / c->replicas);

        sum += sorted[k - 1];
        most = fmax(most, sum / (double)k * (c->a + c->beta * batch));
    }
    return most;
}

/* What runs one after the other counts as one long request: a whole session, in which only
 * the first prompt and what is put in between turns is not cached. */
static struct sim_request chain_of(const struct sim_case *c, size_t i)
{
    struct sim_request chain = {0};

    for (uint32_t t = 0; t < (c->turns ? c->turns : 1); t++) {
        const struct sim_request *r = &c->requests[i + t];
        uint32_t cached = t == 0 ? 0 : r[-1].prompt + r[-1].length;

        chain.length += r->length;
        chain.prompt += r->prompt - cached;
    }
    return chain;
}

/* The longest chain alone: its decoding, its prefill, and its tools. */
static double of_chain(const struct sim_case *c, struct sim_request chain)
{
    return chain.length * (c->a + c->beta) + chain.prompt * c->prefill +
           (c->turns ? (c->turns - 1) * c->tool : 0);
}

double sim_bound(const struct sim_case *c)
{
    size_t each = c->turns ? c->turns : 1, n = (size_t)c->groups * c->samples / each;
    MS_CLEANUP(ms_cleanup_free) uint32_t *sorted = calloc(n, sizeof *sorted);
    double tokens = 0, prompts = 0, area = 0, most = 0;

    assert(sorted);
    for (size_t i = 0; i < n; i++) {
        struct sim_request chain = chain_of(c, i * each);

        sorted[i] = chain.length;
        tokens += chain.length;
        prompts += chain.prompt;
        area += (double)chain.prompt * chain.length +
                (double)chain.length * chain.length / 2;
        most = fmax(most, of_chain(c, chain));
    }
    qsort(sorted, n, sizeof *sorted, longest_first);
    most = fmax(most, of_longest(c, sorted, n));
    most = fmax(most,
                (tokens * (c->a / c->slots + c->beta) + c->prefill * prompts) /
                    c->replicas);
    if (c->kv > 0)
        most =
            fmax(most, (c->a * area / (double)c->kv + c->beta * tokens) / c->replicas);
    return most;
}
