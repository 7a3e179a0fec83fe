/* driver_tell.c - what drivers are told: exits, log lines, nodes */
#include "head/clusters/clusters.h"
#include "head/drivers/driver_impl.h"
#include "head/head_impl.h"
#include "head/status.h"
#include "io/addr.h"

#include <string.h>

void ms_driver_tell(struct ms_driver *d,
                    uint64_t request,
                    Muster__HeadToDriver__BodyCase which,
                    const void *body)
{
    Muster__HeadToDriver m = MUSTER__HEAD_TO_DRIVER__INIT;

    m.request = request;
    m.body_case = which; /* all bodies are pointers in a union */
    m.welcome = (Muster__LinkWelcome *)(uintptr_t)body;
    if (d->wire)
        ms_link_send(d->wire, &m.base); /* its closing tells what went wrong */
}

void ms_driver_tell_exit(struct ms_head *h,
                         const struct ms_cluster *c,
                         uint64_t uid,
                         const Muster__Exit *exit)
{
    struct ms_driver *d = ms_driver_find(h, c->driver);
    Muster__WorkerExited exited = MUSTER__WORKER_EXITED__INIT;

    if (!d)
        return;
    exited.uid = uid;
    exited.exit = (Muster__Exit *)(uintptr_t)exit;
    ms_driver_tell(d, 0, MUSTER__HEAD_TO_DRIVER__BODY_EXITED, &exited);
}

void ms_driver_repeat_exits(struct ms_driver *d)
{
    ms_list_each (c, &d->head->registry.clusters, struct ms_cluster, link)
        for (size_t i = 0; c->driver == d->id && i < c->count; i++)
            if (c->slots[i].now.state == MUSTER__WORKER_STATE__WORKER_EXITED &&
                c->is_made)
                ms_head_tell_exit(d->head, &c->slots[i]);
}

/* ---- logs ------------------------------------------------------------------------ */

static uint64_t driver_of(const struct ms_head *h, const Muster__LogLine *line)
{
    const struct ms_slot *s = ms_registry_find_uid(&h->registry, line->uid);
    const struct ms_cluster *c =
        s ? s->cluster : ms_registry_find(&h->registry, line->cluster);

    return c ? c->driver : 0;
}

/* One that cannot keep up loses lines, and is told how many. */
static void tell_lines(
    struct ms_head *h, uint64_t id, char *node, Muster__LogLine **lines, size_t count)
{
    struct ms_driver *d = ms_driver_find(h, id);
    Muster__LogLines some = MUSTER__LOG_LINES__INIT;

    if (!d || !d->wire || !d->hello || !d->hello->context->wants_logs)
        return;
    if (ms_link_queued(d->wire) > MS_LOG_BACKLOG_MAX) {
        d->lines_dropped += count;
        return;
    }
    some.n_lines = count;
    some.lines = lines;
    some.node = node;
    some.dropped = d->lines_dropped;
    d->lines_dropped = 0;
    ms_driver_tell(d, 0, MUSTER__HEAD_TO_DRIVER__BODY_LOG, &some);
}

void ms_head_logged(struct ms_head *h, char *node, Muster__LogLines *lines)
{
    Muster__LogLines all = *lines;
    size_t from = 0;

    all.node = node;
    if (!h->is_daemon) {
        if (h->on_log)
            h->on_log(h->arg, &all);
        return;
    }
    while (from < lines->n_lines) { /* runs of one driver's lines */
        uint64_t id = driver_of(h, lines->lines[from]);
        size_t to = from + 1;

        while (to < lines->n_lines && driver_of(h, lines->lines[to]) == id)
            to++;
        tell_lines(h, id, node, lines->lines + from, to - from);
        from = to;
    }
}

/* ---- to all ---------------------------------------------------------------------- */

static void
tell_all(struct ms_head *h, Muster__HeadToDriver__BodyCase which, const void *body)
{
    struct ms_driver *d;
    size_t at = 0;

    while ((d = ms_map_next(&h->drivers, &at)))
        ms_driver_tell(d, 0, which, body);
}

void ms_drivers_tell_node(struct ms_head *h, const struct ms_node *n)
{
    Muster__NodeStatus *status;

    ms_head_changed(h);
    if (h->drivers.count == 0 && !h->on_node)
        return;
    status = ms_node_status(n);
    if (!status)
        return;
    tell_all(h, MUSTER__HEAD_TO_DRIVER__BODY_NODE, status);
    if (h->on_node && !h->stop_op)
        h->on_node(h->arg, status);
    muster__node_status__free_unpacked(status, NULL);
}

void ms_driver_report(const struct ms_driver *d, const char *gone)
{
    struct ms_head *h = d->head;
    char peer[MS_ADDR_TEXT_MAX] = "";
    Muster__DriverStatus *status;

    if (!h->on_driver || !d->hello || ms_driver_asker(d) != MS_ASKER_DRIVER ||
        h->stop_op)
        return;
    status = ms_driver_status(d);
    if (!status)
        return;
    if (d->wire)
        ms_link_peer(d->wire, peer, sizeof peer);
    h->on_driver(h->arg, status, peer, gone);
    muster__driver_status__free_unpacked(status, NULL);
}

void ms_drivers_tell_changed(struct ms_head *h, Muster__ClusterChanged *changed)
{
    tell_all(h, MUSTER__HEAD_TO_DRIVER__BODY_CHANGED, changed);
}

void ms_drivers_say_goodbye(struct ms_head *h, const char *why)
{
    Muster__Goodbye goodbye = MUSTER__GOODBYE__INIT;

    goodbye.why = (char *)(uintptr_t)why;
    tell_all(h, MUSTER__HEAD_TO_DRIVER__BODY_GOODBYE, &goodbye);
}
