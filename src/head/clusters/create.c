#include "base/cleanup.h"
#include "base/name.h"
#include "cluster/status.h"
#include "head/clusters/clusters_impl.h"
#include "head/clusters/place.h"
#include "head/drivers/driver.h"
#include "head/head_impl.h"
#include "head/nodes/node.h"
#include "head/op.h"
#include "head/status.h"
#include "head/waiting.h"

#include <errno.h>
#include <string.h>

static void create_failed(struct ms_head_op *op)
{
    struct ms_cluster *c = MS_TAKE(op->cluster);

    if (c)
        ms_head_cluster_forget(op->head, c);
}

/* ---- all or none ----------------------------------------------------------------- */

/* What had started on other nodes is stopped there: now it has failed. */
static void undo_step(struct ms_head_op *op)
{
    if (ms_list_is_empty(&op->asks))
        ms_head_op_fail_with(op, &op->why);
}

static void
undone(struct ms_head_op *op, struct ms_node *n, Muster__AgentToHead *answer)
{
    (void)n;
    (void)answer;
    undo_step(op);
}

static void
not_undone(struct ms_head_op *op, struct ms_node *n, const struct ms_error *why)
{
    (void)n;
    (void)why; /* it is gone, or has said what it could not end */
    undo_step(op);
}

static void undo(struct ms_head_op *op)
{
    op->on_answer = undone;
    op->on_refused = not_undone;
    ms_head_cluster_ask_stop(op, op->cluster, false, 0);
    undo_step(op);
}

static void finish_create(struct ms_head_op *op)
{
    struct ms_head *h = op->head;
    struct ms_cluster *c = op->cluster;
    Muster__ClusterStatus *status = ms_cluster_status(c);

    if (!status) {
        ms_error_set(&op->why, -ENOMEM, "cluster '%s': out of memory", c->name);
        undo(op);
        return;
    }
    ms_head_op_succeed(op, &status->base);
    for (size_t i = 0; i < c->count; i++)
        if (!ms_slot_is_live(&c->slots[i]))
            ms_head_tell_exit(h, &c->slots[i]);
    ms_helpers_created(h, c);
    ms_head_begin_destroys(h, c);
}

/* Every node has answered, one way or the other. */
static void create_step(struct ms_head_op *op)
{
    struct ms_cluster *c = op->cluster;

    if (!ms_list_is_empty(&op->asks))
        return;
    if (!op->why.code && c->unconfirmed > 0)
        ms_error_set(
            &op->why,
            -EPROTO,
            "cannot create cluster '%s': an agent did not answer for every worker",
            c->name);
    if (op->why.code)
        undo(op);
    else
        finish_create(op);
}

static void
create_answered(struct ms_head_op *op, struct ms_node *n, Muster__AgentToHead *answer)
{
    Muster__WorkersStarted *s = answer->body_case == MUSTER__AGENT_TO_HEAD__BODY_STARTED
                                    ? answer->started
                                    : NULL;
    int rc = 0;

    (void)n;
    for (size_t i = 0; s && i < s->n_workers && rc != -ENOMEM; i++)
        rc = ms_registry_started(&op->head->registry, s->workers[i], ms_now_ns());
    if (!op->why.code && rc == -ENOMEM)
        ms_error_set(&op->why,
                     rc,
                     "cannot create cluster '%s': out of memory",
                     op->cluster->name);
    ms_head_changed(op->head);
    create_step(op);
}

/* All nodes' reasons, as far as there is room, each once. */
static void add_reason(struct ms_error *all, const struct ms_error *why)
{
    struct ms_error before = *all;

    if (!before.code)
        *all = *why;
    else if (!strstr(before.text, why->text))
        ms_error_set(all, before.code, "%s; and %s", before.text, why->text);
}

static void
create_refused(struct ms_head_op *op, struct ms_node *n, const struct ms_error *why)
{
    (void)n;
    add_reason(&op->why, why);
    create_step(op);
}

/* ---- what is asked --------------------------------------------------------------- */

/* Whose cluster has the name already. */
static int
name_taken(struct ms_head *h, const struct ms_cluster *c, struct ms_error *err)
{
    char owner[MS_OWNER_TEXT_MAX];

    return ms_error_set(err,
                        -EEXIST,
                        "there is a cluster '%s' already%s",
                        c->name,
                        ms_driver_print_owner(h, c, owner, sizeof owner));
}

static int
check_rank(const Muster__CreateCluster *create, size_t i, struct ms_error *err)
{
    const Muster__RankStart *r = create->ranks[i];

    if (!r->spec)
        return ms_error_set(err, -EINVAL, "rank %zu has no specification", i);
    if (strcmp(r->spec->cluster, create->name) != 0)
        return ms_error_set(err, -EINVAL, "rank %zu is of another cluster", i);
    return r->node[0] ? ms_name_check(r->node, "node", err) : 0;
}

static int check(struct ms_head_op *op, struct ms_error *err)
{
    const Muster__CreateCluster *create = op->wanted->create;
    struct ms_cluster *c;
    int rc = ms_name_check(create->name, "cluster", err);

    if (rc < 0)
        return rc;
    if (create->n_ranks == 0 || create->n_ranks > MS_CLUSTER_WORKERS_MAX)
        return ms_error_set(err,
                            create->n_ranks ? -ENOSPC : -EINVAL,
                            "cluster '%s': %zu workers; from 1 to %u are possible",
                            create->name,
                            create->n_ranks,
                            MS_CLUSTER_WORKERS_MAX);
    for (size_t i = 0; i < create->n_ranks && rc == 0; i++)
        rc = check_rank(create, i, err);
    if (rc == 0)
        rc = ms_helpers_check(op->head, create, err);
    c = ms_registry_find(&op->head->registry, create->name);
    return rc == 0 && c ? name_taken(op->head, c, err) : rc;
}

/* ---- asking ---------------------------------------------------------------------- */

/* The node of each rank; -ENODEV names one that is not there. */
static int find_nodes(struct ms_head_op *op, struct ms_node **out, struct ms_error *err)
{
    const Muster__CreateCluster *create = op->wanted->create;
    struct ms_head *h = op->head;

    for (size_t i = 0; i < create->n_ranks; i++) {
        const char *name = create->ranks[i]->node;
        struct ms_node *n = i > 0 && strcmp(name, out[i - 1]->name) == 0
                                ? out[i - 1]
                                : ms_head_find_node(h, name);
        int rc = n ? ms_node_check(n, err) : -ENODEV;

        if (rc == -ENODEV)
            ms_error_set(
                err, rc, name[0] ? "there is no node %s" : "there is no node%s", name);
        if (rc < 0)
            return rc;
        out[i] = n;
    }
    return 0;
}

static int
add_cluster(struct ms_head_op *op, struct ms_node *const *nodes, struct ms_error *err)
{
    const Muster__CreateCluster *create = op->wanted->create;
    MS_CLEANUP(ms_cleanup_free)
    struct ms_slot_spec *slots = calloc(create->n_ranks, sizeof *slots);
    uint64_t device_memory = ms_place_device_memory(op->head, create->name);
    int rc;

    if (!slots)
        return ms_error_sys(err, -ENOMEM, "cluster '%s'", create->name);
    for (size_t i = 0; i < create->n_ranks; i++) {
        Muster__WorkerSpec *s = create->ranks[i]->spec;

        s->uid = ms_random_id();
        s->rank = (uint32_t)i;
        s->incarnation = 1;
        s->world_size = (uint32_t)create->n_ranks;
        s->driver = ms_driver_id(op->driver);
        s->detached = create->detached;
        s->device_memory = s->n_devices ? device_memory : 0;
        slots[i] = (struct ms_slot_spec){
            .uid = s->uid,
            .node = nodes[i]->name,
            .devices = s->devices,
            .device_count = s->n_devices,
            .memory = s->memory_limit,
            .device_memory = s->device_memory,
            .cpu_milli = s->cpu_milli,
            .helps = s->helps,
        };
    }
    rc = ms_registry_add(&op->head->registry,
                         create->name,
                         slots,
                         create->n_ranks,
                         ms_now_ns(),
                         &op->cluster,
                         err);
    if (rc == 0) {
        op->cluster->driver = ms_driver_id(op->driver);
        op->cluster->detached = create->detached;
        ms_head_meta_remove(op->head, create->name); /* of an older one */
    }
    return rc;
}

/* It has its places, and is known. */
static int
begin(struct ms_head_op *op, struct ms_node *const *nodes, struct ms_error *err)
{
    const Muster__CreateCluster *create = op->wanted->create;
    int rc =
        ms_place_begin_create(op->head, create, nodes, ms_driver_id(op->driver), err);

    if (rc < 0)
        return rc;
    rc = add_cluster(op, nodes, err);
    if (rc < 0)
        ms_place_cluster_gone(op->head, create->name);
    return rc;
}

/* A rank that runs beside another worker. */
static int ask_fork(struct ms_head_op *op,
                    struct ms_node *n,
                    Muster__WorkerSpec *spec,
                    struct ms_error *err)
{
    Muster__ForkWorker fork = MUSTER__FORK_WORKER__INIT;
    Muster__HeadToAgent m = MUSTER__HEAD_TO_AGENT__INIT;

    fork.beside = spec->beside;
    fork.spec = spec;
    m.body_case = MUSTER__HEAD_TO_AGENT__BODY_FORK;
    m.fork = &fork;
    return ms_node_ask(n, op, &m, err);
}

/* One node's ranks, which are taken out of `nodes`. */
static int ask_node(struct ms_head_op *op,
                    struct ms_node *n,
                    struct ms_node **nodes,
                    Muster__WorkerSpec **specs,
                    struct ms_error *err)
{
    const Muster__CreateCluster *create = op->wanted->create;
    Muster__StartWorkers start = MUSTER__START_WORKERS__INIT;
    Muster__HeadToAgent m = MUSTER__HEAD_TO_AGENT__INIT;
    int rc = ms_driver_introduce(op->driver, n, err);

    for (size_t i = 0; i < create->n_ranks; i++)
        if (nodes[i] == n) {
            nodes[i] = NULL;
            if (create->ranks[i]->spec->beside == 0)
                specs[start.n_workers++] = create->ranks[i]->spec;
            else if (rc == 0)
                rc = ask_fork(op, n, create->ranks[i]->spec, err);
        }
    if (rc < 0 || start.n_workers == 0)
        return rc;
    start.workers = specs;
    m.body_case = MUSTER__HEAD_TO_AGENT__BODY_START;
    m.start = &start;
    return ms_node_ask(n, op, &m, err);
}

static void ask_nodes(struct ms_head_op *op, struct ms_node **nodes)
{
    size_t count = op->wanted->create->n_ranks;
    MS_CLEANUP(ms_cleanup_free)
    Muster__WorkerSpec **specs = calloc(count, sizeof(Muster__WorkerSpec *));

    if (!specs)
        ms_error_set(&op->why, -ENOMEM, "out of memory");
    for (size_t i = 0; i < count && !op->why.code; i++)
        if (nodes[i])
            ask_node(op, nodes[i], nodes, specs, &op->why);
    create_step(op);
}

void ms_head_create_run(struct ms_head_op *op)
{
    const Muster__CreateCluster *create = op->wanted->create;
    MS_CLEANUP(ms_cleanup_free)
    struct ms_node **nodes = calloc(create->n_ranks + 1, sizeof(struct ms_node *));
    struct ms_error err = {0};
    int rc = nodes ? check(op, &err)
                   : ms_error_sys(&err, -ENOMEM, "cluster '%s'", create->name);

    op->on_answer = create_answered;
    op->on_refused = create_refused;
    op->on_failed = create_failed;
    if (rc == 0)
        rc = find_nodes(op, nodes, &err);
    if (rc == -ENODEV && ms_head_wait_for_nodes(op))
        return;
    if (rc == 0)
        rc = begin(op, nodes, &err);
    if (rc < 0)
        ms_place_not_created(op->head, create->name, ms_driver_id(op->driver));
    if (rc < 0)
        ms_head_op_fail_with(op, &err);
    else
        ask_nodes(op, nodes);
}
