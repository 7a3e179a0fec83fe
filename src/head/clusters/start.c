/* start.c - what nodes are asked to start the processes of a cluster */
#include "base/cleanup.h"
#include "base/limits.h"
#include "base/name.h"
#include "base/proto.h"
#include "cluster/spec.h"
#include "head/clusters/clusters_impl.h"
#include "head/drivers/driver.h"
#include "head/head_impl.h"
#include "head/nodes/node.h"
#include "head/ops/op.h"

#include <errno.h>
#include <string.h>

/* ---- whose context --------------------------------------------------------------- */

/* The cluster's driver, if it can say how its workers are started. */
static struct ms_driver *living_driver(const struct ms_head_op *op)
{
    struct ms_driver *d = ms_driver_find(op->head, op->cluster->driver);

    return d && d->hello && d->state != MS_DRIVER_ENDING ? d : NULL;
}

/* Its driver is gone: the spec knows its context. */
static bool is_orphaned(const struct ms_head_op *op)
{
    return op->cluster->driver && !living_driver(op);
}

static int introduce(struct ms_head_op *op, struct ms_node *n)
{
    if (!is_orphaned(op))
        return ms_driver_introduce(living_driver(op), n, &op->error);
    if (op->cluster->spec && op->cluster->spec->context) {
        int rc = ms_node_tell(
            n, MUSTER__HEAD_TO_AGENT__BODY_DRIVER, op->cluster->spec->context);

        return rc < 0
                   ? ms_error_sys(&op->error, rc, "node %s cannot be reached", n->name)
                   : 0;
    }
    return ms_error_set(&op->error,
                        -ENOENT,
                        "cluster '%s': its driver is gone, and nobody knows how its "
                        "workers are started",
                        op->cluster->name);
}

/* ---- one node -------------------------------------------------------------------- */

void ms_start_fill(const struct ms_head_op *op,
                   const struct ms_slot *slot,
                   Muster__WorkerSpec *spec)
{
    spec->uid = slot->now.uid;
    spec->incarnation = slot->now.incarnation;
    spec->driver = op->cluster->driver;
    spec->device_memory = slot->device_memory;
}

int ms_start_ask_node(struct ms_head_op *op,
                      struct ms_node *n,
                      Muster__StartWorkers *what)
{
    int rc = introduce(op, n);

    if (rc == 0)
        rc = ms_node_ask(n, op, MUSTER__HEAD_TO_AGENT__BODY_START, what, &op->error);
    if (rc == 0 && is_orphaned(op)) /* a node forgets a context when nothing uses it */
        ms_node_tell_forget(n, op->cluster->driver);
    return rc;
}

/* A rank that runs beside another worker, whose context it has. */
static int ask_fork(struct ms_head_op *op, struct ms_node *n, Muster__WorkerSpec *spec)
{
    Muster__ForkWorker fork = MUSTER__FORK_WORKER__INIT;

    fork.beside = spec->beside;
    fork.spec = spec;
    return ms_node_ask(n, op, MUSTER__HEAD_TO_AGENT__BODY_FORK, &fork, &op->error);
}

/* ---- the plan -------------------------------------------------------------------- */

static const Muster__NodeShape *shape_of(void *arg, const char *node)
{
    const struct ms_node *n = ms_node_find(arg, node);

    return n && n->ready ? n->ready->shape : NULL;
}

int ms_start_plan(const struct ms_head_op *op, struct ms_plan *out)
{
    const struct ms_cluster *c = op->cluster;

    *out = (struct ms_plan){.spec = c->spec,
                            .placed = c->placed,
                            .master_host = c->master ? c->master->host : "",
                            .master_port = c->master ? c->master->port : 0,
                            .shape_of = shape_of,
                            .arg = op->head};
    return ms_plan_init(out);
}

/* The worker beside which a rank is to run; 0: it has ended. */
static uint64_t find_beside(const struct ms_head_op *op, uint32_t rank)
{
    const struct ms_cluster *c =
        ms_registry_find(&op->head->registry, op->cluster->spec->beside);

    if (!c || rank >= c->count || !ms_slot_is_live(&c->slots[rank]) ||
        c->slots[rank].is_changing)
        return 0;
    return c->slots[rank].now.uid;
}

/* Its steps travel with its start, if they do not have to wait for its helpers. Without
 * memory for it they are sent later. */
static void
add_steps(const struct ms_cluster *c, struct ms_slot *s, Muster__WorkerSpec *spec)
{
    Muster__RunSteps *run;

    if (c->spec->n_steps == 0 || ms_helpers_are_needed(c, s->rank))
        return;
    run = ms_cluster_spec_run(c->spec, s->rank, 0, s->now.uid, ms_random_id());
    if (!run || protobuf_c_message_get_packed_size(&run->base) >
                    MS_START_STEPS_MAX / c->count) {
        muster__run_steps__free_unpacked(run, NULL);
        return;
    }
    spec->steps = run;
    s->start_run = run->run;
    s->steps_sent = c->spec->n_steps;
}

static Muster__WorkerSpec *
plan_rank(struct ms_head_op *op, const struct ms_plan *plan, uint32_t rank)
{
    const struct ms_cluster *c = op->cluster;
    uint64_t beside;
    Muster__WorkerSpec *spec;

    if (!c->spec->beside[0]) {
        spec = ms_plan_worker(plan, rank, &op->error);
    } else {
        beside = find_beside(op, rank);
        spec = beside ? ms_plan_beside(plan, rank, beside, &op->error) : NULL;
        if (!beside)
            ms_error_set(
                &op->error,
                -ESRCH,
                "%s/%u: the worker %s/%u, beside which it is to run, has ended",
                c->name,
                rank,
                c->spec->beside,
                rank);
    }
    if (spec) {
        ms_start_fill(op, &c->slots[rank], spec);
        add_steps(c, &c->slots[rank], spec);
    }
    return spec;
}

/* ---- all of them ----------------------------------------------------------------- */

struct ms_slot_spec *ms_start_slots(const Muster__ClusterSpec *spec,
                                    const Muster__ClusterPlaced *placed)
{
    struct ms_slot_spec *slots = calloc(placed->n_ranks + 1, sizeof *slots);

    for (size_t i = 0; slots && i < placed->n_ranks; i++) {
        const Muster__Piece *p = placed->ranks[i]->pieces[0];

        slots[i] = (struct ms_slot_spec){
            .uid = ms_random_id(),
            .node = p->node,
            .devices = p->devices,
            .device_count = p->n_devices,
            .memory = spec->worker->memory_limit,
            .cpu_milli = spec->worker->cpu_milli,
            .device_memory =
                spec->place && p->n_devices ? spec->place->device_memory : 0};
    }
    return slots;
}

/* What the changing ranks are started with, by rank; NULL for the others. */
static int plan_all(struct ms_head_op *op, Muster__StartWorkers *all)
{
    struct ms_plan plan = {0};
    int rc = ms_start_plan(op, &plan);

    if (rc < 0)
        ms_error_set(&op->error, rc, "cluster '%s': out of memory", op->cluster->name);
    for (struct ms_slot *s = NULL;
         rc == 0 && (s = ms_cluster_next_changing(op->cluster, s));) {
        all->workers[s->rank] = plan_rank(op, &plan, s->rank);
        rc = all->workers[s->rank] ? 0 : -EINVAL;
    }
    ms_plan_finish(&plan);
    return rc;
}

static struct ms_node *node_of(struct ms_head_op *op, const struct ms_slot *s)
{
    struct ms_node *n = ms_node_find(op->head, s->node);

    if (!n)
        ms_error_set(&op->error, -ENODEV, "there is no node %s", s->node);
    return n && ms_node_check(n, &op->error) == 0 ? n : NULL;
}

/* Room for all ranks of the cluster; owned. */
static Muster__StartWorkers *create_start(const struct ms_cluster *c)
{
    Muster__StartWorkers *m =
        (Muster__StartWorkers *)ms_proto_create(&muster__start_workers__descriptor);

    if (m)
        m->workers = calloc(c->count + 1, sizeof(Muster__WorkerSpec *));
    return m;
}

/* Those of this node; they are taken out of the message. */
static int ask_some(struct ms_head_op *op, struct ms_node *n, Muster__StartWorkers *all)
{
    Muster__StartWorkers *some = create_start(op->cluster);
    int rc = some && some->workers ? 0 : -ENOMEM;

    for (size_t i = 0; rc == 0 && i < all->n_workers; i++)
        if (all->workers[i] && strcmp(op->cluster->slots[i].node, n->name) == 0)
            some->workers[some->n_workers++] = MS_TAKE(all->workers[i]);
    if (rc == 0)
        rc = ms_start_ask_node(op, n, some);
    if (rc == -ENOMEM)
        ms_error_set(&op->error, rc, "cluster '%s': out of memory", op->cluster->name);
    muster__start_workers__free_unpacked(some, NULL);
    return rc;
}

int ms_start_ask(struct ms_head_op *op)
{
    const struct ms_cluster *c = op->cluster;
    Muster__StartWorkers *all = create_start(c);
    int rc =
        all && all->workers ? 0 : ms_error_set(&op->error, -ENOMEM, "out of memory");

    if (rc == 0) {
        all->n_workers = c->count;
        rc = plan_all(op, all);
    }
    for (size_t i = 0; rc == 0 && i < c->count; i++) {
        struct ms_node *n = all->workers[i] ? node_of(op, &c->slots[i]) : NULL;

        if (all->workers[i] && !n)
            rc = -ENODEV;
        else if (n)
            rc = c->spec->beside[0] ? ask_fork(op, n, all->workers[i])
                                    : ask_some(op, n, all);
    }
    muster__start_workers__free_unpacked(all, NULL);
    return rc;
}
