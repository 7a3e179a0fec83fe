#include "orchestrator/told.h"

static void on_timer(void *arg)
{
    ms_watches_pump(arg);
}

static bool set_timer(void *arg)
{
    struct ms_watches *w = arg;

    return ms_timer_set(&w->timer, 0) == 0;
}

static void finish_timer(struct ms_watches *w)
{
    ms_timer_finish(&w->timer);
}

int ms_watches_init_on(struct ms_watches *w,
                       const struct ms_mirror *mirror,
                       struct ms_loop *loop)
{
    ms_watches_init(w, mirror, set_timer, w);
    w->finish = finish_timer;
    return ms_timer_init(&w->timer, loop, on_timer, w);
}
