/* cluster.c - destroying clusters, and what happens to their workers */
#include "base/cleanup.h"
#include "base/name.h"
#include "base/proto.h"
#include "head/clusters/bringup.h"
#include "head/clusters/clusters_impl.h"
#include "head/clusters/ports.h"
#include "head/drivers/driver.h"
#include "head/head_impl.h"
#include "head/jobs/jobs.h"
#include "head/kv/barrier.h"
#include "head/kv/kv_ask.h"
#include "head/nodes/node.h"
#include "head/nodes/orphan.h"
#include "head/ops/op.h"
#include "head/ops/request.h"
#include "head/ops/waiting.h"
#include "head/place/place.h"
#include "head/rendezvous/rendezvous.h"
#include "head/shards/shards.h"
#include "head/status.h"
#include "head/stop.h"

#include <errno.h>
#include <string.h>

uint64_t *
ms_head_living_on(const struct ms_head *h, const struct ms_node *n, size_t *count)
{
    uint64_t *uids = calloc(h->registry.live + 1, sizeof *uids);

    *count = 0;
    ms_list_each (c, &h->registry.clusters, struct ms_cluster, link)
        for (size_t i = 0; uids && i < c->count; i++) {
            const struct ms_slot *s = &c->slots[i];

            if (ms_slot_is_live(s) && s->now.address && strcmp(s->node, n->name) == 0)
                uids[(*count)++] = s->now.uid;
        }
    return uids;
}

int ms_node_tell_stop(struct ms_node *n, uint64_t *uids, size_t count, int64_t grace_ns)
{
    Muster__StopWorkers stop = MUSTER__STOP_WORKERS__INIT;

    stop.uids = uids;
    stop.n_uids = count;
    stop.grace_ns = grace_ns > 0 ? (uint64_t)grace_ns : 0;
    return ms_node_tell(n, MUSTER__HEAD_TO_AGENT__BODY_STOP, &stop);
}

int ms_head_stop_workers_of(struct ms_head *h, struct ms_node *n, int64_t grace_ns)
{
    size_t count;
    MS_CLEANUP(ms_cleanup_free) uint64_t *uids = ms_head_living_on(h, n, &count);

    if (!uids)
        return -ENOMEM;
    return count ? ms_node_tell_stop(n, uids, count, grace_ns) : 0;
}

void ms_head_stop_unwanted(struct ms_node *n, const Muster__AgentToHead *answer)
{
    const Muster__WorkersStarted *s =
        answer->body_case == MUSTER__AGENT_TO_HEAD__BODY_STARTED ? answer->started
                                                                 : NULL;

    for (size_t i = 0; s && i < s->n_workers; i++) {
        const struct ms_slot *slot =
            ms_registry_find_uid(&n->head->registry, s->workers[i]->uid);

        if (!slot || !ms_slot_is_live(slot))
            ms_node_tell_stop(n, &s->workers[i]->uid, 1, 0);
    }
}

/* ---- destroy --------------------------------------------------------------------- */

/* Its workers have ended and its port is free: it is no more when its helpers are gone. */
static bool is_destroyed(const struct ms_head_op *op)
{
    return op->ending.is_over && ms_list_is_empty(&op->asks) &&
           op->cluster->live == 0 && !ms_helpers_are_left(op->head, op->cluster);
}

static void forget_when_over(struct ms_head_op *op)
{
    if (is_destroyed(op))
        ms_head_cluster_forget(op->head, op->cluster);
}

static struct ms_head_op *find_over(const struct ms_head *h)
{
    ms_list_each (op, &h->destroying, struct ms_head_op, wait_link)
        if (is_destroyed(op))
            return op;
    return NULL;
}

/* Those who have waited for helpers to end go on. */
static void helpers_are_gone(struct ms_head *h)
{
    struct ms_head_op *over;

    ms_list_each (c, &h->registry.clusters, struct ms_cluster, link) {
        struct ms_head_op *op = c->is_busy ? ms_bringup_find(h, c) : NULL;

        if (op)
            ms_bringup_step(op);
    }
    while ((over = find_over(h))) /* one may end others of the same cluster */
        forget_when_over(over);
}

void ms_head_cluster_forget(struct ms_head *h, struct ms_cluster *c)
{
    uint64_t driver = c->driver;
    bool are_helpers = c->slots[0].helps != 0;

    ms_head_ports_drop(h, c);
    ms_objects_drop(h, c);
    ms_persist_forget_cluster(h, c->name);
    ms_place_cluster_gone(h, c->name);
    /* an operation that waits for this may place one of the same name from another thread */
    ms_list_each (op, &h->destroying, struct ms_head_op, wait_link)
        if (op->cluster == c)
            ms_head_op_succeed(op, NULL);
    ms_registry_remove(&h->registry, c);
    ms_driver_cluster_gone(h, driver);
    ms_successors_step(h);
    ms_head_changed(h);
    if (are_helpers)
        helpers_are_gone(h);
}

bool ms_head_is_to_end(const struct ms_head *h, const struct ms_cluster *c)
{
    ms_list_each (op, &h->destroying, struct ms_head_op, wait_link)
        if (op->cluster == c)
            return true;
    return false;
}

/* Its port is free before the end is told to the asker. */
static void drop_port(struct ms_head_op *op)
{
    struct ms_cluster *c = op->cluster;

    ms_head_op_gather(op, forget_when_over);
    if (c->port_owner)
        ms_head_ports_ask_drop(op, c->port_owner, c->driver);
    ms_head_op_gather_end(op);
}

/* Each node has reaped them all and cleaned up after them, and told each exit before;
 * or is gone; or there are some that even SIGKILL does not end. */
static void ended(struct ms_head_op *op)
{
    if (ms_ending_left(op) == 0) {
        drop_port(op);
    } else {
        ms_ending_late(op);
        ms_head_op_done(op);
    }
}

/* Its workers are all confirmed now, so that they can be named to the nodes. */
static void begin_destroy(struct ms_head_op *op)
{
    int64_t grace_ns = ms_head_grace(op->request->destroy->grace_ns);

    op->cluster->state = MS_CLUSTER_STOPPING;
    if (ms_ending_begin(op, true, grace_ns, ended) < 0)
        ms_head_op_fail(op, -ENOMEM, "cannot stop cluster '%s'", op->cluster->name);
}

/* 0 if at least one living worker of it can be reached, or none lives. */
static int
check_nodes(struct ms_head *h, const struct ms_cluster *c, struct ms_error *err)
{
    int rc = 0;

    for (size_t i = 0; i < c->count; i++) {
        struct ms_node *n =
            ms_slot_is_live(&c->slots[i]) ? ms_node_find(h, c->slots[i].node) : NULL;

        rc = n ? ms_node_check(n, err) : rc;
        if (n && rc == 0)
            return 0;
    }
    return rc;
}

bool ms_head_is_another(const struct ms_head *h,
                        const struct ms_cluster *c,
                        uint64_t uid)
{
    const struct ms_slot *first = &c->slots[0];
    uint32_t known = 1;

    if (uid == 0 || first->now.uid == 0 || first->now.uid == uid ||
        ms_registry_find_former(&h->registry, uid) == first)
        return false;
    for (size_t i = 0; i < MS_FORMER_MAX; i++)
        known += first->former[i] != 0;
    return known >= first->now.incarnation;
}

static bool is_meant(const struct ms_head_op *op, const struct ms_cluster *c)
{
    const Muster__DestroyCluster *which = op->request->destroy;

    return (!which->own || c->driver == ms_driver_id(op->driver)) &&
           !ms_head_is_another(op->head, c, which->uid);
}

/* What is being made of it is given up; the end follows when that is gone. */
static void interrupt(struct ms_head *h, const struct ms_cluster *c)
{
    struct ms_head_op *op = ms_bringup_find(h, c);
    struct ms_error why = {0};

    ms_error_set(&why, -ECANCELED, "cluster '%s' was destroyed meanwhile", c->name);
    if (op)
        ms_bringup_cancel(op, &why);
}

int ms_head_destroy_run(struct ms_head_op *op)
{
    struct ms_head *h = op->head;
    const char *name = op->request->destroy->name;
    struct ms_cluster *c;
    bool was_waiting;
    int rc = ms_name_check(name, "cluster", &op->error);

    if (rc < 0)
        return rc;
    c = ms_registry_find(&h->registry, name);
    if ((!c || c->unknown) && ms_head_wait_for_nodes(op))
        return 0;
    op->cluster = c && is_meant(op, c) ? c : NULL;
    /* beside one that there is, a creation waits for the end of just that one */
    was_waiting =
        (!op->cluster || op->driver) && ms_head_give_up_waiting(h, name, op->driver);
    if (was_waiting && !op->cluster) {
        ms_head_op_succeed(op, NULL);
        return 0;
    }
    rc = op->cluster
             ? check_nodes(h, op->cluster, &op->error)
             : ms_error_set(&op->error, -ENOENT, "there is no cluster '%s'", name);
    if (rc < 0)
        return rc;
    ms_list_add_tail(&h->destroying, &op->wait_link);
    if (op->cluster->is_busy)
        interrupt(h, op->cluster);
    else
        begin_destroy(op);
    return 0;
}

/* Also if it could not be. */
static void on_ended(struct ms_head_op *op, void *arg)
{
    (void)op;
    ms_place_kick(arg);
}

void ms_head_end_cluster(struct ms_head *h, const struct ms_cluster *c)
{
    Muster__DestroyCluster destroy = MUSTER__DESTROY_CLUSTER__INIT;
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;
    struct ms_head_op *op = ms_head_op_create(h);

    m.body_case = MUSTER__DRIVER_TO_HEAD__BODY_DESTROY;
    m.destroy = &destroy;
    destroy.name = ms_field_text(c->name);
    if (op && (op->request = (Muster__DriverToHead *)ms_proto_copy(&m.base))) {
        op->on_done = on_ended;
        op->done_arg = h;
        ms_head_op_run(op);
    } else if (op) {
        ms_head_op_end(op, -ENOMEM);
    }
    ms_head_op_unref(op);
}

/* That has not begun. */
static struct ms_head_op *next_destroy(struct ms_head *h, const struct ms_cluster *c)
{
    ms_list_each (op, &h->destroying, struct ms_head_op, wait_link)
        if (op->cluster == c && !op->ending.done)
            return op;
    return NULL;
}

void ms_head_begin_destroys(struct ms_head *h, struct ms_cluster *c)
{
    struct ms_head_op *op;

    /* one may end all of them, and the cluster */
    while ((op = next_destroy(h, c)))
        begin_destroy(op);
}

/* ---- what happens to workers ----------------------------------------------------- */

void ms_head_tell_exit(struct ms_head *h, const struct ms_slot *slot)
{
    Muster__Exit none = MUSTER__EXIT__INIT;
    const Muster__Exit *exit = slot->now.exit ? slot->now.exit : &none;

    ms_jobs_worker_exited(h->jobs, slot, exit);
    if (slot->cluster->driver)
        ms_driver_tell_exit(h, slot->cluster, slot->now.uid, exit);
    if (h->on_exit) /* of an embedded head: its process may call all of them */
        h->on_exit(h->arg, slot->now.uid, exit);
    ms_head_answer_deaths(h, slot->now.uid, exit);
}

/* What others know of it. */
static void worker_gone(struct ms_head *h, const struct ms_slot *slot)
{
    ms_head_kv_worker_gone(h, slot->now.uid);
    ms_head_barriers_lose(h, slot);
    ms_head_rendezvous_lose(h, slot->now.uid);
    ms_head_shards_lose(h, slot->now.uid);
}

/* Nobody waits for it any more; else it is forgotten with the nodes' answers. */
static bool is_over(const struct ms_head *h, const struct ms_cluster *c)
{
    return (c->state == MS_CLUSTER_STOPPING && c->live == 0 && !c->is_busy &&
            !ms_head_is_to_end(h, c)) ||
           ms_helpers_are_over(c);
}

void ms_head_worker_exited(struct ms_head *h, uint64_t uid, const Muster__Exit *exit)
{
    struct ms_slot *slot = ms_registry_find_uid(&h->registry, uid);
    Muster__Exit told = *exit;

    if (slot && slot->now.why) { /* we have ended it, but it was not asked for */
        told.detail = slot->now.why;
        told.requested = false;
    }
    slot = ms_registry_exited(&h->registry, uid, &told);
    if (!slot)
        return;
    worker_gone(h, slot);
    if (slot->cluster->is_made)
        ms_head_tell_exit(h, slot); /* else when the creation has succeeded */
    ms_helpers_exited(h, slot, &told);
    ms_bringup_worker_ended(h, slot, &told);
    if (is_over(h, slot->cluster))
        ms_head_cluster_forget(h, slot->cluster);
    ms_drivers_worker_ended(h, uid);
    ms_successors_step(h);
    ms_head_changed(h);
    ms_head_stop_step(h);
}

/* Nobody can say how it ended; but it does, because its agent did. */
static void lose_worker(struct ms_head *h,
                        const struct ms_node *n,
                        struct ms_slot *slot,
                        char *detail)
{
    Muster__Exit exit = MUSTER__EXIT__INIT;

    if (n->child)
        ms_orphans_add(&h->orphans, slot->now.pid, slot->now.started_ns);
    exit.code = -1;
    exit.unreachable = n->silent;
    exit.pid = slot->now.pid;
    exit.node = slot->node;
    exit.detail = detail;
    exit.requested = h->stop_op || slot->cluster->state == MS_CLUSTER_STOPPING;
    if (slot->now.log_path)
        exit.log_path = slot->now.log_path;
    ms_registry_exited(&h->registry, slot->now.uid, &exit);
    worker_gone(h, slot);
    if (slot->cluster->is_made)
        ms_head_tell_exit(h, slot);
    ms_helpers_exited(h, slot, &exit);
}

void ms_head_workers_lost(struct ms_head *h, struct ms_node *n, const char *why)
{
    struct ms_error detail = {0};

    ms_error_set(&detail, -EPIPE, "%.400s, and its workers with it", why);
    ms_list_each (c, &h->registry.clusters, struct ms_cluster, link)
        for (size_t i = 0; i < c->count; i++)
            if (ms_slot_is_live(&c->slots[i]) && strcmp(c->slots[i].node, n->name) == 0)
                lose_worker(h, n, &c->slots[i], detail.text);
    ms_list_each (c, &h->registry.clusters, struct ms_cluster, link)
        if (is_over(h, c))
            ms_head_cluster_forget(h, c);
    ms_bringups_lost(h, n->name);
    ms_successors_step(h);
}
