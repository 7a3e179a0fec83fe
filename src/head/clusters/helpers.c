/* helpers.c - the processes of wide workers on the nodes beyond their first */
#include "base/cleanup.h"
#include "base/name.h"
#include "base/proto.h"
#include "cluster/spec.h"
#include "cluster/status.h"
#include "head/clusters/clusters_impl.h"
#include "head/head_impl.h"
#include "head/nodes/node.h"
#include "head/ops/op.h"
#include "head/rest/message_json.h"
#include "plain/plain.h"
#include "wire/frame.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define VARIABLE "MUSTER_HELPERS"

/* Room for a name that is too long too: ms_name_check says so. */
enum { HELPERS_NAME_MAX = 2 * MS_NAME_MAX };

static bool helps(const struct ms_cluster *c, uint64_t uid)
{
    return c->slots[0].helps && c->slots[0].helps == uid;
}

/* NULL: it has none. */
static struct ms_cluster *find(const struct ms_head *h, const struct ms_slot *worker)
{
    ms_list_each (c, &h->registry.clusters, struct ms_cluster, link)
        if (helps(c, worker->now.uid))
            return c;
    return NULL;
}

static void
print_name(char out[HELPERS_NAME_MAX], const struct ms_cluster *c, uint32_t rank)
{
    snprintf(out, HELPERS_NAME_MAX, "%s.%u.helpers", c->name, rank);
}

/* ---- ends ------------------------------------------------------------------------ */

static void
tell_stop(struct ms_head *h, const char *node, uint64_t uid, int64_t grace_ns)
{
    struct ms_node *n = ms_node_find(h, node);

    if (n)
        ms_node_tell_stop(n, &uid, 1, grace_ns);
}

static void stop_all(struct ms_head *h, const struct ms_cluster *c, int64_t grace_ns)
{
    for (size_t i = 0; i < c->count; i++)
        if (ms_slot_is_live(&c->slots[i]) && c->slots[i].now.address)
            tell_stop(h, c->slots[i].node, c->slots[i].now.uid, grace_ns);
}

bool ms_helpers_are_left(const struct ms_head *h, const struct ms_cluster *c)
{
    for (size_t i = 0; i < c->count; i++)
        if (c->slots[i].now.uid && find(h, &c->slots[i]))
            return true;
    return false;
}

void ms_helpers_settle(struct ms_head *h, const struct ms_cluster *c)
{
    for (size_t i = 0; i < c->count; i++) {
        const struct ms_cluster *helpers =
            ms_slot_is_live(&c->slots[i]) ? NULL : find(h, &c->slots[i]);

        if (helpers)
            stop_all(h, helpers, 0);
    }
}

void ms_helpers_end(struct ms_head *h, const struct ms_cluster *c)
{
    ms_changing_each (s, c) {
        struct ms_cluster *helpers = find(h, s);

        if (!helpers)
            continue;
        ms_cluster_end_unstarted(&h->registry, helpers, true, "it was not started");
        helpers->state = MS_CLUSTER_RUNNING;
        stop_all(h, helpers, 0);
        if (ms_helpers_are_over(helpers))
            ms_head_cluster_forget(h, helpers);
    }
}

/* The worker cannot go on without it. */
static void
end_worker(struct ms_head *h, const struct ms_slot *helper, const Muster__Exit *exit)
{
    struct ms_slot *worker = ms_registry_find_uid(&h->registry, helper->helps);
    char how[64] = "is lost";

    if (!worker || !ms_slot_is_live(worker) || worker->now.why ||
        worker->cluster->state != MS_CLUSTER_RUNNING)
        return;
    if (exit->code >= 0)
        snprintf(how,
                 sizeof how,
                 "%s %d",
                 exit->signaled ? "was killed by signal" : "ended with exit code",
                 (int)exit->code);
    if (asprintf(&worker->now.why,
                 "its helper %u on node %s (pid %d) %s%s%s, and it with its helper",
                 helper->rank + 1,
                 helper->node,
                 (int)exit->pid,
                 how,
                 exit->detail[0] ? ": " : "",
                 exit->detail) < 0)
        worker->now.why = NULL;
    tell_stop(h, worker->node, worker->now.uid, 0);
}

void ms_helpers_exited(struct ms_head *h,
                       const struct ms_slot *slot,
                       const Muster__Exit *exit)
{
    int64_t grace_ns = exit->requested ? MS_STOP_GRACE_NS : 0;

    ms_list_each (c, &h->registry.clusters, struct ms_cluster, link)
        if (helps(c, slot->now.uid))
            stop_all(h, c, grace_ns);
    if (slot->helps && !exit->requested && !h->stop_op &&
        slot->cluster->state == MS_CLUSTER_RUNNING)
        end_worker(h, slot, exit);
}

bool ms_helpers_are_over(const struct ms_cluster *c)
{
    return c->slots[0].helps && c->live == 0 && c->state == MS_CLUSTER_RUNNING;
}

/* ---- the start ------------------------------------------------------------------- */

static size_t further(const struct ms_cluster *c, uint32_t rank)
{
    return c->placed->ranks[rank]->n_pieces - 1;
}

bool ms_helpers_are_needed(const struct ms_cluster *c, uint32_t rank)
{
    return further(c, rank) > 0;
}

/* In the registry, STARTING. */
static int add(struct ms_head_op *op, uint32_t rank, struct ms_cluster **out)
{
    const struct ms_cluster *c = op->cluster;
    size_t count = further(c, rank);
    MS_CLEANUP(ms_cleanup_free)
    struct ms_slot_spec *slots = calloc(count, sizeof *slots);
    char name[HELPERS_NAME_MAX];
    int rc;

    if (!slots)
        return ms_error_set(
            &op->error, -ENOMEM, "cluster '%s': out of memory", c->name);
    for (size_t i = 0; i < count; i++) {
        const Muster__Piece *p = c->placed->ranks[rank]->pieces[i + 1];

        slots[i] = (struct ms_slot_spec){.uid = ms_random_id(),
                                         .node = p->node,
                                         .devices = p->devices,
                                         .device_count = p->n_devices,
                                         .memory = c->slots[rank].memory,
                                         .cpu_milli = c->slots[rank].cpu_milli,
                                         .helps = c->slots[rank].now.uid};
    }
    print_name(name, c, rank);
    rc = ms_registry_add(&op->head->registry, name, slots, count, out, &op->error);
    if (rc < 0)
        return rc;
    (*out)->driver = c->driver;
    (*out)->detached = c->detached;
    (*out)->is_made = true;
    return 0;
}

/* As its worker, but in a cluster of its own. */
static int rename_spec(Muster__WorkerSpec *spec, const struct ms_slot *slot)
{
    char *name = strdup(slot->cluster->name);

    if (!name)
        return -ENOMEM;
    free(spec->cluster);
    spec->cluster = name;
    spec->rank = slot->rank;
    spec->world_size = (uint32_t)slot->cluster->count;
    return 0;
}

static int ask_one(struct ms_head_op *op,
                   const struct ms_plan *plan,
                   const struct ms_slot *slot,
                   uint32_t rank)
{
    struct ms_node *n = ms_node_find(op->head, slot->node);
    Muster__WorkerSpec *spec =
        ms_plan_helper(plan, rank, slot->rank + 1, slot->helps, &op->error);
    Muster__StartWorkers start = MUSTER__START_WORKERS__INIT;
    int rc = spec ? rename_spec(spec, slot) : -EINVAL;

    if (rc == -ENOMEM)
        ms_error_set(&op->error, rc, "out of memory");
    if (rc == 0 && !n)
        rc = ms_error_set(&op->error, -ENODEV, "there is no node %s", slot->node);
    if (rc == 0) {
        ms_start_fill(op, slot, spec);
        start.workers = &spec;
        start.n_workers = 1;
        rc = ms_start_ask_node(op, n, &start);
    }
    muster__worker_spec__free_unpacked(spec, NULL);
    return rc;
}

static int begin_one(struct ms_head_op *op, uint32_t rank)
{
    struct ms_cluster *helpers = NULL;
    struct ms_plan plan = {0};
    int rc = add(op, rank, &helpers);

    if (rc == 0 && ms_start_plan(op, &plan) < 0)
        rc = ms_error_set(&op->error, -ENOMEM, "out of memory");
    for (size_t i = 0; rc == 0 && i < helpers->count; i++)
        rc = ask_one(op, &plan, &helpers->slots[i], rank);
    ms_plan_finish(&plan);
    return rc;
}

/* Have those of an incarnation before not ended? */
static bool has_old(struct ms_head_op *op, uint32_t rank)
{
    char name[HELPERS_NAME_MAX];
    const struct ms_cluster *old;

    print_name(name, op->cluster, rank);
    old = ms_registry_find(&op->head->registry, name);
    if (!old || !old->slots[0].helps)
        return false;
    ms_error_set(&op->error, -EBUSY, "'%s' has not ended", name);
    return true;
}

int ms_helpers_begin(struct ms_head_op *op)
{
    int rc = 0;

    ms_changing_each (s, op->cluster)
        if (further(op->cluster, s->rank) && has_old(op, s->rank))
            return -EBUSY;
    for (const struct ms_slot *s = NULL;
         rc == 0 && (s = ms_cluster_next_changing(op->cluster, s));)
        if (further(op->cluster, s->rank))
            rc = begin_one(op, s->rank);
    return rc;
}

/* ---- what the worker is told ----------------------------------------------------- */

static json_t *describe(const struct ms_slot *s)
{
    Muster__WorkerStatus w;

    ms_slot_describe(s, &w);
    return ms_message_print_fields(&w.base,
                                   "uid rank pid address log_path node devices");
}

/* {"cluster": ..., "rank": ..., "helpers": [...]} as text; NULL: out of memory. */
static char *print(const struct ms_slot *worker, const struct ms_cluster *helpers)
{
    json_t *list = json_array(), *all;
    char *text;

    for (size_t i = 0; i < helpers->count; i++)
        json_array_append_new(list, describe(&helpers->slots[i]));
    all = json_pack("{s:s s:i s:o}",
                    "cluster",
                    worker->cluster->name,
                    "rank",
                    (int)worker->rank,
                    "helpers",
                    list);
    text = json_dumps(all, JSON_COMPACT);
    json_decref(all);
    return text;
}

/* {VARIABLE: text} in plain data. */
static int encode(const char *text, ProtobufCBinaryData *out)
{
    struct ms_plain_writer w;
    struct ms_plain_mark map, entry;
    int rc;

    ms_plain_writer_init(&w);
    map = ms_plain_begin(&w, MS_PLAIN_ROOT, MUSTER_MAP);
    entry = ms_plain_begin_entry(&w, false, VARIABLE, strlen(VARIABLE));
    ms_plain_put_data(&w, MS_PLAIN_ENTRY_VALUE, MUSTER_TEXT, text, strlen(text));
    ms_plain_end(&w, entry);
    ms_plain_end(&w, map);
    rc = ms_plain_flatten(&w, &out->data, &out->len);
    ms_plain_writer_finish(&w);
    return rc;
}

static Muster__Step *step_create(const char *text)
{
    ProtobufCBinaryData argument = {0};
    Muster__Step like = MUSTER__STEP__INIT, *step;

    if (encode(text, &argument) < 0)
        return NULL;
    like.op = MS_OP_SET_ENV;
    like.codec = MS_CODEC_PLAIN;
    like.arguments = &argument;
    like.n_arguments = 1;
    step = (Muster__Step *)ms_proto_copy(&like.base);
    free(argument.data);
    return step;
}

int ms_helpers_add_step(const struct ms_head *h,
                        const struct ms_slot *worker,
                        Muster__RunSteps *run)
{
    const struct ms_cluster *helpers =
        ms_cluster_spec_is_native(worker->cluster->spec) ? NULL : find(h, worker);
    MS_CLEANUP(ms_cleanup_free) char *text = helpers ? print(worker, helpers) : NULL;
    Muster__Step *step = text ? step_create(text) : NULL;

    if (!helpers)
        return 0;
    if (!ms_proto_append(&run->steps, &run->n_steps, step))
        return -ENOMEM;
    memmove(run->steps + 1, run->steps, (run->n_steps - 1) * sizeof(Muster__Step *));
    run->steps[0] = step;
    return 0;
}

/* ---- status ---------------------------------------------------------------------- */

static bool add_helpers(const struct ms_head *h,
                        const struct ms_slot *worker,
                        Muster__WorkerStatus *w)
{
    const struct ms_cluster *helpers = worker->now.uid ? find(h, worker) : NULL;

    for (size_t i = 0; helpers && i < helpers->count; i++)
        if (!ms_proto_append(
                &w->helpers, &w->n_helpers, ms_slot_status(&helpers->slots[i])))
            return false;
    return true;
}

Muster__ClusterStatus *ms_head_cluster_status(const struct ms_head *h,
                                              const struct ms_cluster *c,
                                              const Muster__StepsDone *first,
                                              bool with_meta)
{
    Muster__ClusterStatus *s = ms_cluster_status(c, first, with_meta);
    bool is_good = s;

    for (size_t i = 0; is_good && i < c->count; i++)
        is_good = add_helpers(h, &c->slots[i], s->workers[i]);
    while (is_good && with_meta && c->drained && s->n_workers > c->drained)
        muster__worker_status__free_unpacked(s->workers[--s->n_workers], NULL);
    if (is_good)
        return s;
    muster__cluster_status__free_unpacked(s, NULL);
    return NULL;
}
