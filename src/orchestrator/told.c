#include "orchestrator/told.h"

#include <errno.h>
#include <stdlib.h>

struct ms_orch_watch {
    struct ms_list link;
    struct ms_watches *all;
    ms_orch_watched *watched;
    void *arg;
    uint64_t cursor;
    bool is_dead; /* freed when nobody is being told */
};

void ms_watches_init(struct ms_watches *w,
                     const struct ms_mirror *mirror,
                     bool (*schedule)(void *arg),
                     void *arg)
{
    *w = (struct ms_watches){.mirror = mirror, .schedule = schedule, .arg = arg};
    ms_list_init(&w->all);
}

void ms_watches_finish(struct ms_watches *w)
{
    if (w->finish)
        w->finish(w);
    ms_list_each (one, &w->all, struct ms_orch_watch, link) {
        ms_list_remove(&one->link);
        free(one);
    }
}

void ms_watches_wake(struct ms_watches *w)
{
    if (!w->is_scheduled && !ms_list_is_empty(&w->all))
        w->is_scheduled = w->schedule(w->arg);
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

/* One watch hears what it has not heard. */
static void pump_one(struct ms_orch_watch *w)
{
    struct ms_orch_event event = {0};
    int rc = 1;

    while (!w->is_dead && rc > 0) {
        rc = ms_mirror_next(w->all->mirror, w->cursor, &event);
        if (rc == 0)
            return;
        w->is_dead = rc < 0;
        w->cursor = event.cursor;
        w->watched(w->arg, rc < 0 ? rc : 0, rc < 0 ? NULL : &event);
    }
}

void ms_watches_pump(struct ms_watches *w)
{
    w->is_scheduled = true; /* whoever wakes us meanwhile is heard in this round */
    ms_list_each (one, &w->all, struct ms_orch_watch, link)
        pump_one(one);
    w->is_scheduled = false;
    ms_list_each (one, &w->all, struct ms_orch_watch, link)
        if (one->is_dead) {
            ms_list_remove(&one->link);
            free(one);
        }
}

void ms_told_answer(const struct ms_mirror *m,
                    const char *key,
                    ms_orch_done *done,
                    void *arg)
{
    struct ms_orch_answer answer = {0};
    struct ms_error why = {0};
    int rc = ms_mirror_answer(m, key[0] ? key : NULL, &answer);

    if (rc < 0)
        ms_error_set(&why,
                     rc,
                     rc == -ENOENT ? "there is no reservation '%s'"
                                   : "reservation '%s': out of memory",
                     key);
    if (done)
        done(arg, rc, rc < 0 ? &why : NULL, rc < 0 ? NULL : &answer);
    if (rc == 0)
        ms_mirror_answer_finish(&answer);
}
