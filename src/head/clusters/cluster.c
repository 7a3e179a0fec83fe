#include "base/cleanup.h"
#include "base/name.h"
#include "head/clusters/clusters_impl.h"
#include "head/clusters/place.h"
#include "head/clusters/ports.h"
#include "head/drivers/driver.h"
#include "head/head_impl.h"
#include "head/kv/barrier.h"
#include "head/kv/kv_ask.h"
#include "head/nodes/node.h"
#include "head/nodes/orphan.h"
#include "head/op.h"
#include "head/request.h"
#include "head/status.h"
#include "head/stop.h"
#include "head/waiting.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Rank 0 has at least this part of the window of a destroy to itself. */
#define FIRST_SHARE 4

/* Slots of a cluster. */
struct ms_span {
    size_t first, end;
};

static struct ms_span span_of(const struct ms_cluster *c)
{
    return (struct ms_span){0, c->count};
}

/* ---- stopping workers ------------------------------------------------------------ */

/* To be stopped: what has a process that is known. */
static bool is_stoppable(const struct ms_slot *s, bool also_dead)
{
    return s->now.uid && s->now.address && (also_dead || ms_slot_is_live(s));
}

/* The uids of the workers of these slots on this node; `out` has room for all. */
static size_t uids_on(const struct ms_cluster *c,
                      struct ms_span span,
                      const char *node,
                      bool also_dead,
                      uint64_t *out)
{
    size_t n = 0;

    for (size_t i = span.first; i < span.end; i++)
        if (is_stoppable(&c->slots[i], also_dead) &&
            strcmp(c->slots[i].node, node) == 0)
            out[n++] = c->slots[i].now.uid;
    return n;
}

static void stop_message(Muster__HeadToAgent *m,
                         Muster__StopWorkers *stop,
                         uint64_t *uids,
                         size_t count,
                         int64_t grace_ns)
{
    muster__head_to_agent__init(m);
    muster__stop_workers__init(stop);
    stop->uids = uids;
    stop->n_uids = count;
    stop->grace_ns = grace_ns > 0 ? (uint64_t)grace_ns : 0;
    m->body_case = MUSTER__HEAD_TO_AGENT__BODY_STOP;
    m->stop = stop;
}

static int ask_stop(struct ms_head_op *op,
                    struct ms_cluster *c,
                    struct ms_span span,
                    bool also_dead,
                    int64_t grace_ns)
{
    MS_CLEANUP(ms_cleanup_free) uint64_t *uids = calloc(c->count, sizeof *uids);
    Muster__HeadToAgent m;
    Muster__StopWorkers stop;
    int asked = 0;

    if (!uids)
        return -ENOMEM;
    ms_list_each (n, &op->head->nodes, struct ms_node, link) {
        size_t count = uids_on(c, span, n->name, also_dead, uids);
        int rc;

        if (count == 0 || ms_node_check(n, NULL) < 0)
            continue;
        stop_message(&m, &stop, uids, count, grace_ns);
        rc = ms_node_ask(n, op, &m, NULL);
        if (rc == -ENOMEM)
            return rc;
        asked += rc == 0;
    }
    return asked;
}

int ms_head_cluster_ask_stop(struct ms_head_op *op,
                             struct ms_cluster *c,
                             bool also_dead,
                             int64_t grace_ns)
{
    return ask_stop(op, c, span_of(c), also_dead, grace_ns);
}

int ms_head_stop_workers_of(struct ms_head *h, struct ms_node *n, int64_t grace_ns)
{
    MS_CLEANUP(ms_cleanup_free)
    uint64_t *uids = calloc(h->registry.live + 1, sizeof *uids);
    Muster__HeadToAgent m;
    Muster__StopWorkers stop;
    size_t count = 0;

    if (!uids)
        return -ENOMEM;
    ms_list_each (c, &h->registry.clusters, struct ms_cluster, link)
        count += uids_on(c, span_of(c), n->name, false, uids + count);
    stop_message(&m, &stop, uids, count, grace_ns);
    return count ? ms_node_tell(n, &m) : 0;
}

void ms_head_tell_stop(struct ms_node *n, uint64_t uid)
{
    Muster__HeadToAgent m;
    Muster__StopWorkers stop;

    stop_message(&m, &stop, &uid, 1, 0);
    ms_node_tell(n, &m);
}

/* ---- destroy --------------------------------------------------------------------- */

void ms_head_cluster_forget(struct ms_head *h, struct ms_cluster *c)
{
    uint64_t driver = c->driver;

    ms_head_ports_drop(h, c);
    ms_head_meta_remove(h, c->name);
    ms_place_cluster_gone(h, c->name);
    /* whoever waits for this may place one of the same name from another thread */
    ms_list_each (op, &h->destroying, struct ms_head_op, wait_link)
        if (op->cluster == c)
            ms_head_op_succeed(op, NULL);
    ms_registry_remove(&h->registry, c);
    ms_driver_cluster_gone(h, driver);
    ms_head_seek_step(h);
    ms_head_changed(h);
}

static bool is_awaited(const struct ms_head *h, const struct ms_cluster *c)
{
    ms_list_each (op, &h->destroying, struct ms_head_op, wait_link)
        if (op->cluster == c)
            return true;
    return false;
}

static void on_late(void *arg)
{
    struct ms_head_op *op = arg;
    struct ms_cluster *c = op->cluster;
    size_t i = 0;

    while (i + 1 < c->count && !ms_slot_is_live(&c->slots[i]))
        i++;
    ms_head_op_fail(op,
                    -ETIMEDOUT,
                    "%zu of %zu workers of cluster '%s' have not ended in time, "
                    "among them rank %u (pid %d on node %s)",
                    c->live,
                    c->count,
                    c->name,
                    c->slots[i].rank,
                    (int)c->slots[i].now.pid,
                    c->slots[i].node);
}

/* Each node has reaped them all and cleaned up after them, and told each exit before;
 * or is gone. */
static void destroy_step(struct ms_head_op *op)
{
    if (!ms_list_is_empty(&op->asks))
        return;
    if (op->cluster->live == 0)
        ms_head_cluster_forget(op->head, op->cluster);
    else
        on_late(op); /* there are some that even SIGKILL does not end */
}

static void
destroy_answered(struct ms_head_op *op, struct ms_node *n, Muster__AgentToHead *answer)
{
    (void)n;
    (void)answer;
    destroy_step(op);
}

static void
destroy_refused(struct ms_head_op *op, struct ms_node *n, const struct ms_error *why)
{
    (void)n;
    (void)why; /* the workers of a node that is gone are dead by now */
    destroy_step(op);
}

static void cannot_stop(struct ms_head_op *op)
{
    ms_head_op_fail(op, -ENOMEM, "cannot stop cluster '%s'", op->cluster->name);
}

/* The others have ended. Rank 0 has what they left of the window, and at least a part of
 * it: it is the one that others meet at. */
static void stop_first(struct ms_head_op *op)
{
    int64_t least_ns = ms_head_grace(op->wanted->destroy->grace_ns) / FIRST_SHARE;
    int64_t left_ns = op->until_ns - ms_now_ns();
    int asked;

    op->on_answer = destroy_answered;
    op->on_refused = destroy_refused;
    asked = ask_stop(op,
                     op->cluster,
                     (struct ms_span){0, 1},
                     true,
                     left_ns > least_ns ? left_ns : least_ns);
    if (asked < 0)
        cannot_stop(op);
    else if (asked == 0)
        destroy_step(op);
}

static void
other_ended(struct ms_head_op *op, struct ms_node *n, Muster__AgentToHead *answer)
{
    (void)n;
    (void)answer;
    if (ms_list_is_empty(&op->asks))
        stop_first(op);
}

static void
other_refused(struct ms_head_op *op, struct ms_node *n, const struct ms_error *why)
{
    (void)why;
    other_ended(op, n, NULL);
}

/* All but rank 0, which goes last; all at once if there is no time for that, or none to
 * wait for. The number of nodes that were asked. */
static int stop_others(struct ms_head_op *op, int64_t grace_ns)
{
    struct ms_cluster *c = op->cluster;
    int asked = 0;

    op->on_answer = other_ended;
    op->on_refused = other_refused;
    if (grace_ns > 0 && ms_slot_is_live(&c->slots[0]))
        asked = ask_stop(op,
                         c,
                         (struct ms_span){1, c->count},
                         true,
                         grace_ns - grace_ns / FIRST_SHARE);
    if (asked != 0)
        return asked;
    op->on_answer = destroy_answered;
    op->on_refused = destroy_refused;
    return ms_head_cluster_ask_stop(op, c, true, grace_ns);
}

/* Its workers are all confirmed now, so that they can be named to the nodes. To all of
 * them, also the dead: what those left behind must be gone too. */
static void begin_destroy(struct ms_head_op *op)
{
    struct ms_head *h = op->head;
    int64_t grace_ns = ms_head_grace(op->wanted->destroy->grace_ns);
    int asked = -ENOMEM;

    op->cluster->state = MS_CLUSTER_STOPPING;
    op->until_ns = ms_deadline_ns(ms_now_ns(), grace_ns);
    op->on_answer = destroy_answered; /* it has begun */
    if (ms_timer_init(&op->deadline, h->loop, on_late, op) == 0)
        asked = stop_others(op, grace_ns);
    if (asked < 0)
        cannot_stop(op);
    else if (asked == 0)
        destroy_step(op);
    else
        ms_timer_set(&op->deadline, ms_deadline_ns(MS_STOP_GRACE_NS, grace_ns));
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

/* Its rank 0 neither is nor was that worker. Not all of those before may be known: in
 * doubt it is the one. */
static bool
is_another(const struct ms_head *h, const struct ms_cluster *c, uint64_t uid)
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
    const Muster__DestroyCluster *wanted = op->wanted->destroy;

    return (!wanted->own || c->driver == ms_driver_id(op->driver)) &&
           !is_another(op->head, c, wanted->uid);
}

void ms_head_destroy_run(struct ms_head_op *op)
{
    struct ms_head *h = op->head;
    const char *name = op->wanted->destroy->name;
    struct ms_error err = {0};

    if (ms_name_check(name, "cluster", &err) < 0) {
        ms_head_op_fail_with(op, &err);
        return;
    }
    op->cluster = ms_registry_find(&h->registry, name);
    if (op->cluster && !is_meant(op, op->cluster))
        op->cluster = NULL;
    if (!op->cluster) {
        ms_head_op_fail(op, -ENOENT, "there is no cluster '%s'", name);
    } else if (check_nodes(h, op->cluster, &err) < 0) {
        ms_head_op_fail_with(op, &err);
    } else {
        ms_list_add_tail(&h->destroying, &op->wait_link);
        if (op->cluster->state != MS_CLUSTER_STARTING &&
            !ms_head_is_replacing(op->cluster))
            begin_destroy(op);
    }
}

/* That has not begun. */
static struct ms_head_op *next_destroy(struct ms_head *h, const struct ms_cluster *c)
{
    ms_list_each (op, &h->destroying, struct ms_head_op, wait_link)
        if (op->cluster == c && !op->on_answer)
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
}

/* Nobody waits for it any more; else it is forgotten with the nodes' answers. */
static bool is_over(const struct ms_head *h, const struct ms_cluster *c)
{
    return (c->state == MS_CLUSTER_STOPPING && c->live == 0 && !is_awaited(h, c)) ||
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
    slot = ms_registry_exited(&h->registry, uid, &told, ms_now_ns());
    if (!slot)
        return;
    worker_gone(h, slot);
    if (slot->cluster->state != MS_CLUSTER_STARTING)
        ms_head_tell_exit(h, slot); /* else when the creation has succeeded */
    ms_helpers_exited(h, slot, &told);
    if (is_over(h, slot->cluster))
        ms_head_cluster_forget(h, slot->cluster);
    ms_drivers_worker_ended(h, uid);
    ms_head_seek_step(h);
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

    if (n->lent)
        ms_orphans_add(&h->orphans, slot->now.pid, slot->now.since_ns);
    exit.code = -1;
    exit.unreachable = n->silent;
    exit.pid = slot->now.pid;
    exit.node = slot->node;
    exit.detail = detail;
    exit.requested = h->stop_op || slot->cluster->state == MS_CLUSTER_STOPPING;
    if (slot->now.log_path)
        exit.log_path = slot->now.log_path;
    ms_registry_exited(&h->registry, slot->now.uid, &exit, ms_now_ns());
    worker_gone(h, slot);
    if (slot->cluster->state != MS_CLUSTER_STARTING)
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
    ms_head_seek_step(h);
}
