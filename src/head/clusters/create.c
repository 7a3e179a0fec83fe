/* create.c - a new cluster, as one operation
 *
 *   place -> hold a port -> launch (start, helpers, steps) -> made
 *
 * Undone as a whole when any part fails, or when somebody destroys it meanwhile. A creation
 * that may wait for room stands in head->creating, in order: the first one is tried again
 * whenever something was given back.
 */
#include "base/cleanup.h"
#include "base/name.h"
#include "base/proto.h"
#include "cluster/spec.h"
#include "cluster/status.h"
#include "head/clusters/bringup.h"
#include "head/clusters/clusters_impl.h"
#include "head/clusters/helpers.h"
#include "head/clusters/objects.h"
#include "head/clusters/place.h"
#include "head/clusters/ports.h"
#include "head/drivers/driver.h"
#include "head/head_impl.h"
#include "head/kept.h"
#include "head/nodes/node.h"
#include "head/op.h"
#include "head/waiting.h"

#include <errno.h>
#include <string.h>

static const Muster__ClusterSpec *spec_of(const struct ms_head_op *op)
{
    return op->wanted->create->spec;
}

static void create_failed(struct ms_head_op *op)
{
    struct ms_cluster *c = op->cluster;

    ms_bringup_destroy(MS_TAKE(op->bringup));
    op->cluster = NULL;
    if (c)
        ms_head_cluster_forget(op->head, c);
}

/* ---- it is there ----------------------------------------------------------------- */

static int add_answers(Muster__ClusterStatus *s, const Muster__StepsDone *first)
{
    s->answers = calloc(first->n_answers + 1, sizeof(Muster__StepAnswer *));
    for (size_t i = 0; s->answers && i < first->n_answers; i++) {
        s->answers[i] = (Muster__StepAnswer *)ms_proto_copy(&first->answers[i]->base);
        if (!s->answers[i])
            return -ENOMEM;
        s->n_answers++;
    }
    return s->answers ? 0 : -ENOMEM;
}

Muster__ClusterStatus *ms_head_cluster_status(const struct ms_head *h,
                                              const struct ms_cluster *c,
                                              const Muster__StepsDone *first)
{
    Muster__ClusterStatus *s = ms_cluster_status(c);

    if (s && ms_helpers_add_status(h, c, s) == 0 &&
        (!first || add_answers(s, first) == 0))
        return s;
    if (s)
        muster__cluster_status__free_unpacked(s, NULL);
    return NULL;
}

static void launched(struct ms_head_op *op)
{
    struct ms_head *h = op->head;
    struct ms_cluster *c = op->cluster;
    Muster__ClusterStatus *s =
        op->why.code ? NULL
                     : ms_head_cluster_status(h, c, ms_bringup_first(op->bringup));

    if (!op->why.code && !s)
        ms_error_set(&op->why, -ENOMEM, "cluster '%s': out of memory", c->name);
    if (op->why.code) {
        ms_head_op_fail_with(op, &op->why);
        return;
    }
    c->is_made = true;
    op->on_failed = NULL;
    ms_head_keep_spec(h, c);
    ms_head_op_succeed(op, &s->base);
    for (size_t i = 0; i < c->count; i++)
        if (!ms_slot_is_live(&c->slots[i]))
            ms_head_tell_exit(h, &c->slots[i]);
    ms_head_begin_destroys(h, c);
}

static void launch(struct ms_head_op *op)
{
    size_t count = op->cluster->count;
    MS_CLEANUP(ms_cleanup_free) uint32_t *ranks = calloc(count + 1, sizeof *ranks);
    struct ms_bringup_options o = {ranks, count, 0, launched};

    if (!ranks) {
        ms_head_op_fail(op, -ENOMEM, "out of memory");
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        ranks[i] = i;
    ms_bringup_begin(op, &o);
}

/* ---- its port -------------------------------------------------------------------- */

static void
port_held(struct ms_head_op *op, struct ms_node *n, Muster__AgentToHead *answer)
{
    struct ms_cluster *c = op->cluster;
    struct ms_error err = {0};

    ms_timer_finish(&op->deadline);
    if (ms_head_cluster_port_take(c, n, answer, &err) < 0)
        ms_head_op_fail_with(op, &err);
    else if (ms_head_is_to_end(op->head, c))
        ms_head_op_fail(
            op, -ECANCELED, "cluster '%s' was destroyed meanwhile", c->name);
    else
        launch(op);
}

/* Processes beside others that host no engine meet nowhere. */
static bool needs_port(const Muster__ClusterSpec *spec)
{
    return !spec->beside[0] || spec->worker->start != MUSTER__START_KIND__START_COMMAND;
}

static void on_port_late(void *arg)
{
    struct ms_head_op *op = arg;

    ms_head_op_fail(op,
                    -ETIMEDOUT,
                    "cluster '%s': the agent on node %s has not held a port in time",
                    op->cluster->name,
                    op->cluster->slots[0].node);
}

static int64_t step_timeout_ns(const Muster__ClusterSpec *spec)
{
    return spec->step_timeout_ns && spec->step_timeout_ns < (uint64_t)MS_CALL_TIMEOUT_NS
               ? (int64_t)spec->step_timeout_ns
               : MS_CALL_TIMEOUT_NS;
}

static int hold_port(struct ms_head_op *op, struct ms_error *err)
{
    op->on_answer = port_held;
    op->on_refused = NULL;
    if (ms_timer_init(&op->deadline, op->head->loop, on_port_late, op) < 0)
        return ms_error_set(err, -ENOMEM, "out of memory");
    ms_timer_set(&op->deadline,
                 ms_bringup_start_ns(step_timeout_ns(op->cluster->spec)));
    return ms_head_cluster_port_ask(op, err);
}

/* ---- what its steps refer to ----------------------------------------------------- */

/* All nodes have answered: what it refers to stays, whoever ends. */
static void objects_step(struct ms_head_op *op)
{
    struct ms_error err = {0};

    if (!ms_list_is_empty(&op->asks))
        return;
    if (!needs_port(op->cluster->spec))
        launch(op);
    else if (hold_port(op, &err) < 0)
        ms_head_op_fail_with(op, &err);
}

static void keep_objects(struct ms_head_op *op)
{
    const Muster__ClusterSpec *spec = op->cluster->spec;

    ms_head_op_gather(op, objects_step);
    for (size_t i = 0; i < spec->n_steps; i++)
        ms_objects_ask_keep(op, op->cluster, spec->steps[i]);
    objects_step(op);
}

/* ---- it is known ----------------------------------------------------------------- */

/* A copy that has what a new incarnation needs of the driver too. */
static Muster__ClusterSpec *keep_spec(const struct ms_head_op *op)
{
    const struct ms_driver *d = op->driver;
    Muster__ClusterSpec like = *spec_of(op);

    like.context = d && d->hello ? d->hello->context : NULL;
    return (Muster__ClusterSpec *)ms_proto_copy(&like.base);
}

static int
add(struct ms_head_op *op, Muster__ClusterPlaced *placed, struct ms_error *err)
{
    const Muster__ClusterSpec *spec = spec_of(op);
    size_t count = placed->n_ranks;
    MS_CLEANUP(ms_cleanup_free)
    struct ms_slot_spec *slots = calloc(count + 1, sizeof *slots);
    int rc = slots ? 0 : -ENOMEM;

    for (size_t i = 0; rc == 0 && i < count; i++) {
        const Muster__Piece *p = placed->ranks[i]->pieces[0];

        slots[i] = (struct ms_slot_spec){.uid = ms_random_id(),
                                         .node = p->node,
                                         .devices = p->devices,
                                         .device_count = p->n_devices,
                                         .memory = spec->worker->memory_limit,
                                         .cpu_milli = spec->worker->cpu_milli};
        if (spec->place && p->n_devices)
            slots[i].device_memory = spec->place->device_memory;
    }
    if (rc < 0)
        return ms_error_sys(err, rc, "cluster '%s'", spec->name);
    return ms_registry_add(
        &op->head->registry, spec->name, slots, count, ms_now_ns(), &op->cluster, err);
}

/* Takes the placement, also on failure. */
static int
begin(struct ms_head_op *op, Muster__ClusterPlaced *placed, struct ms_error *err)
{
    int rc = add(op, placed, err);
    struct ms_cluster *c = op->cluster;

    if (rc < 0) {
        muster__cluster_placed__free_unpacked(placed, NULL);
        if (!spec_of(op)->beside[0])
            ms_place_cluster_gone(op->head, spec_of(op)->name);
        return rc;
    }
    op->on_failed = create_failed;
    c->placed = placed;
    c->spec = keep_spec(op);
    c->driver = ms_driver_id(op->driver);
    c->detached = spec_of(op)->detached;
    c->is_busy = true;
    if (!c->spec)
        return ms_error_sys(err, -ENOMEM, "cluster '%s'", c->name);
    ms_head_changed(op->head);
    keep_objects(op);
    return 0;
}

/* ---- where ----------------------------------------------------------------------- */

static Muster__ClusterPlaced *no_memory(struct ms_error *err)
{
    ms_error_set(err, -ENOMEM, "out of memory");
    return NULL;
}

/* Where the ranks of the other cluster are. */
static Muster__ClusterPlaced *place_beside(struct ms_head_op *op, struct ms_error *err)
{
    const struct ms_cluster *c =
        ms_registry_find(&op->head->registry, spec_of(op)->beside);
    MS_CLEANUP(ms_cleanup_free) Muster__Piece *pieces = NULL;
    MS_CLEANUP(ms_cleanup_free) Muster__Piece **pointers = NULL;
    MS_CLEANUP(ms_cleanup_free) Muster__RankPlace *ranks = NULL;
    MS_CLEANUP(ms_cleanup_free) Muster__RankPlace **list = NULL;
    Muster__ClusterPlaced all = MUSTER__CLUSTER_PLACED__INIT, *copy;

    if (!c) {
        ms_error_set(err, -ENOENT, "there is no cluster '%s'", spec_of(op)->beside);
        return NULL;
    }
    pieces = calloc(c->count, sizeof *pieces);
    pointers = calloc(c->count, sizeof(Muster__Piece *));
    ranks = calloc(c->count, sizeof *ranks);
    list = calloc(c->count, sizeof(Muster__RankPlace *));
    for (size_t i = 0; pieces && pointers && ranks && list && i < c->count; i++) {
        muster__piece__init(&pieces[i]);
        muster__rank_place__init(&ranks[i]);
        pieces[i].node = c->slots[i].node;
        pieces[i].devices = c->slots[i].devices;
        pieces[i].n_devices = c->slots[i].device_count;
        pointers[i] = &pieces[i];
        ranks[i].pieces = &pointers[i];
        ranks[i].n_pieces = 1;
        list[all.n_ranks++] = &ranks[i];
    }
    all.ranks = list;
    copy = all.n_ranks ? (Muster__ClusterPlaced *)ms_proto_copy(&all.base) : NULL;
    return copy ? copy : no_memory(err);
}

static int place(struct ms_head_op *op,
                 Muster__ClusterPlaced **out,
                 struct ms_buf *table,
                 struct ms_error *err)
{
    const Muster__ClusterSpec *spec = spec_of(op);
    struct ms_place_claim what = {.request = spec->place,
                                  .cluster = spec->name,
                                  .driver = ms_driver_id(op->driver)};

    if (!spec->beside[0])
        return ms_place_claim(op->head, &what, out, table, err);
    *out = place_beside(op, err);
    return *out ? 0 : err->code;
}

/* ---- waiting for room ------------------------------------------------------------ */

static void try_place(struct ms_head_op *op);
static int check(struct ms_head_op *op, struct ms_error *err);

static void on_late(void *arg)
{
    struct ms_head_op *op = arg;
    struct ms_head *h = op->head;

    ms_list_remove(&op->wait_link);
    ms_head_op_fail_with(op, &op->why);
    ms_head_changed(h);
    ms_creations_step(h); /* there may be room for those behind it */
}

/* True: it waits, with the reason in op->why and op->table. */
static bool
wait_for_room(struct ms_head_op *op, const struct ms_error *err, struct ms_buf *table)
{
    const Muster__CreateCluster *m = op->wanted->create;
    int64_t wait_ns = m->wait_ns < INT64_MAX ? (int64_t)m->wait_ns : INT64_MAX;

    if (wait_ns == 0 || err->code != -ENOSPC || spec_of(op)->beside[0] ||
        !ms_place_is_possible(op->head, spec_of(op)))
        return false;
    op->why = *err;
    free(op->table);
    op->table = table->len && ms_buf_str(table) ? strdup(ms_buf_str(table)) : NULL;
    if (!ms_list_is_empty(&op->wait_link))
        return true; /* it waits already */
    if (ms_timer_init(&op->deadline, op->head->loop, on_late, op) < 0)
        return false;
    ms_timer_set(&op->deadline, wait_ns);
    ms_list_add_tail(&op->head->creating, &op->wait_link);
    ms_head_changed(op->head);
    return true;
}

/* Others wait already: it goes behind them, also if there is room for it. */
static bool wait_behind(struct ms_head_op *op)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf none = {0};
    const struct ms_head_op *first =
        ms_list_first(&op->head->creating, struct ms_head_op, wait_link);
    struct ms_error err = {0};

    if (check(op, &err) < 0)
        return false;
    ms_error_set(&err,
                 -ENOSPC,
                 "cluster '%s' waits behind cluster '%s'",
                 spec_of(op)->name,
                 spec_of(first)->name);
    return wait_for_room(op, &err, &none);
}

void ms_creations_step(struct ms_head *h)
{
    struct ms_head_op *first = NULL, *op;

    while (!ms_list_is_empty(&h->creating)) {
        op = ms_list_first(&h->creating, struct ms_head_op, wait_link);
        if (op == first)
            return; /* it waits on, and so do those behind it */
        first = op;
        try_place(op);
    }
}

bool ms_head_give_up_waiting(struct ms_head *h,
                             const char *cluster,
                             const struct ms_driver *d)
{
    ms_list_each (op, &h->creating, struct ms_head_op, wait_link)
        if (op->driver == d && strcmp(spec_of(op)->name, cluster) == 0) {
            ms_head_op_fail(
                op, -ECANCELED, "cluster '%s' was destroyed meanwhile", cluster);
            ms_head_changed(h);
            ms_creations_step(h);
            return true;
        }
    return false;
}

void ms_creations_fail(struct ms_head *h, const struct ms_driver *d)
{
    ms_list_each (op, &h->creating, struct ms_head_op, wait_link)
        if (op->driver == d)
            ms_head_op_fail(op, -ESHUTDOWN, "the driver has ended");
}

static Muster__ClusterStatus *waiting_status(const struct ms_head_op *op)
{
    Muster__ClusterStatus s = MUSTER__CLUSTER_STATUS__INIT;

    s.name = spec_of(op)->name;
    s.driver = ms_driver_id(op->driver);
    s.detached = spec_of(op)->detached;
    s.waits_for = (char *)(uintptr_t)op->why.text;
    return (Muster__ClusterStatus *)ms_proto_copy(&s.base);
}

bool ms_creations_add_status(const struct ms_head *h, Muster__Status *s)
{
    size_t more = 0;
    Muster__ClusterStatus **all;

    ms_list_each (op, &h->creating, struct ms_head_op, wait_link)
        more++;
    if (more == 0)
        return true;
    all =
        realloc(s->clusters, (s->n_clusters + more) * sizeof(Muster__ClusterStatus *));
    if (!all)
        return false;
    s->clusters = all;
    ms_list_each (op, &h->creating, struct ms_head_op, wait_link) {
        all[s->n_clusters] = waiting_status(op);
        if (!all[s->n_clusters])
            return false;
        s->n_clusters++;
    }
    return true;
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

static int check(struct ms_head_op *op, struct ms_error *err)
{
    const Muster__ClusterSpec *spec = spec_of(op);
    const struct ms_node *any = ms_head_find_node(op->head, "");
    const struct ms_cluster *c;
    int rc;

    if (!spec)
        return ms_error_set(err, -EINVAL, "a cluster without a specification");
    rc = ms_cluster_spec_check(spec, err);
    if (rc == 0 && any) /* the only one may be gone, and says why */
        rc = ms_node_check(any, err);
    c = rc == 0 ? ms_registry_find(&op->head->registry, spec->name) : NULL;
    return c ? name_taken(op->head, c, err) : rc;
}

static void try_place(struct ms_head_op *op)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf table = {0};
    Muster__ClusterPlaced *placed = NULL;
    struct ms_error err = {0};
    int rc = check(op, &err);

    if (rc == 0)
        rc = place(op, &placed, &table, &err);
    if (rc < 0 && wait_for_room(op, &err, &table))
        return;
    ms_timer_finish(&op->deadline);
    ms_list_remove(&op->wait_link);
    op->why = (struct ms_error){0};
    free(op->table);
    op->table = NULL;
    if (rc == 0)
        rc = begin(op, placed, &err);
    if (rc < 0)
        ms_place_fail(op, &err, &table);
}

void ms_head_create_run(struct ms_head_op *op)
{
    if (op->driver && ms_head_wait_for_nodes(op))
        return;
    if (op->wanted->create->wait_ns && !ms_list_is_empty(&op->head->creating) &&
        wait_behind(op))
        return;
    try_place(op);
}
