/* driver.c - the head's record of a driver: made, found, ended */
#include "head/drivers/driver.h"
#include "base/cleanup.h"
#include "head/clusters/ports.h"
#include "head/drivers/driver_impl.h"
#include "head/fleet/fleet.h"
#include "head/head_impl.h"
#include "head/jobs/asked.h"
#include "head/kv/kv_ask.h"
#include "head/nodes/dialled.h"
#include "head/nodes/node.h"
#include "head/ops/waiting.h"
#include "head/place/place.h"
#include "head/rendezvous/rendezvous.h"
#include "head/shards/shards.h"
#include "head/stop.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* How long a driver that has been told that all is gone may keep its link. */
#define CLOSING_NS (5 * MS_NS_PER_S)

enum { SCRIPT_SHOWN = 100 }; /* characters */

uint64_t ms_driver_id(const struct ms_driver *d)
{
    return d ? d->id : 0;
}

uint64_t ms_driver_worker(const struct ms_driver *d)
{
    return d && d->hello ? d->hello->worker : 0;
}

enum ms_asker ms_driver_asker(const struct ms_driver *d)
{
    if (d->hello && d->hello->tool)
        return MS_ASKER_TOOL;
    return ms_driver_worker(d) ? MS_ASKER_WORKER : MS_ASKER_DRIVER;
}

struct ms_driver *ms_driver_find(const struct ms_head *h, uint64_t id)
{
    return id ? ms_map_find(&h->drivers, id) : NULL;
}

/* Of a long path the end: it says most. */
static const char *shown_script(const char *script)
{
    size_t len = strlen(script);

    return len > SCRIPT_SHOWN ? script + len - SCRIPT_SHOWN : script;
}

const char *ms_driver_print_owner(const struct ms_head *h,
                                  const struct ms_cluster *c,
                                  char *out,
                                  size_t room)
{
    const struct ms_driver *d = ms_driver_find(h, c->driver);

    out[0] = 0;
    if (d && d->hello)
        snprintf(out,
                 room,
                 ", of the driver with pid %d on %.64s (%s)",
                 d->hello->pid,
                 d->hello->host,
                 shown_script(d->hello->script));
    else if (c->driver)
        snprintf(out,
                 room,
                 c->detached ? ", detached, of a driver that has ended"
                             : ", of another driver");
    return out;
}

/* ---- life ------------------------------------------------------------------------ */

uint64_t ms_driver_given_up(const struct ms_head *h, uint64_t id)
{
    uint64_t newest = 0;

    for (size_t i = 0; i < MS_DRIVERS_GIVEN_UP; i++)
        if (h->given_up[i].id == id && h->given_up[i].newest > newest)
            newest = h->given_up[i].newest;
    return newest;
}

static void remember(const struct ms_driver *d)
{
    struct ms_head *h = d->head;
    uint64_t before = ms_driver_given_up(h, d->id), newest = d->replies.newest;

    if (newest > before)
        h->given_up[h->given_up_next++ % MS_DRIVERS_GIVEN_UP] =
            (struct ms_driver_given_up){d->id, newest};
}

void ms_driver_destroy(struct ms_driver *d)
{
    if (d->is_silent)
        remember(d);
    ms_map_remove(&d->head->drivers, d->id);
    ms_timer_finish(&d->grace);
    ms_link_destroy(d->wire);
    ms_replies_finish(&d->replies);
    muster__driver_hello__free_unpacked(d->hello, NULL);
    free(d);
}

void ms_drivers_cut(struct ms_head *h)
{
    struct ms_driver *d;

    for (size_t at = 0; (d = ms_map_next(&h->drivers, &at));)
        ms_link_destroy(MS_TAKE(d->wire));
}

void ms_drivers_finish(struct ms_head *h)
{
    struct ms_driver *d;
    size_t at;

    for (at = 0; (d = ms_map_next(&h->drivers, &at)); at = 0)
        ms_driver_destroy(d);
    ms_map_finish(&h->drivers);
}

static void on_grace(void *arg)
{
    struct ms_driver *d = arg;

    char why[64];

    if (d->over) {
        ms_driver_destroy(d);
        return;
    }
    d->is_silent = true;
    snprintf(why,
             sizeof why,
             "it was silent for %.3g s",
             (double)d->head->link_grace_ns / (double)MS_NS_PER_S);
    if (ms_driver_worker(d)) /* its agent says whether it lives */
        ms_head_shards_link_gone(d->head, d->id);
    ms_driver_end(d, MS_STOP_GRACE_NS, why);
}

struct ms_driver *ms_driver_create(struct ms_head *h, uint64_t id)
{
    struct ms_driver *d = calloc(1, sizeof *d);

    if (!d)
        return NULL;
    d->head = h;
    d->id = id;
    ms_replies_init(&d->replies);
    if (ms_timer_init(&d->grace, h->loop, on_grace, d) < 0 ||
        ms_map_add(&h->drivers, id, d) < 0) {
        ms_timer_finish(&d->grace);
        free(d);
        return NULL;
    }
    return d;
}

int ms_driver_expect(struct ms_head *h, uint64_t id)
{
    struct ms_driver *d;

    if (id == 0 || ms_driver_find(h, id))
        return 0;
    d = ms_driver_create(h, id);
    if (!d)
        return -ENOMEM;
    ms_timer_set(&d->grace, h->link_grace_ns);
    return 0;
}

static bool has_clusters(const struct ms_driver *d)
{
    ms_list_each (c, &d->head->registry.clusters, struct ms_cluster, link)
        if (c->driver == d->id && !ms_cluster_outlives_driver(c))
            return true;
    return false;
}

static void tell_forget(struct ms_driver *d)
{
    ms_list_each (n, &d->head->nodes, struct ms_node, link)
        if (ms_map_remove(&n->contexts, d->id) && ms_node_tell_forget(n, d->id) < 0)
            ms_map_add(&n->contexts, d->id, ms_node_unforgotten());
}

void ms_driver_settle(struct ms_driver *d)
{
    const Muster__Done done = MUSTER__DONE__INIT;

    if (d->state != MS_DRIVER_ENDING || d->over || d->running || has_clusters(d) ||
        ms_fleet_has(d->head->fleet, d->id))
        return;
    d->over = true;
    tell_forget(d);
    ms_head_ports_drop_driver(d->head, d->id);
    if (!d->wire || !d->goodbye) {
        ms_timer_set(&d->grace, 0); /* not here: the caller may look at it */
        return;
    }
    ms_driver_tell(d, d->goodbye, MUSTER__HEAD_TO_DRIVER__BODY_DONE, &done);
    ms_timer_set(&d->grace, CLOSING_NS);
}

void ms_driver_cluster_gone(struct ms_head *h, uint64_t id)
{
    struct ms_driver *d = ms_driver_find(h, id);

    if (d)
        ms_driver_settle(d);
}

void ms_driver_end(struct ms_driver *d, int64_t grace_ns, const char *why)
{
    struct ms_head *h = d->head;

    if (d->state == MS_DRIVER_ENDING)
        return;
    d->state = MS_DRIVER_ENDING;
    ms_driver_report(d, why);
    ms_timer_cancel(&d->grace);
    ms_head_fail_waiting(h, d);
    ms_place_driver_gone(h, d->id);
    ms_head_kv_driver_gone(h, d->id);
    ms_head_rendezvous_lose(h, d->id);
    ms_head_shards_driver_gone(h, d->id);
    ms_fleet_driver_gone(h, d->id);
    ms_asked_settle(h->jobs, d->id, UINT64_MAX, NULL, 0);
    ms_list_each (c, &h->registry.clusters, struct ms_cluster, link)
        if (c->driver == d->id && !ms_cluster_outlives_driver(c))
            ms_head_op_unref(ms_head_destroy_cluster(h, c->name, false, 0, grace_ns));
    ms_driver_settle(d);
    ms_head_stop_step(h);
}

void ms_drivers_worker_ended(struct ms_head *h, uint64_t uid)
{
    struct ms_driver *d, *found = NULL;

    for (size_t at = 0; (d = ms_map_next(&h->drivers, &at));)
        if (d->hello && d->hello->worker == uid)
            found = d;
    if (found && !h->stop_op)
        ms_driver_end(found, MS_STOP_GRACE_NS, "it was a worker that has ended");
}

/* ---- its context ----------------------------------------------------------------- */

int ms_driver_introduce(struct ms_driver *d, struct ms_node *n, struct ms_error *err)
{
    int rc;

    if (!d || ms_map_find(&n->contexts, d->id))
        return 0;
    if (!d->hello)
        return ms_error_set(err, -EAGAIN, "the driver has not come back");
    rc = ms_map_add(&n->contexts, d->id, d);
    if (rc == 0 && n->wire) /* one that is away is told when it comes back */
        rc = ms_node_tell(n, MUSTER__HEAD_TO_AGENT__BODY_DRIVER, d->hello->context);
    if (rc != -ENOMEM && rc != -ENOBUFS && rc != -EMSGSIZE)
        return 0; /* told, or its link has just broken */
    ms_map_remove(&n->contexts, d->id);
    return ms_error_sys(err, rc, "cannot tell node %s of the driver", n->name);
}
