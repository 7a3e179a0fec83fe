/* The pure planner: 1,000 bundles of 8 devices on so many nodes of 8, some of which hold
 * something. Prints the median of the seconds it takes to place them. */
#include "base/clock.h"
#include "resource/place.h"

#include <stdio.h>
#include <stdlib.h>

enum { BUNDLES = 1000, WIDTH = 8, ROUNDS = 11 };

static int compare(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static void add_nodes(struct ms_stock *s, unsigned nodes)
{
    char name[16];

    ms_stock_kind(s, "gpu", NULL);
    for (unsigned i = 0; i < nodes; i++) {
        snprintf(name, sizeof name, "n%u", i);
        ms_stock_append(s, name, 64000, (uint64_t)512 << 30, NULL);
        ms_stock_add_devices(s, i, 1, WIDTH, (uint64_t)80 << 30, 0, NULL);
        if (i % 3 == 0) { /* not all of them are free */
            s->nodes[i].devices[0].mapped = 1;
            s->nodes[i].whole--;
        }
    }
}

int main(int argc, char **argv)
{
    static struct ms_bundle bundles[BUNDLES];
    struct ms_place_request r = {.name = "g", .bundles = bundles, .count = BUNDLES};
    unsigned nodes = argc > 1 ? (unsigned)atoi(argv[1]) : 10000;
    struct ms_stock s = {0};
    int64_t times[ROUNDS];

    for (size_t i = 0; i < BUNDLES; i++)
        bundles[i] = (struct ms_bundle){.devices = WIDTH, .cpu_milli = 8000};
    add_nodes(&s, nodes);
    for (int i = 0; i < ROUNDS; i++) {
        struct ms_placement p = {0};
        struct ms_error err = {0};
        int64_t began_ns = ms_now_ns();

        if (ms_place(&s, &r, &p, &err) < 0) {
            fprintf(stderr, "%s\n", err.text);
            return 1;
        }
        times[i] = ms_now_ns() - began_ns;
        ms_place_release(&s, &r, &p);
    }
    qsort(times, ROUNDS, sizeof *times, compare);
    printf("%.9f\n", (double)times[ROUNDS / 2] / (double)MS_NS_PER_S);
    ms_stock_finish(&s);
    return 0;
}
