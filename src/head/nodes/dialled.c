/* dialled.c - agents that have dialled: welcomed, lost, back again with their reports */
#include "head/nodes/dialled.h"
#include "base/cleanup.h"
#include "base/name.h"
#include "head/clusters/clusters.h"
#include "head/clusters/ports.h"
#include "head/daemon/control.h"
#include "head/drivers/driver.h"
#include "head/fleet/fleet.h"
#include "head/head_impl.h"
#include "head/jobs/jobs.h"
#include "head/nodes/node.h"
#include "head/ops/waiting.h"
#include "head/place/place.h"
#include "head/state/persist.h"
#include "head/stop.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A driver whose end the node was not told of, because it was away. */
static char unforgotten;

void *ms_node_unforgotten(void)
{
    return &unforgotten;
}

/* ---- its end --------------------------------------------------------------------- */

static void on_grace(void *arg);
static void begin_grace(struct ms_node *n, int64_t grace_ns);

__attribute__((format(printf, 2, 3))) static void
lose(struct ms_node *n, const char *fmt, ...)
{
    struct ms_head *h = n->head;
    char why[MS_ERROR_TEXT_MAX], name[sizeof n->name];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    ms_node_is_gone(n, why);
    ms_drivers_tell_node(h, n);
    memcpy(name, n->name, sizeof name);
    ms_node_destroy(n); /* first: a journal that is written anew has what there is */
    ms_persist_forget_node(h, name);
    ms_head_stop_step(h);
}

static void lose_ended(struct ms_node *n)
{
    lose(n, "the agent on node %s (pid %d) has ended", n->name, (int)n->pid);
}

/* Its link is closed; who lends it may know more. */
static void wait_for_cause(struct ms_node *n, bool is_over)
{
    n->state = MS_NODE_AWAY;
    n->is_asked = n->suspect = true;
    n->is_over = is_over;
    if (!n->grace.event && ms_timer_init(&n->grace, n->head->loop, on_grace, n) < 0)
        lose_ended(n);
    else
        ms_timer_set(&n->grace, MS_FLEET_CAUSE_NS);
}

static void on_grace(void *arg)
{
    struct ms_node *n = arg;

    if (n->is_asked && !n->is_over) { /* perhaps it is the network */
        n->is_asked = false;
        begin_grace(n, n->head->link_grace_ns - MS_FLEET_CAUSE_NS);
        return;
    }
    if (n->is_over) {
        lose_ended(n);
        return;
    }
    n->silent = true;
    lose(n,
         "node %s was silent for %.3g s",
         n->name,
         (double)n->head->link_grace_ns / (double)MS_NS_PER_S);
}

/* It has this long to be heard again. */
static void begin_grace(struct ms_node *n, int64_t grace_ns)
{
    n->suspect = true;
    if (!n->grace.event && ms_timer_init(&n->grace, n->head->loop, on_grace, n) < 0)
        return;
    ms_timer_set(&n->grace, grace_ns > 0 ? grace_ns : 0);
    ms_drivers_tell_node(n->head, n);
}

static void end_grace(struct ms_node *n)
{
    n->suspect = n->is_asked = n->is_over = false;
    ms_timer_finish(&n->grace);
}

void ms_dialled_is_over(struct ms_head *h, const char *name, const char *why)
{
    struct ms_node *n = ms_node_find(h, name);

    if (n && !n->child)
        lose(n, "%s", why);
}

/* ---- its link -------------------------------------------------------------------- */

static void on_closed(void *arg, const struct ms_error *why)
{
    struct ms_node *n = arg;
    bool is_end = ms_link_has_ended(why) || n->head->stop_op;

    ms_link_destroy(MS_TAKE(n->wire)); /* and `why` with it */
    if (!n->head->stop_op && (ms_fleet_lends(n->head->fleet, n->name) ||
                              ms_jobs_lend(n->head->jobs, n->name))) {
        wait_for_cause(n, is_end);
    } else if (is_end) {
        lose_ended(n);
    } else {
        n->state = MS_NODE_AWAY;
        begin_grace(n, n->head->link_grace_ns);
    }
}

static void on_body(void *arg, const uint8_t *body, size_t len)
{
    struct ms_node *n = arg;

    if (!ms_node_read(n, body, len))
        lose(n,
             "the agent on node %s (pid %d) sent what is no message",
             n->name,
             (int)n->pid);
}

static void on_suspect(void *arg, bool is_suspect)
{
    struct ms_node *n = arg;

    if (is_suspect) {
        begin_grace(n, n->head->link_grace_ns - MS_SUSPECT_NS);
    } else {
        end_grace(n);
        ms_drivers_tell_node(n->head, n);
    }
}

static const struct ms_link_ops link_ops = {
    .on_body = on_body,
    .on_closed = on_closed,
    .on_suspect = on_suspect,
};

/* ---- what it has ----------------------------------------------------------------- */

/* A worker that lives there: ours, or one that nobody wants any more. `is_new`: it may be
 * of a head before us; otherwise we know all that there is. */
static void
take_living(struct ms_node *n, const Muster__WorkerReport *report, bool is_new)
{
    struct ms_head *h = n->head;
    uint64_t uid = report->spec ? report->spec->uid : 0;
    struct ms_slot *slot = ms_registry_find_uid(&h->registry, uid);
    int rc = slot || is_new ? 0 : -ENOENT;

    if (rc == 0)
        rc = ms_registry_adopt(&h->registry, n->name, report, ms_now_ns(), &slot, NULL);

    if (rc < 0 || !ms_slot_is_live(slot)) {
        if (uid)
            ms_node_tell_stop(n, &uid, 1, 0);
        return;
    }
    ms_place_adopt(h, slot);
    if (!slot->cluster->detached)
        ms_driver_expect(h, slot->cluster->driver);
    if (slot->cluster->state == MS_CLUSTER_STOPPING)
        ms_node_tell_stop(n, &slot->now.uid, 1, 0);
}

/* One that has ended. Of a cluster that nobody knows it is told only to who asks. */
static void take_dead(struct ms_node *n, const Muster__WorkerReport *report)
{
    struct ms_head *h = n->head;
    const Muster__WorkerSpec *spec = report->spec;
    struct ms_slot *slot = NULL;

    if (!spec)
        return;
    if (ms_registry_find(&h->registry, spec->cluster))
        ms_registry_adopt(&h->registry, n->name, report, ms_now_ns(), &slot, NULL);
    if (slot)
        ms_head_worker_exited(h, spec->uid, report->exit);
    else
        ms_head_answer_deaths(h, spec->uid, report->exit);
}

static bool is_reported(const Muster__AgentHello *hello, uint64_t uid)
{
    for (size_t i = 0; i < hello->n_workers; i++)
        if (hello->workers[i]->spec && hello->workers[i]->spec->uid == uid)
            return true;
    return false;
}

/* What we thought was there, and is not. */
static void lose_missing(struct ms_node *n, const Muster__AgentHello *hello)
{
    static char detail[] = "its agent came back without it";
    size_t count;
    MS_CLEANUP(ms_cleanup_free) uint64_t *uids = ms_head_living_on(n->head, n, &count);
    Muster__Exit exit = MUSTER__EXIT__INIT;

    exit.code = -1;
    exit.node = n->name;
    exit.detail = detail;
    for (size_t i = 0; uids && i < count; i++)
        if (!is_reported(hello, uids[i]))
            ms_head_worker_exited(n->head, uids[i], &exit);
}

static void take_reports(struct ms_node *n, const Muster__AgentHello *hello)
{
    struct ms_head *h = n->head;

    for (size_t i = 0; i < hello->n_workers; i++)
        if (!hello->workers[i]->exit)
            take_living(n, hello->workers[i], hello->head != h->id);
    for (size_t i = 0; i < hello->n_workers; i++)
        if (hello->workers[i]->exit)
            take_dead(n, hello->workers[i]);
    ms_head_ports_lost(h, n);
    for (size_t i = 0; i < hello->n_ports; i++) {
        const char *owner = hello->ports[i]->owner;

        ms_head_port_add(h, owner, ms_head_port_driver(h, owner), n);
    }
    lose_missing(n, hello);
}

/* ---- hello ----------------------------------------------------------------------- */

static int check(struct ms_head *h,
                 const Muster__AgentHello *hello,
                 const struct ms_node *n,
                 struct ms_error *err)
{
    int rc;

    if (!hello->agent || !hello->ready)
        return ms_error_set(err, -EINVAL, "an agent without an id or a description");
    rc = ms_name_check(hello->ready->node_name, "node", err);
    if (rc < 0)
        return rc;
    if (!n && ms_node_count(h) >= MS_NODES_MAX)
        return ms_error_set(
            err, -ENOSPC, "there are %u nodes; a head can have no more", MS_NODES_MAX);
    if (n && n->agent != hello->agent &&
        (!n->suspect || strcmp(n->ready->host_id, hello->ready->host_id) != 0))
        return ms_error_set(err,
                            -EEXIST,
                            "node %s has an agent already (process %d there): give "
                            "this one another --node-name",
                            n->name,
                            (int)n->pid);
    return 0;
}

static void tell_contexts(struct ms_node *n)
{
    for (size_t i = 0; i < n->contexts.capacity; i++) {
        const struct ms_map_slot *s = &n->contexts.slots[i];
        const struct ms_driver *d = s->value;

        if (!s->key)
            continue;
        if (s->value == ms_node_unforgotten())
            ms_node_tell_forget(n, s->key);
        else
            ms_node_tell(n, MUSTER__HEAD_TO_AGENT__BODY_DRIVER, d->hello->context);
    }
}

/* The same agent again: its link, and what was asked of it. */
static void come_back(struct ms_node *n, struct ms_link *wire)
{
    ms_link_destroy(n->wire);
    n->wire = wire;
    end_grace(n);
}

int ms_dialled_attach(struct ms_head *h,
                      struct ms_link *wire,
                      Muster__AgentHello *hello,
                      struct ms_error *err)
{
    const char *name = hello->ready ? hello->ready->node_name : "";
    struct ms_node *n = ms_node_find(h, name);
    bool is_back = n && n->agent == hello->agent;
    int rc = check(h, hello, n, err);

    if (rc < 0)
        return rc;
    if (n && !is_back) {
        lose(n, "another agent has taken its place");
        n = NULL;
    }
    if (!n)
        n = ms_node_create(h, name);
    if (!n)
        return ms_error_sys(err, -ENOMEM, "cannot take another node");
    come_back(n, wire);
    n->agent = hello->agent;
    ms_link_set_ops(wire, &link_ops, n);
    ms_node_is_ready(n, MS_TAKE(hello->ready));
    ms_hello_welcome_agent(h, n);
    tell_contexts(n);
    take_reports(n, hello);
    ms_node_ask_again(n);
    ms_drivers_tell_node(h, n);
    ms_head_node_has_come(h, n->name);
    return 0;
}
