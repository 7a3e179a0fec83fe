/* watches.c - tells each watch the changes of the inventory that it has not heard yet */
#include "orchestrator/op.h"

#include <stdlib.h>

struct ms_orch_watch {
    struct ms_list link;
    struct ms_controller *controller;
    ms_orch_watched *watched;
    void *arg;
    uint64_t cursor;
    bool is_dead; /* freed by the next turn: its own callback may have removed it */
};

static void watch_free(struct ms_orch_watch *w)
{
    ms_list_remove(&w->link);
    free(w);
}

void ms_controller_drop_watches(struct ms_controller *c)
{
    ms_list_each (w, &c->watches, struct ms_orch_watch, link)
        watch_free(w);
}

void ms_controller_news(struct ms_controller *c)
{
    if (!ms_list_is_empty(&c->watches))
        ms_controller_wake(c);
}

struct ms_orch_watch *ms_controller_watch(struct ms_orchestrator *o,
                                          uint64_t cursor,
                                          ms_orch_watched *watched,
                                          void *arg)
{
    struct ms_controller *c = (struct ms_controller *)o;
    struct ms_orch_watch *w = calloc(1, sizeof *w);

    if (!w)
        return NULL;
    *w = (struct ms_orch_watch){
        .controller = c, .watched = watched, .arg = arg, .cursor = cursor};
    ms_list_add_tail(&c->watches, &w->link);
    ms_controller_wake(c);
    return w;
}

void ms_controller_unwatch(struct ms_orch_watch *w)
{
    if (!w)
        return;
    w->is_dead = true;
    ms_controller_wake(w->controller);
}

static void tell(struct ms_orch_watch *w)
{
    struct ms_orch_event event = {0};
    int rc = 1;

    while (!w->is_dead && rc > 0) {
        rc = ms_inventory_next(&w->controller->inventory, w->cursor, &event);
        if (rc == 0)
            return;
        w->is_dead = rc < 0;
        w->cursor = event.cursor;
        w->watched(w->arg, rc < 0 ? rc : 0, rc < 0 ? NULL : &event);
    }
}

void ms_controller_tell_watches(struct ms_controller *c)
{
    ms_list_each (w, &c->watches, struct ms_orch_watch, link)
        tell(w);
    ms_list_each (w, &c->watches, struct ms_orch_watch, link)
        if (w->is_dead)
            watch_free(w);
}
