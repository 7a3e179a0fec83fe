/* watches.c - tells each watch the changes of the inventory that it has not heard yet */
#include "orchestrator/watches.h"

#include <stdlib.h>

struct ms_orch_watch {
    struct ms_list link;
    struct ms_watches *all;
    ms_orch_watched *watched;
    void *arg;
    uint64_t cursor;
    bool is_dead; /* freed by the next pump: its own callback may have removed it */
};

void ms_watches_init(struct ms_watches *w,
                     const struct ms_inventory *inventory,
                     void (*pump_soon)(void *arg),
                     void *arg)
{
    *w =
        (struct ms_watches){.inventory = inventory, .pump_soon = pump_soon, .arg = arg};
    ms_list_init(&w->all);
}

static void watch_free(struct ms_orch_watch *w)
{
    ms_list_remove(&w->link);
    free(w);
}

void ms_watches_finish(struct ms_watches *w)
{
    ms_list_each (one, &w->all, struct ms_orch_watch, link)
        watch_free(one);
}

void ms_watches_wake(struct ms_watches *w)
{
    if (!ms_list_is_empty(&w->all))
        w->pump_soon(w->arg);
}

struct ms_orch_watch *ms_watches_add(struct ms_watches *w,
                                     uint64_t cursor,
                                     ms_orch_watched *watched,
                                     void *arg)
{
    struct ms_orch_watch *one = calloc(1, sizeof *one);

    if (!one)
        return NULL;
    *one = (struct ms_orch_watch){
        .all = w, .watched = watched, .arg = arg, .cursor = cursor};
    ms_list_add_tail(&w->all, &one->link);
    ms_watches_wake(w);
    return one;
}

void ms_watches_remove(struct ms_orch_watch *w)
{
    if (!w)
        return;
    w->is_dead = true;
    ms_watches_wake(w->all);
}

static void pump_one(struct ms_orch_watch *w)
{
    struct ms_orch_event event = {0};
    int rc = 1;

    while (!w->is_dead && rc > 0) {
        rc = ms_inventory_next(w->all->inventory, w->cursor, &event);
        if (rc == 0)
            return;
        w->is_dead = rc < 0;
        w->cursor = event.cursor;
        w->watched(w->arg, rc < 0 ? rc : 0, rc < 0 ? NULL : &event);
    }
}

void ms_watches_pump(struct ms_watches *w)
{
    ms_list_each (one, &w->all, struct ms_orch_watch, link)
        pump_one(one);
    ms_list_each (one, &w->all, struct ms_orch_watch, link)
        if (one->is_dead)
            watch_free(one);
}
