/* create.c - a new cluster, as one operation
 *
 * It is placed, then made as cluster/change_plan.h says. Undone as a whole when any part fails, or when it is destroyed meanwhile. A creation
 * that may wait for room stands in head->creating, in order: the first one is tried again
 * whenever something was given back.
 */
#include "base/cleanup.h"
#include "base/proto.h"
#include "cluster/spec.h"
#include "head/clusters/clusters_impl.h"
#include "head/drivers/driver.h"
#include "head/head_impl.h"
#include "head/nodes/node.h"
#include "head/ops/op.h"
#include "head/ops/request.h"
#include "head/place/place.h"
#include "head/state/persist.h"

#include <errno.h>
#include <string.h>

static const Muster__ClusterSpec *spec_of(const struct ms_head_op *op)
{
    return op->request->create->spec;
}

/* ---- it is known, and placed ----------------------------------------------------- */

/* What it refers to stays, even if its driver ends. */
int ms_create_keep(struct ms_head_op *op)
{
    const Muster__ClusterSpec *spec = op->cluster->spec;

    ms_head_op_gather(op, ms_change_go_on);
    for (size_t i = 0; i < spec->n_steps; i++)
        ms_objects_ask_keep(op, op->cluster, spec->steps[i]);
    ms_head_op_gather_end(op);
    return 0;
}

/* The head itself makes clusters for jobs: their spec has the context, under the job's id. */
static bool is_of_job(const struct ms_head_op *op)
{
    return op->asker == MS_ASKER_PROCESS && !op->driver && op->head->jobs &&
           spec_of(op)->context;
}

/* A copy that has what a new incarnation needs of the driver too. */
static Muster__ClusterSpec *keep_spec(const struct ms_head_op *op)
{
    const struct ms_driver *d = op->driver;
    Muster__ClusterSpec like = *spec_of(op);

    if (!is_of_job(op))
        like.context = d && d->hello ? d->hello->context : NULL;
    return (Muster__ClusterSpec *)ms_proto_copy(&like.base);
}

static int add(struct ms_head_op *op, Muster__ClusterPlaced *placed)
{
    MS_CLEANUP(ms_cleanup_free)
    struct ms_slot_spec *slots = ms_start_slots(spec_of(op), placed);

    if (!slots)
        return ms_error_sys(&op->error, -ENOMEM, "cluster '%s'", spec_of(op)->name);
    return ms_registry_add(&op->head->registry,
                           spec_of(op)->name,
                           slots,
                           placed->n_ranks,
                           &op->cluster,
                           &op->error);
}

/* Takes the placement, also on failure. */
static int begin(struct ms_head_op *op, Muster__ClusterPlaced *placed)
{
    int rc = add(op, placed);
    struct ms_cluster *c = op->cluster;

    if (rc < 0) {
        muster__cluster_placed__free_unpacked(placed, NULL);
        if (!spec_of(op)->beside[0])
            ms_place_cluster_gone(op->head, spec_of(op)->name);
        return rc;
    }
    ms_change_begin(op, c);
    c->placed = placed;
    c->spec = keep_spec(op);
    c->driver = is_of_job(op) ? spec_of(op)->context->driver : ms_driver_id(op->driver);
    c->detached = spec_of(op)->detached;
    rc = c->spec ? ms_change_plan_create(&op->plan, c->spec, (uint32_t)c->count)
                 : -ENOMEM;
    if (rc < 0)
        return ms_error_sys(&op->error, rc, "cluster '%s'", c->name);
    ms_head_changed(op->head);
    ms_change_go_on(op);
    return 0;
}

/* ---- where ----------------------------------------------------------------------- */

static Muster__RankPlace *place_at(const struct ms_slot *slot)
{
    Muster__Piece piece = MUSTER__PIECE__INIT, *pieces[] = {&piece};
    Muster__RankPlace place = MUSTER__RANK_PLACE__INIT;

    piece.node = ms_field_text(slot->node);
    piece.devices = slot->devices;
    piece.n_devices = slot->device_count;
    place.pieces = pieces;
    place.n_pieces = 1;
    return (Muster__RankPlace *)ms_proto_copy(&place.base);
}

/* Where the ranks of the other cluster are. */
static int place_beside(struct ms_head_op *op, Muster__ClusterPlaced **out)
{
    const struct ms_cluster *c = ms_head_find_cluster(op, spec_of(op)->beside);
    Muster__ClusterPlaced *all;
    bool is_good;

    if (!c)
        return -ENOENT;
    all = (Muster__ClusterPlaced *)ms_proto_create(&muster__cluster_placed__descriptor);
    is_good = all;
    for (size_t i = 0; is_good && i < c->count; i++)
        is_good = ms_proto_append(&all->ranks, &all->n_ranks, place_at(&c->slots[i]));
    if (is_good) {
        *out = all;
        return 0;
    }
    muster__cluster_placed__free_unpacked(all, NULL);
    return -ENOMEM;
}

static int place(struct ms_head_op *op, Muster__ClusterPlaced **out)
{
    const Muster__ClusterSpec *spec = spec_of(op);
    struct ms_place_claim what = {.request = spec->place,
                                  .cluster = spec->name,
                                  .driver = ms_driver_id(op->driver)};

    if (!spec->beside[0])
        return ms_place_claim(op->head, &what, out, &op->table, &op->error);
    return place_beside(op, out);
}

/* ---- waiting for room ------------------------------------------------------------ */

static int try_place(struct ms_head_op *op);
static int check(struct ms_head_op *op);

static void on_late(void *arg)
{
    struct ms_head_op *op = arg;
    struct ms_head *h = op->head;

    ms_list_remove(&op->wait_link);
    ms_head_op_done(op);
    ms_head_changed(h);
    ms_creations_step(h); /* there may be room for those behind it */
}

/* True: it waits, with the reason in op->error and op->table. */
static bool wait_for_room(struct ms_head_op *op)
{
    int64_t wait_ns = ms_head_grace(op->request->create->wait_ns);

    if (wait_ns == 0 || op->error.code != -ENOSPC || spec_of(op)->beside[0] ||
        !ms_place_is_possible(op->head, spec_of(op)))
        return false;
    if (!ms_list_is_empty(&op->wait_link))
        return true; /* it waits already */
    if (ms_head_op_set_deadline(op, on_late, wait_ns) < 0)
        return false;
    ms_list_add_tail(&op->head->creating, &op->wait_link);
    ms_head_changed(op->head);
    return true;
}

/* Others wait already: it goes behind them, also if there is room for it. */
static bool wait_behind(struct ms_head_op *op)
{
    const struct ms_head_op *first =
        ms_list_first(&op->head->creating, struct ms_head_op, wait_link);

    if (check(op) < 0)
        return false;
    ms_error_set(&op->error,
                 -ENOSPC,
                 "cluster '%s' waits behind cluster '%s'",
                 spec_of(op)->name,
                 spec_of(first)->name);
    return wait_for_room(op);
}

void ms_creations_step(struct ms_head *h)
{
    struct ms_head_op *first = NULL, *op;

    while (!ms_list_is_empty(&h->creating)) {
        op = ms_list_first(&h->creating, struct ms_head_op, wait_link);
        if (op == first)
            return; /* it waits on, and so do those behind it */
        first = op;
        ms_head_op_end(op, try_place(op));
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

static Muster__ClusterStatus *waiting_status(const struct ms_head_op *op)
{
    Muster__ClusterStatus s = MUSTER__CLUSTER_STATUS__INIT;

    s.name = spec_of(op)->name;
    s.driver = ms_driver_id(op->driver);
    s.detached = spec_of(op)->detached;
    s.waits_for = ms_field_text(op->error.text);
    return (Muster__ClusterStatus *)ms_proto_copy(&s.base);
}

bool ms_creations_add_status(const struct ms_head *h, Muster__Status *s)
{
    ms_list_each (op, &h->creating, struct ms_head_op, wait_link)
        if (!ms_proto_append(&s->clusters, &s->n_clusters, waiting_status(op)))
            return false;
    return true;
}

/* ---- what is asked --------------------------------------------------------------- */

static int check(struct ms_head_op *op)
{
    const Muster__ClusterSpec *spec = spec_of(op);
    const struct ms_node *any = ms_head_find_node(op->head, "");
    const struct ms_cluster *c;
    char owner[MS_OWNER_TEXT_MAX];
    int rc;

    if (!spec)
        return ms_error_set(&op->error, -EINVAL, "a cluster without a specification");
    rc = ms_cluster_spec_check(spec, &op->error);
    if (rc == 0 && any) /* the only one may be gone, and says why */
        rc = ms_node_check(any, &op->error);
    c = rc == 0 ? ms_registry_find(&op->head->registry, spec->name) : NULL;
    if (!c)
        return rc;
    return ms_error_set(&op->error,
                        -EEXIST,
                        "there is a cluster '%s' already%s",
                        c->name,
                        op->driver && op->driver->id == c->driver
                            ? ", of this driver"
                            : ms_driver_print_owner(op->head, c, owner, sizeof owner));
}

/* What another process of the head has made of it for this driver ends first. True: it does,
 * and the creation waits for that, before those that wait for room. */
static bool wait_for_former(struct ms_head_op *op)
{
    struct ms_head *h = op->head;
    Muster__CreateCluster *m = op->request->create;
    struct ms_cluster *c =
        m->again && m->spec ? ms_registry_find(&h->registry, m->spec->name) : NULL;

    if (c && !op->data && c->driver == ms_driver_id(op->driver)) {
        op->data = op; /* that has begun */
        ms_head_end_cluster(h, c);
        c = ms_registry_find(&h->registry, m->spec->name);
    }
    if (!c || !op->data || !ms_head_is_to_end(h, c)) {
        if (op->data) /* it stood there for that alone */
            ms_list_remove(&op->wait_link);
        op->data = NULL;
        m->again = false;
        return false;
    }
    ms_error_set(&op->error,
                 -EEXIST,
                 "what there is of cluster '%s' since an earlier head ends first",
                 c->name);
    if (ms_list_is_empty(&op->wait_link))
        ms_list_add_head(&h->creating, &op->wait_link);
    return true;
}

static int try_place(struct ms_head_op *op)
{
    Muster__ClusterPlaced *placed = NULL;
    int rc;

    op->error.code = 0;
    op->table.len = 0;
    if (op->request->create->again && wait_for_former(op))
        return 0;
    rc = check(op);
    if (rc == 0)
        rc = place(op, &placed);
    if (rc < 0 && wait_for_room(op))
        return 0;
    ms_timer_finish(&op->deadline);
    ms_list_remove(&op->wait_link);
    return rc == 0 ? begin(op, placed) : rc;
}

int ms_head_create_run(struct ms_head_op *op)
{
    if (op->request->create->wait_ns && !ms_list_is_empty(&op->head->creating) &&
        wait_behind(op))
        return 0;
    return try_place(op);
}
