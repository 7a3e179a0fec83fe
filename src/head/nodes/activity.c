/* activity.c - the status with what each worker does, for which every node is asked once
 *
 * One message to a node and one back, whatever it has: its agent asks its workers. A node
 * that is away or suspect, or does not answer within MS_ACTIVITY_NODE_NS, is left out, and
 * so are its workers. */
#include "base/cleanup.h"
#include "base/limits.h"
#include "base/proto.h"
#include "head/head_impl.h"
#include "head/nodes/node.h"
#include "head/ops/op.h"
#include "head/status.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What was said until now; it is not read before the operation has completed. */
static Muster__Activities *said(struct ms_head_op *op)
{
    return (Muster__Activities *)op->message;
}

/* ---- into the status ------------------------------------------------------------- */

static int by_uid(const void *a, const void *b)
{
    uint64_t x = (*(Muster__Activity *const *)a)->uid;
    uint64_t y = (*(Muster__Activity *const *)b)->uid;

    return (x > y) - (x < y);
}

/* `all` is sorted, and has at least one. */
static void give_worker(Muster__WorkerStatus *w, Muster__Activities *all)
{
    Muster__Activity like = MUSTER__ACTIVITY__INIT, *key = &like, **found;

    like.uid = w->uid;
    found =
        w->state == MUSTER__WORKER_STATE__WORKER_EXITED
            ? NULL
            : bsearch(&key, all->workers, all->n_workers, sizeof *all->workers, by_uid);
    if (found)
        w->activity = (Muster__Activity *)ms_proto_copy(&(*found)->base);
}

static void give_node(Muster__NodeStatus *n, Muster__Activities *all)
{
    for (size_t i = 0; i < all->n_stores; i++)
        if (strcmp(all->stores[i]->node_name, n->name) == 0 && !n->store)
            n->store = (Muster__StoreStats *)ms_proto_copy(&all->stores[i]->base);
}

static void give_all(Muster__Status *s, Muster__Activities *all)
{
    if (all->n_workers)
        qsort(all->workers, all->n_workers, sizeof *all->workers, by_uid);
    for (size_t i = 0; i < s->n_clusters; i++)
        for (size_t k = 0; all->n_workers && k < s->clusters[i]->n_workers; k++)
            give_worker(s->clusters[i]->workers[k], all);
    for (size_t i = 0; i < s->n_nodes; i++)
        give_node(s->nodes[i], all);
}

/* Those that are still asked: their workers are as they were last heard of. */
static void tell_silent(Muster__Status *s, const struct ms_head_op *op)
{
    ms_list_each (a, &op->asks, struct ms_ask, link)
        for (size_t i = 0; i < s->n_nodes; i++)
            if (strcmp(s->nodes[i]->name, a->node->name) == 0 &&
                !s->nodes[i]->detail[0])
                ms_proto_set_text(&s->nodes[i]->detail, "it does not answer");
}

static void all_said(struct ms_head_op *op)
{
    Muster__Activities *all = said(op);
    Muster__Status *s = ms_head_status_message(op->head);

    op->message = NULL;
    if (s) {
        give_all(s, all);
        tell_silent(s, op);
    }
    muster__activities__free_unpacked(all, NULL);
    ms_head_op_answer(op, s ? &s->base : NULL);
}

/* ---- asking ---------------------------------------------------------------------- */

/* Takes what the node said; without memory for it that is left out. */
static void
on_said(struct ms_head_op *op, struct ms_node *n, Muster__AgentToHead *answer)
{
    Muster__Activities *all = said(op), *more = NULL;

    (void)n;
    if (answer->body_case == MUSTER__AGENT_TO_HEAD__BODY_ACTIVITIES)
        more = answer->activities;
    for (size_t i = 0; more && i < more->n_workers; i++)
        ms_proto_append(&all->workers, &all->n_workers, MS_TAKE(more->workers[i]));
    for (size_t i = 0; more && i < more->n_stores; i++)
        ms_proto_append(&all->stores, &all->n_stores, MS_TAKE(more->stores[i]));
    if (more)
        more->n_workers = more->n_stores = 0;
    ms_head_op_gather_end(op);
}

static void
on_refused(struct ms_head_op *op, struct ms_node *n, const struct ms_error *why)
{
    (void)n;
    (void)why;
    ms_head_op_gather_end(op);
}

static void on_late(void *arg)
{
    all_said(arg);
}

static void forget(struct ms_head_op *op)
{
    protobuf_c_message_free_unpacked(MS_TAKE(op->message), NULL);
}

/* The workers of the cluster whose stacks are wanted; none if there is no such cluster.
 * To be freed. NULL: out of memory. */
static uint64_t *stacks_of(const struct ms_head_op *op, size_t *count)
{
    const struct ms_cluster *c =
        ms_registry_find(&op->head->registry, op->request->status->stacks_of);
    uint64_t *uids = calloc(c ? c->count + 1 : 1, sizeof *uids);

    *count = 0;
    for (size_t i = 0; uids && c && i < c->count; i++)
        if (ms_slot_is_live(&c->slots[i]))
            uids[(*count)++] = c->slots[i].now.uid;
    return uids;
}

int ms_head_activity_run(struct ms_head_op *op)
{
    Muster__AskActivity ask = MUSTER__ASK_ACTIVITY__INIT;
    MS_CLEANUP(ms_cleanup_free)
    uint64_t *uids = ask.stacks_of = stacks_of(op, &ask.n_stacks_of);
    int64_t wait_ns =
        MS_ACTIVITY_NODE_NS + (ask.n_stacks_of ? MS_ACTIVITY_STACKS_NS : 0);

    op->message = ms_proto_create(&muster__activities__descriptor);
    op->on_failed = forget;
    if (!op->message || !uids || ms_head_op_set_deadline(op, on_late, wait_ns) < 0)
        return -ENOMEM;
    ms_head_op_gather(op, all_said);
    op->on_answer = on_said;
    op->on_refused = on_refused;
    ms_list_each (n, &op->head->nodes, struct ms_node, link)
        if (n->state == MS_NODE_READY && !n->suspect)
            ms_node_ask(n, op, MUSTER__HEAD_TO_AGENT__BODY_ASK_ACTIVITY, &ask, NULL);
    ms_head_op_gather_end(op);
    return 0;
}
