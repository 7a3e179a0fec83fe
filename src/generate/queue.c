/* queue.c - the queue of requests by rank, the deadlines of groups, lists of groups */
#include "generate/scheduler_impl.h"

#include <assert.h>

/* ---- heaps ------------------------------------------------------------------------- */

/* Four children each: half as deep as with two. Keys are in the heap, so that finding a
 * place reads no request. */
enum { CHILDREN = 4 };

/* Where the members of a heap remember their places. */
typedef uint32_t *(*heap_place)(const struct ms_scheduler *s, uint32_t i);

static uint32_t *request_place(const struct ms_scheduler *s, uint32_t i)
{
    return &s->requests[i].queue_at;
}

static uint32_t *group_place(const struct ms_scheduler *s, uint32_t i)
{
    return &s->groups[i].deadline_at;
}

static inline bool before(struct ms_gen_key a, struct ms_gen_key b)
{
    return a.key != b.key ? a.key < b.key : (int32_t)(a.tie - b.tie) < 0;
}

static inline void put(struct ms_scheduler *s,
                       struct ms_gen_heap *h,
                       heap_place place,
                       size_t at,
                       struct ms_gen_key k)
{
    h->at[at] = k;
    *place(s, k.index) = (uint32_t)at;
}

static inline void
up(struct ms_scheduler *s, struct ms_gen_heap *h, heap_place place, size_t at)
{
    struct ms_gen_key k = h->at[at];

    while (at > 0 && before(k, h->at[(at - 1) / CHILDREN])) {
        put(s, h, place, at, h->at[(at - 1) / CHILDREN]);
        at = (at - 1) / CHILDREN;
    }
    put(s, h, place, at, k);
}

static inline void
down(struct ms_scheduler *s, struct ms_gen_heap *h, heap_place place, size_t at)
{
    struct ms_gen_key k = h->at[at];

    for (;;) {
        size_t first = CHILDREN * at + 1, best = first;

        for (size_t i = first + 1; i < first + CHILDREN && i < h->count; i++)
            if (before(h->at[i], h->at[best]))
                best = i;
        if (first >= h->count || !before(h->at[best], k))
            break;
        put(s, h, place, at, h->at[best]);
        at = best;
    }
    put(s, h, place, at, k);
}

static inline void heap_add(struct ms_scheduler *s,
                            struct ms_gen_heap *h,
                            heap_place place,
                            struct ms_gen_key k)
{
    assert(h->count < h->room);
    h->at[h->count++] = k;
    up(s, h, place, h->count - 1);
}

static inline void
heap_remove(struct ms_scheduler *s, struct ms_gen_heap *h, heap_place place, uint32_t i)
{
    size_t at = *place(s, i);
    struct ms_gen_key last = h->at[--h->count];

    assert(at <= h->count);
    *place(s, i) = MS_NONE;
    if (last.index == i)
        return;
    put(s, h, place, at, last);
    up(s, h, place, at);
    down(s, h, place, *place(s, last.index));
}

/* Equal ranks: by submission, then by number in the group. */
static struct ms_gen_key request_key(const struct ms_scheduler *s, uint32_t i)
{
    const struct ms_gen_request *q = &s->requests[i];
    uint32_t order = (uint32_t)s->groups[q->group].order;

    return (struct ms_gen_key){q->rank, i, order * MS_GROUP_SAMPLES_MAX + q->seq};
}

void ms_queue_add(struct ms_scheduler *s, uint32_t request)
{
    heap_add(s, &s->queue, request_place, request_key(s, request));
}

void ms_queue_remove(struct ms_scheduler *s, uint32_t request)
{
    heap_remove(s, &s->queue, request_place, request);
}

void ms_queue_moved(struct ms_scheduler *s, uint32_t request)
{
    size_t at = s->requests[request].queue_at;

    s->queue.at[at] = request_key(s, request);
    up(s, &s->queue, request_place, at);
    down(s, &s->queue, request_place, s->requests[request].queue_at);
}

void ms_queue_sort(struct ms_scheduler *s)
{
    for (size_t i = 0; i < s->queue.count; i++)
        s->queue.at[i] = request_key(s, s->queue.at[i].index);
    for (size_t i = s->queue.count / CHILDREN + 1; i-- > 0;)
        if (i < s->queue.count)
            down(s, &s->queue, request_place, i);
}

uint64_t ms_queue_ahead(const struct ms_scheduler *s, uint32_t request)
{
    struct ms_gen_key own = request_key(s, request);
    uint64_t ahead = 0;

    for (size_t i = 0; i < s->queue.count; i++)
        ahead += before(s->queue.at[i], own);
    return ahead;
}

void ms_deadlines_add(struct ms_scheduler *s, uint32_t group)
{
    struct ms_gen_key k = {
        (double)s->groups[group].deadline_ns, group, (uint32_t)s->groups[group].order};

    heap_add(s, &s->deadlines, group_place, k);
}

void ms_deadlines_remove(struct ms_scheduler *s, uint32_t group)
{
    if (s->groups[group].deadline_at != MS_NONE)
        heap_remove(s, &s->deadlines, group_place, group);
}

/* ---- lists ------------------------------------------------------------------------- */

static void link_after(struct ms_scheduler *s,
                       struct ms_gen_list *l,
                       uint32_t before,
                       uint32_t group)
{
    uint32_t after = before == MS_NONE ? l->first : s->groups[before].after;

    s->groups[group].before = before;
    s->groups[group].after = after;
    *(before == MS_NONE ? &l->first : &s->groups[before].after) = group;
    *(after == MS_NONE ? &l->last : &s->groups[after].before) = group;
    l->count++;
}

void ms_gen_list_add(struct ms_scheduler *s, struct ms_gen_list *l, uint32_t group)
{
    link_after(s, l, l->last, group);
}

void ms_gen_list_insert(struct ms_scheduler *s, struct ms_gen_list *l, uint32_t group)
{
    const struct ms_gen_group *g = &s->groups[group], *at;
    uint32_t before = l->last;

    for (; before != MS_NONE; before = at->before) {
        at = &s->groups[before];
        if (at->oldest < g->oldest || (at->oldest == g->oldest && at->order < g->order))
            break;
    }
    link_after(s, l, before, group);
}

void ms_gen_list_remove(struct ms_scheduler *s, struct ms_gen_list *l, uint32_t group)
{
    struct ms_gen_group *g = &s->groups[group];

    *(g->before == MS_NONE ? &l->first : &s->groups[g->before].after) = g->after;
    *(g->after == MS_NONE ? &l->last : &s->groups[g->after].before) = g->before;
    g->before = g->after = MS_NONE;
    l->count--;
}
