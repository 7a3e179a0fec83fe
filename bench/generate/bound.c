/* bound.c - a lower bound of the makespan
 *
 * The greatest of: the longest request alone; the k longest, which progress at no more than
 * k / tau(k / replicas) tokens a second together; all tokens at full batches with all
 * prefill; and the area of cache that all requests take over time.
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

double sim_bound(const struct sim_case *c)
{
    size_t n = (size_t)c->groups * c->samples;
    MS_CLEANUP(ms_cleanup_free) uint32_t *sorted = calloc(n, sizeof *sorted);
    double tokens = 0, prompts = 0, area = 0, most;

    assert(sorted);
    for (size_t i = 0; i < n; i++) {
        double length = c->requests[i].length, prompt = c->requests[i].prompt;

        sorted[i] = c->requests[i].length;
        tokens += length;
        prompts += prompt;
        area += prompt * length + length * length / 2;
    }
    qsort(sorted, n, sizeof *sorted, longest_first);
    most = of_longest(c, sorted, n);
    most = fmax(most,
                (tokens * (c->a / c->slots + c->beta) + c->prefill * prompts) /
                    c->replicas);
    if (c->kv > 0)
        most =
            fmax(most, (c->a * area / (double)c->kv + c->beta * tokens) / c->replicas);
    return most;
}
