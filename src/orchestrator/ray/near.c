#include "base/clock.h"
#include "orchestrator/ray/carrier.h"
#include "orchestrator/ray/child.h"

#include <errno.h>
#include <stdlib.h>

/* A bridge that is our child: we are in a job of the cluster ourselves. */
struct near {
    struct ms_carrier base;
    struct ms_ray_child *child;
    const struct ms_carrier_events *events;
    void *arg;
};

static int near_send(struct ms_carrier *c, const char *line, size_t len)
{
    return ms_ray_child_send(((struct near *)c)->child, line, len);
}

static void near_destroy(struct ms_carrier *c, bool keep, int64_t until_ns)
{
    struct near *n = (struct near *)c;

    (void)keep; /* it is below us: it cannot outlive us */
    ms_ray_child_destroy(n->child, until_ns);
    free(n);
}

static void on_line(void *arg, const char *line, size_t len)
{
    struct near *n = arg;

    n->events->on_line(n->arg, line, len);
}

static void on_ended(void *arg, const struct ms_error *why)
{
    struct near *n = arg;
    struct ms_error said = *why;

    said.code = -ECHILD;
    n->events->on_down(n->arg, &said);
}

struct ms_carrier *ms_near_open(const struct ms_ray_options *o,
                                const struct ms_carrier_events *events,
                                void *arg,
                                struct ms_error *err)
{
    static const struct ms_carrier_ops ops = {near_send, near_destroy};
    static const struct ms_ray_child_events child_events = {on_line, on_ended};
    struct near *n = calloc(1, sizeof *n);

    if (!n) {
        ms_error_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    n->base.ops = &ops;
    n->events = events;
    n->arg = arg;
    n->child = ms_ray_child_start(
        &(struct ms_ray_child_spec){
            .loop = o->loop, .python_dir = o->site.python_dir, .name = o->name},
        &child_events,
        n,
        err);
    if (n->child)
        return &n->base;
    free(n);
    return NULL;
}
