/* reorder.c - pieces of several logs, in the order of their times */
#include "cli/logs/reorder.h"
#include "base/clock.h"

void ms_reorder_init(struct ms_reorder *m, int64_t hold_ns)
{
    ms_list_init(&m->items);
    m->hold_ns = hold_ns;
}

void ms_reorder_add(struct ms_reorder *m,
                    struct ms_reorder_item *i,
                    uint64_t time_ns,
                    int64_t now_ns)
{
    struct ms_list *at = m->items.prev;

    i->due_ns = now_ns + m->hold_ns;
    i->time_ns = time_ns;
    while (at != &m->items &&
           ms_list_entry(at, struct ms_reorder_item, link)->time_ns > time_ns)
        at = at->prev;
    ms_list_add_head(at, &i->link); /* behind it */
}

int64_t ms_reorder_next_ns(const struct ms_reorder *m)
{
    int64_t next_ns = MS_NEVER;

    ms_list_each (i, &m->items, struct ms_reorder_item, link)
        if (i->due_ns < next_ns)
            next_ns = i->due_ns;
    return next_ns;
}

struct ms_reorder_item *ms_reorder_take(struct ms_reorder *m, int64_t now_ns)
{
    struct ms_reorder_item *i;

    if (ms_list_is_empty(&m->items) || ms_reorder_next_ns(m) > now_ns)
        return NULL;
    i = ms_list_first(&m->items, struct ms_reorder_item, link);
    ms_list_remove(&i->link);
    return i;
}
