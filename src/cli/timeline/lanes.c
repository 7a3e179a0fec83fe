/* lanes.c - puts spans that overlap on threads of their own */
#include "cli/timeline/lanes.h"

#include "base/buf.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

/* A lane: the spans that are open on it, the innermost last. */
struct lane {
    int64_t *ends;
    size_t count, room;
    bool nests; /* those that are open do */
};

struct lanes {
    struct lane *at;
    size_t count, room;
};

static bool has_room(struct lane *l, const struct ms_trace_event *e, bool nests)
{
    while (l->count && l->ends[l->count - 1] <= e->begin_ns)
        l->count--;
    if (!l->count)
        return true;
    return nests && l->nests && e->end_ns <= l->ends[l->count - 1];
}

static int take(struct lanes *of, struct ms_trace_event *e)
{
    bool nests = json_is_true(json_object_get(e->line, "nests"));
    struct lane *l;
    size_t i = 0;

    while (i < of->count && !has_room(&of->at[i], e, nests))
        i++;
    if (i == of->count) {
        if (ms_array_reserve(&of->at, &of->room, i + 1, sizeof *of->at) < 0)
            return -ENOMEM;
        of->at[of->count++] = (struct lane){0};
    }
    l = &of->at[i];
    if (ms_array_reserve(&l->ends, &l->room, l->count + 1, sizeof *l->ends) < 0)
        return -ENOMEM;
    l->nests = l->count ? l->nests : nests;
    l->ends[l->count++] = e->end_ns;
    e->lane = (uint32_t)i;
    return 0;
}

static void lanes_finish(struct lanes *of)
{
    for (size_t i = 0; i < of->count; i++)
        free(of->at[i].ends);
    free(of->at);
}

/* Threads are numbered by track, in the order in which tracks were first named. */
static void number(struct ms_trace *t, const struct lanes *of)
{
    uint32_t next = 1;

    for (size_t i = 0; i < t->track_count; i++) {
        t->tracks[i].first = next;
        t->tracks[i].lanes = of[i].count ? (uint32_t)of[i].count : 1;
        next += t->tracks[i].lanes;
    }
}

int ms_lanes_assign(struct ms_trace *t)
{
    struct lanes *of = calloc(t->track_count + 1, sizeof *of);
    int rc = of ? 0 : -ENOMEM;

    for (size_t i = 0; rc == 0 && i < t->count; i++)
        if (json_object_get(t->events[i].line, "end"))
            rc = take(&of[t->events[i].track], &t->events[i]);
    if (rc == 0)
        number(t, of);
    for (size_t i = 0; of && i < t->track_count; i++)
        lanes_finish(&of[i]);
    free(of);
    return rc;
}
