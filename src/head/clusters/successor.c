/* successor.c - who has a dead worker's place now
 *
 * A question waits in head->successor_waits while the place is being filled: until the new worker
 * has done its steps, or there is none.
 */
#include "cluster/status.h"
#include "head/clusters/clusters_impl.h"
#include "head/drivers/driver.h"
#include "head/head_impl.h"
#include "head/nodes/node.h"
#include "head/ops/op.h"
#include "head/ops/request.h"

/* True if the answer is known; *worker is then the one that has the place, or NULL. */
static bool find(const struct ms_head *h, uint64_t uid, const struct ms_slot **worker)
{
    const struct ms_slot *now = ms_registry_find_uid(&h->registry, uid);
    const struct ms_slot *slot = ms_registry_find_former(&h->registry, uid);

    *worker = NULL;
    if (now)
        return !now->is_changing;
    if (!slot)
        return true;
    if (slot->is_changing)
        return false;
    if (!ms_slot_is_live(slot))
        return true;
    *worker = slot;
    return true;
}

static bool answer(struct ms_head_op *op, bool is_last)
{
    uint64_t uid = op->request->ask_successor->uid;
    const struct ms_slot *worker;
    Muster__Successor s = MUSTER__SUCCESSOR__INIT;
    Muster__WorkerStatus w;

    (void)is_last;
    if (!find(op->head, uid, &worker))
        return false;
    s.uid = uid;
    if (worker)
        ms_slot_describe(worker, s.worker = &w);
    ms_head_op_succeed_copy(op, &s.base);
    return true;
}

int ms_head_ask_successor_run(struct ms_head_op *op)
{
    return ms_head_op_wait_in(op, &op->head->successor_waits, answer, MS_NEVER);
}

void ms_successors_step(struct ms_head *h)
{
    ms_head_op_retry_all(&h->successor_waits);
}

/* ---- on behalf of a worker ------------------------------------------------------- */

static struct ms_node *find_asker(const struct ms_head *h, const void *node)
{
    ms_list_each (n, &h->nodes, struct ms_node, link)
        if (n == node)
            return n;
    return NULL;
}

static void tell_node(struct ms_head_op *op, void *asker)
{
    struct ms_node *n = find_asker(op->head, asker);
    Muster__Successor none = MUSTER__SUCCESSOR__INIT;

    none.uid = op->request->ask_successor->uid;
    if (n)
        ms_node_tell(n,
                     MUSTER__HEAD_TO_AGENT__BODY_SUCCESSOR,
                     op->message ? (Muster__Successor *)op->message : &none);
}

/* Agents ask again while they have no answer: one question at a time is enough. */
static bool is_asked(const struct ms_head *h, const struct ms_node *n, uint64_t uid)
{
    ms_list_each (op, &h->successor_waits, struct ms_head_op, wait_link)
        if (op->done_arg == n && op->request->ask_successor->uid == uid)
            return true;
    return false;
}

void ms_head_node_asks_successor(struct ms_node *n, uint64_t uid)
{
    struct ms_head *h = n->head;

    if (!is_asked(h, n, uid))
        ms_head_request_successor(h, uid, tell_node, n);
}
