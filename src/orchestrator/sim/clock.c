/* clock.c - virtual time: events in a heap, by when they happen */
#include "orchestrator/sim/clock.h"

#include "base/buf.h"
#include "base/clock.h"

#include <stdlib.h>

void ms_sim_clock_init(struct ms_sim_clock *c)
{
    *c = (struct ms_sim_clock){0};
}

void ms_sim_clock_finish(struct ms_sim_clock *c)
{
    free(c->heap);
    *c = (struct ms_sim_clock){0};
}

static bool is_before(const struct ms_sim_event *a, const struct ms_sim_event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

static void swap(struct ms_sim_clock *c, size_t a, size_t b)
{
    struct ms_sim_event e = c->heap[a];

    c->heap[a] = c->heap[b];
    c->heap[b] = e;
}

uint64_t
ms_sim_clock_add(struct ms_sim_clock *c, int64_t delay_ns, ms_sim_fn *fn, void *arg)
{
    size_t i = c->count;

    if (ms_array_reserve(&c->heap, &c->capacity, i + 1, sizeof *c->heap) < 0)
        return 0;
    c->heap[i] = (struct ms_sim_event){.at_ns = ms_deadline_ns(c->now_ns, delay_ns),
                                       .order = ++c->made,
                                       .fn = fn,
                                       .arg = arg};
    c->count++;
    for (; i > 0 && is_before(&c->heap[i], &c->heap[(i - 1) / 2]); i = (i - 1) / 2)
        swap(c, i, (i - 1) / 2);
    return c->made;
}

void ms_sim_clock_cancel(struct ms_sim_clock *c, const void *arg)
{
    for (size_t i = 0; i < c->count; i++)
        if (c->heap[i].arg == arg)
            c->heap[i].fn = NULL;
}

static struct ms_sim_event pop(struct ms_sim_clock *c)
{
    struct ms_sim_event top = c->heap[0];

    c->heap[0] = c->heap[--c->count];
    for (size_t i = 0;;) {
        size_t first = i, left = 2 * i + 1;

        for (size_t child = left; child < left + 2 && child < c->count; child++)
            if (is_before(&c->heap[child], &c->heap[first]))
                first = child;
        if (first == i)
            return top;
        swap(c, i, first);
        i = first;
    }
}

bool ms_sim_clock_step(struct ms_sim_clock *c, int64_t until_ns)
{
    while (c->count > 0 && c->heap[0].at_ns <= until_ns) {
        struct ms_sim_event e = pop(c);

        if (!e.fn)
            continue;
        c->now_ns = e.at_ns;
        e.fn(e.arg);
        return true;
    }
    if (until_ns > c->now_ns && until_ns != MS_NEVER)
        c->now_ns = until_ns;
    return false;
}
