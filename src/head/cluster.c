#include "base/cleanup.h"
#include "base/name.h"
#include "cluster/copy.h"
#include "head/state.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- stopping workers ------------------------------------------------------------ */

static size_t live_uids(const struct ms_cluster *c, uint64_t *out)
{
    size_t n = 0;

    for (size_t i = 0; i < c->count; i++)
        if (ms_slot_is_live(&c->slots[i]))
            out[n++] = c->slots[i].now.uid;
    return n;
}

static int tell_stop(struct ms_head *h, uint64_t *uids, size_t count, int64_t grace_ns)
{
    Muster__StopWorkers stop = MUSTER__STOP_WORKERS__INIT;
    Muster__HeadToAgent m = MUSTER__HEAD_TO_AGENT__INIT;

    if (count == 0)
        return 0;
    stop.uids = uids;
    stop.n_uids = count;
    stop.grace_ns = grace_ns > 0 ? (uint64_t)grace_ns : 0;
    m.body_case = MUSTER__HEAD_TO_AGENT__BODY_STOP;
    m.stop = &stop;
    return ms_head_agent_tell(h, &m);
}

int ms_head_cluster_stop(struct ms_head *h, struct ms_cluster *c, int64_t grace_ns)
{
    MS_CLEANUP(ms_cleanup_free) uint64_t *uids = calloc(c->count, sizeof *uids);

    return uids ? tell_stop(h, uids, live_uids(c, uids), grace_ns) : -ENOMEM;
}

int ms_head_stop_all_workers(struct ms_head *h, int64_t grace_ns)
{
    MS_CLEANUP(ms_cleanup_free)
    uint64_t *uids = calloc(h->registry.live + 1, sizeof *uids);
    size_t n = 0;

    if (!uids)
        return -ENOMEM;
    ms_list_each (c, &h->registry.clusters, struct ms_cluster, link)
        n += live_uids(c, uids + n);
    return tell_stop(h, uids, n, grace_ns);
}

/* ---- destroy --------------------------------------------------------------------- */

void ms_head_cluster_forget(struct ms_head *h, struct ms_cluster *c)
{
    ms_list_each (op, &h->destroying, struct ms_head_op, destroy_link)
        if (op->cluster == c)
            ms_head_op_succeed(op, NULL);
    ms_registry_remove(&h->registry, c);
}

static bool is_awaited(const struct ms_head *h, const struct ms_cluster *c)
{
    ms_list_each (op, &h->destroying, struct ms_head_op, destroy_link)
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
                    op->head->node);
}

/* The agent has reaped them all and cleaned up after them; it told each exit before. */
static void destroy_answered(struct ms_head_op *op, Muster__AgentToHead *answer)
{
    (void)answer;
    if (op->cluster->live == 0)
        ms_head_cluster_forget(op->head, op->cluster);
    else
        on_late(op); /* there are some that even SIGKILL does not end */
}

/* To all of them, also the dead: what those left behind must be gone too. */
static Muster__HeadToAgent *stop_message(const struct ms_cluster *c, int64_t grace_ns)
{
    MS_CLEANUP(ms_cleanup_free) uint64_t *uids = calloc(c->count, sizeof *uids);
    Muster__StopWorkers stop = MUSTER__STOP_WORKERS__INIT;
    Muster__HeadToAgent m = MUSTER__HEAD_TO_AGENT__INIT;

    if (!uids)
        return NULL;
    for (size_t i = 0; i < c->count; i++)
        uids[i] = c->slots[i].now.uid;
    stop.uids = uids;
    stop.n_uids = c->count;
    stop.grace_ns = grace_ns > 0 ? (uint64_t)grace_ns : 0;
    m.body_case = MUSTER__HEAD_TO_AGENT__BODY_STOP;
    m.stop = &stop;
    return (Muster__HeadToAgent *)ms_proto_copy(&m.base);
}

/* Its workers are all confirmed now, so that they can be named to the agent. */
static void begin_destroy(struct ms_head_op *op)
{
    struct ms_head *h = op->head;
    struct ms_error err = {0};
    int rc;

    op->cluster->state = MS_CLUSTER_STOPPING;
    if (op->cluster->live == 0 && ms_head_agent_check(h, NULL) < 0) {
        ms_head_cluster_forget(h, op->cluster);
        return;
    }
    op->on_answer = destroy_answered;
    op->to_agent = stop_message(op->cluster, op->grace_ns);
    if (!op->to_agent || ms_timer_init(&op->deadline, h->loop, on_late, op) < 0) {
        ms_head_op_fail(op, -ENOMEM, "cannot stop cluster '%s'", op->name);
        return;
    }
    rc = ms_head_agent_ask(h, op, &err);
    if (rc < 0)
        ms_head_op_fail_with(op, &err);
    else
        ms_timer_set(&op->deadline, ms_deadline_ns(MS_STOP_GRACE_NS, op->grace_ns));
}

static void run_destroy(struct ms_head_op *op)
{
    struct ms_head *h = op->head;
    struct ms_error err = {0};

    op->cluster = ms_registry_find(&h->registry, op->name);
    if (!op->cluster) {
        ms_head_op_fail(op, -ENOENT, "there is no cluster '%s'", op->name);
    } else if (op->cluster->live > 0 && ms_head_agent_check(h, &err) < 0) {
        ms_head_op_fail_with(op, &err);
    } else {
        ms_list_add_tail(&h->destroying, &op->destroy_link);
        if (op->cluster->state != MS_CLUSTER_STARTING)
            begin_destroy(op);
    }
}

void ms_head_begin_destroys(struct ms_head *h, struct ms_cluster *c)
{
    if (c->live == 0 && is_awaited(h, c) && ms_head_agent_check(h, NULL) < 0) {
        ms_head_cluster_forget(h, c);
        return;
    }
    ms_list_each (op, &h->destroying, struct ms_head_op, destroy_link)
        if (op->cluster == c)
            begin_destroy(op);
}

struct ms_head_op *
ms_head_destroy_cluster(struct ms_head *h, const char *name, int64_t grace_ns)
{
    struct ms_head_op *op = ms_head_op_create(h);
    struct ms_error err = {0};

    if (!op)
        return ms_head_op_refused(h);
    if (ms_name_check(name, "cluster", &err) < 0) {
        ms_head_op_fail_with(op, &err);
        return op;
    }
    strcpy(op->name, name);
    op->grace_ns = grace_ns > 0 ? grace_ns : 0;
    op->run = run_destroy;
    return ms_head_op_submit(op);
}

/* ---- what happens to workers ----------------------------------------------------- */

void ms_head_tell_exit(struct ms_head *h, const struct ms_slot *slot)
{
    Muster__Exit none = MUSTER__EXIT__INIT;

    if (h->on_exit)
        h->on_exit(h->arg, slot->now.uid, slot->now.exit ? slot->now.exit : &none);
}

void ms_head_worker_exited(struct ms_head *h, uint64_t uid, const Muster__Exit *exit)
{
    struct ms_slot *slot = ms_registry_exited(&h->registry, uid, exit, ms_now_ns());

    if (!slot)
        return;
    if (slot->cluster->state != MS_CLUSTER_STARTING)
        ms_head_tell_exit(h, slot); /* else when the creation has succeeded */
    if (slot->cluster->state == MS_CLUSTER_STOPPING && slot->cluster->live == 0 &&
        !is_awaited(h, slot->cluster)) /* else with the agent's answer */
        ms_head_cluster_forget(h, slot->cluster);
    ms_head_stop_step(h);
}

/* Nobody can say how it ended; but it does, because its agent did. */
static void lose_worker(struct ms_head *h, struct ms_slot *slot, char *detail)
{
    Muster__Exit exit = MUSTER__EXIT__INIT;

    ms_orphans_add(&h->orphans, slot->now.pid, slot->now.since_ns);
    exit.code = -1;
    exit.pid = slot->now.pid;
    exit.node = h->node;
    exit.detail = detail;
    exit.requested = h->stop_op || slot->cluster->state == MS_CLUSTER_STOPPING;
    if (slot->now.log_path)
        exit.log_path = slot->now.log_path;
    ms_registry_exited(&h->registry, slot->now.uid, &exit, ms_now_ns());
    ms_head_tell_exit(h, slot);
}

void ms_head_workers_lost(struct ms_head *h, const char *why)
{
    struct ms_error detail = {0};

    ms_error_set(&detail, -EPIPE, "%.400s, and its workers with it", why);
    ms_list_each (op, &h->destroying, struct ms_head_op, destroy_link)
        ms_head_op_fail_with(op, &h->agent.gone);
    ms_list_each (c, &h->registry.clusters, struct ms_cluster, link)
        for (size_t i = 0; i < c->count; i++)
            if (ms_slot_is_live(&c->slots[i]))
                lose_worker(h, &c->slots[i], detail.text);
    ms_list_each (c, &h->registry.clusters, struct ms_cluster, link)
        if (c->state == MS_CLUSTER_STOPPING)
            ms_head_cluster_forget(h, c);
}
