/* replace.c - a new incarnation of a rank, in the place of the old one
 *
 *   ending the old one -> starting the new one -> (its driver makes its engines) -> open
 *
 * The first two are one operation. The slot has the new uid from the moment at which the
 * old one is known to have ended, so that no word about the old one can reach the new.
 * A cluster that is to be destroyed meanwhile waits until the operation has ended.
 */
#include "base/cleanup.h"
#include "base/name.h"
#include "cluster/status.h"
#include "head/clusters/clusters_impl.h"
#include "head/drivers/driver.h"
#include "head/head_impl.h"
#include "head/nodes/node.h"
#include "head/op.h"
#include "head/request.h"
#include "head/status.h"
#include "head/waiting.h"

#include <errno.h>
#include <string.h>

static struct ms_slot *slot_of(const struct ms_head_op *op)
{
    return &op->cluster->slots[op->wanted->replace->rank];
}

bool ms_head_is_replacing(const struct ms_cluster *c)
{
    for (size_t i = 0; i < c->count; i++)
        if (c->slots[i].is_replaced)
            return true;
    return false;
}

/* The operation is over, this way or that: who has waited for it goes on. */
static void finish(struct ms_head_op *op, Muster__WorkerStatus *status)
{
    struct ms_head *h = op->head;
    struct ms_cluster *c = MS_TAKE(op->cluster);

    c->slots[op->wanted->replace->rank].is_replaced = false;
    op->on_failed = NULL;
    if (op->why.code)
        ms_head_op_fail_with(op, &op->why);
    else
        ms_head_op_succeed(op, status ? &status->base : NULL);
    ms_head_seek_step(h);
    ms_head_begin_destroys(h, c);
}

/* The head ends, or the driver. */
static void on_failed(struct ms_head_op *op)
{
    if (op->cluster)
        slot_of(op)->is_replaced = false;
    op->cluster = NULL;
}

/* ---- the new one ----------------------------------------------------------------- */

/* It never was: its slot is empty as after any death. */
static void mark_failed(struct ms_head_op *op)
{
    struct ms_slot *slot = slot_of(op);
    Muster__Exit exit = MUSTER__EXIT__INIT;

    exit.code = -1;
    exit.node = slot->node;
    exit.detail = op->why.text;
    ms_registry_exited(&op->head->registry, slot->now.uid, &exit, ms_now_ns());
}

static void
not_started(struct ms_head_op *op, struct ms_node *n, const struct ms_error *why)
{
    (void)n;
    op->why = *why;
    mark_failed(op);
    finish(op, NULL);
}

static void
started(struct ms_head_op *op, struct ms_node *n, Muster__AgentToHead *answer)
{
    struct ms_slot *slot = slot_of(op);
    Muster__WorkersStarted *s = answer->body_case == MUSTER__AGENT_TO_HEAD__BODY_STARTED
                                    ? answer->started
                                    : NULL;
    Muster__WorkerStatus *status = NULL;
    int rc = -EPROTO;

    if (s && s->n_workers == 1 && s->workers[0]->uid == slot->now.uid)
        rc = ms_registry_started(&op->head->registry, s->workers[0], ms_now_ns());
    if (rc == 0) {
        status = ms_slot_status(slot);
        rc = status ? 0 : -ENOMEM;
    }
    if (rc < 0) {
        ms_error_sys(&op->why, rc, "%s/%u was started", op->cluster->name, slot->rank);
        ms_head_tell_stop(n, slot->now.uid);
        mark_failed(op);
    }
    ms_head_changed(op->head);
    finish(op, status);
}

/* A driver that has gone cannot say how its workers are started: then as whoever asks. */
static struct ms_driver *context_driver(const struct ms_head_op *op)
{
    struct ms_driver *owner = ms_driver_find(op->head, op->cluster->driver);

    return owner && owner->hello && owner->state != MS_DRIVER_ENDING ? owner
                                                                     : op->driver;
}

static void fill_spec(struct ms_head_op *op, Muster__WorkerSpec *spec)
{
    const struct ms_slot *slot = slot_of(op);

    spec->uid = slot->now.uid;
    spec->rank = slot->rank;
    spec->incarnation = slot->now.incarnation;
    spec->world_size = (uint32_t)op->cluster->count;
    spec->detached = op->cluster->detached;
    spec->driver = ms_driver_id(context_driver(op));
    spec->device_memory = slot->device_memory;
}

static int ask_start(struct ms_head_op *op, struct ms_node *n, struct ms_error *err)
{
    Muster__WorkerSpec *spec = op->wanted->replace->start;
    Muster__StartWorkers start = MUSTER__START_WORKERS__INIT;
    Muster__ForkWorker fork = MUSTER__FORK_WORKER__INIT;
    Muster__HeadToAgent m = MUSTER__HEAD_TO_AGENT__INIT;

    op->on_answer = started;
    op->on_refused = not_started;
    if (spec->beside) {
        fork.beside = spec->beside;
        fork.spec = spec;
        m.body_case = MUSTER__HEAD_TO_AGENT__BODY_FORK;
        m.fork = &fork;
    } else {
        start.workers = &spec;
        start.n_workers = 1;
        m.body_case = MUSTER__HEAD_TO_AGENT__BODY_START;
        m.start = &start;
    }
    return ms_node_ask(n, op, &m, err);
}

static void begin_start(struct ms_head_op *op)
{
    struct ms_slot *slot = slot_of(op);
    struct ms_node *n = ms_node_find(op->head, slot->node);
    int rc = n ? ms_node_check(n, &op->why)
               : ms_error_set(&op->why, -ENODEV, "node %s is gone", slot->node);

    if (rc == 0) {
        rc = ms_slot_renew(&op->head->registry, slot, ms_random_id(), ms_now_ns());
        if (rc < 0)
            ms_error_sys(&op->why, rc, "%s/%u", op->cluster->name, slot->rank);
    }
    if (rc < 0) {
        finish(op, NULL);
        return;
    }
    slot->now.opener = ms_driver_id(op->driver);
    fill_spec(op, op->wanted->replace->start);
    rc = ms_driver_introduce(context_driver(op), n, &op->why);
    if (rc == 0)
        rc = ask_start(op, n, &op->why);
    if (rc < 0) {
        mark_failed(op);
        finish(op, NULL);
    }
}

/* ---- the old one ----------------------------------------------------------------- */

static void old_is_gone(struct ms_head_op *op)
{
    const struct ms_slot *slot = slot_of(op);

    if (ms_slot_is_live(slot)) {
        ms_error_set(&op->why,
                     -ETIMEDOUT,
                     "%s/%u (pid %d on node %s) does not end",
                     op->cluster->name,
                     slot->rank,
                     (int)slot->now.pid,
                     slot->node);
        finish(op, NULL);
    } else if (op->wanted->replace->start) {
        begin_start(op);
    } else {
        finish(op, NULL);
    }
}

static void
stopped(struct ms_head_op *op, struct ms_node *n, Muster__AgentToHead *answer)
{
    (void)n;
    (void)answer;
    old_is_gone(op);
}

static void
not_stopped(struct ms_head_op *op, struct ms_node *n, const struct ms_error *why)
{
    (void)n;
    (void)why; /* its node is gone, and it with it, or it lives: that is seen */
    old_is_gone(op);
}

/* Also of a dead one: what it left behind must be gone too. */
static void begin_stop(struct ms_head_op *op)
{
    struct ms_slot *slot = slot_of(op);
    struct ms_node *n = ms_node_find(op->head, slot->node);
    Muster__StopWorkers stop = MUSTER__STOP_WORKERS__INIT;
    Muster__HeadToAgent m = MUSTER__HEAD_TO_AGENT__INIT;

    slot->is_replaced = true;
    op->on_answer = stopped;
    op->on_refused = not_stopped;
    op->on_failed = on_failed;
    stop.uids = &slot->now.uid;
    stop.n_uids = 1;
    stop.grace_ns = (uint64_t)ms_head_grace(op->wanted->replace->grace_ns);
    m.body_case = MUSTER__HEAD_TO_AGENT__BODY_STOP;
    m.stop = &stop;
    if (!n || !slot->now.address || ms_node_ask(n, op, &m, NULL) < 0)
        old_is_gone(op);
}

/* ---- what is asked --------------------------------------------------------------- */

static int check(struct ms_head_op *op, struct ms_error *err)
{
    const Muster__ReplaceWorker *r = op->wanted->replace;
    const struct ms_cluster *c = ms_registry_find(&op->head->registry, r->cluster);
    const struct ms_slot *slot;

    if (!c || c->state == MS_CLUSTER_STOPPING)
        return ms_error_set(err, -ENOENT, "there is no cluster '%.64s'", r->cluster);
    if (r->rank >= c->count)
        return ms_error_set(
            err, -EINVAL, "%s has no rank %u: it has %zu", c->name, r->rank, c->count);
    if (r->start && strcmp(r->start->cluster, c->name) != 0)
        return ms_error_set(
            err, -EINVAL, "what is to be started is of another cluster");
    slot = &c->slots[r->rank];
    if (!slot->now.uid)
        return ms_error_set(
            err, -EAGAIN, "nobody has reported %s/%u yet", c->name, r->rank);
    if (r->only && r->only != slot->now.uid)
        return ms_error_set(
            err, -ESTALE, "%s/%u was replaced meanwhile", c->name, r->rank);
    if (c->state == MS_CLUSTER_STARTING || slot->is_replaced)
        return ms_error_set(
            err, -EBUSY, "%s/%u is being started by another", c->name, r->rank);
    return 0;
}

void ms_head_replace_run(struct ms_head_op *op)
{
    struct ms_error err = {0};
    int rc = check(op, &err);

    if ((rc == -ENOENT || rc == -EAGAIN) && ms_head_wait_for_nodes(op))
        return;
    if (rc < 0) {
        ms_head_op_fail_with(op, &err);
        return;
    }
    op->cluster = ms_registry_find(&op->head->registry, op->wanted->replace->cluster);
    begin_stop(op);
}
