/* waiting.c - operations that wait for nodes to come back, or for a worker to end */
#include "head/ops/waiting.h"
#include "head/clusters/clusters.h"
#include "head/head_impl.h"
#include "head/ops/op.h"
#include "head/ops/request.h"
#include "head/state/persist.h"

#include <errno.h>

/* ---- for nodes ------------------------------------------------------------------- */

/* It waits no longer, whatever it finds now. */
static void on_recovered(void *arg)
{
    struct ms_head_op *op = arg;

    ms_timer_finish(&op->deadline);
    ms_list_remove(&op->wait_link);
    ms_head_op_run(op);
}

bool ms_head_wait_for_nodes(struct ms_head_op *op)
{
    struct ms_head *h = op->head;
    int64_t left_ns = ms_persist_left_ns(h);

    if (left_ns == 0 || ms_head_op_set_deadline(op, on_recovered, left_ns) < 0)
        return false;
    op->error.code = 0;
    ms_list_add_tail(&h->waiting.for_nodes, &op->wait_link);
    return true;
}

void ms_head_node_has_come(struct ms_head *h, const char *name)
{
    struct ms_list now;

    ms_persist_node(h, name);
    ms_persist_restore_groups(h); /* before who asks for them */
    ms_list_init(&now);
    ms_list_splice(&now, &h->waiting.for_nodes);
    while (!ms_list_is_empty(&now))
        on_recovered(ms_list_first(&now, struct ms_head_op, wait_link));
}

/* ---- for deaths ------------------------------------------------------------------ */

static void tell_death(struct ms_head_op *op, uint64_t uid, const Muster__Exit *exit)
{
    Muster__WorkerExited exited = MUSTER__WORKER_EXITED__INIT;

    exited.uid = uid;
    exited.exit = (Muster__Exit *)(uintptr_t)exit;
    ms_head_op_succeed_copy(op, &exited.base);
}

void ms_head_answer_deaths(struct ms_head *h, uint64_t uid, const Muster__Exit *exit)
{
    ms_list_each (op, &h->waiting.for_deaths, struct ms_head_op, wait_link)
        if (op->request->ask_death->uid == uid)
            tell_death(op, uid, exit);
}

/* An earlier incarnation, or a worker that no agent has reported, which is none. */
static void say_unknown(struct ms_head_op *op)
{
    static char replaced[] = "it has ended, and another one has its place";
    static char unknown[] = "the head knows nothing of it: its cluster was ended";
    uint64_t uid = op->request->ask_death->uid;
    Muster__Exit none = MUSTER__EXIT__INIT;

    none.code = -1;
    none.detail =
        ms_registry_find_former(&op->head->registry, uid) ? replaced : unknown;
    tell_death(op, uid, &none);
}

int ms_head_ask_death_run(struct ms_head_op *op)
{
    struct ms_head *h = op->head;
    uint64_t uid = op->request->ask_death->uid;
    const struct ms_slot *slot = ms_registry_find_uid(&h->registry, uid);
    const Muster__Exit none = MUSTER__EXIT__INIT;

    if (slot && slot->now.state == MUSTER__WORKER_STATE__WORKER_EXITED)
        tell_death(op, uid, slot->now.exit ? slot->now.exit : &none);
    else if (slot || h->persist.is_expecting) /* it may be reported, or given up */
        ms_list_add_tail(&h->waiting.for_deaths, &op->wait_link);
    else
        say_unknown(op);
    return 0;
}

void ms_head_deaths_settle(struct ms_head *h)
{
    ms_list_each (op, &h->waiting.for_deaths, struct ms_head_op, wait_link)
        if (!ms_registry_find_uid(&h->registry, op->request->ask_death->uid))
            say_unknown(op);
}

/* ---- the end of a driver --------------------------------------------------------- */

/* The end of a cluster that has begun goes on without its asker. */
static bool is_ending(const struct ms_head_op *op)
{
    return op->cluster &&
           op->request->body_case == MUSTER__DRIVER_TO_HEAD__BODY_DESTROY;
}

static struct ms_head_op *find_waiting(struct ms_head *h, const struct ms_driver *d)
{
    struct ms_head_op *found = NULL;

    pthread_mutex_lock(&h->lock);
    ms_list_each (op, &h->ops, struct ms_head_op, link)
        if (op->driver == d && !ms_list_is_empty(&op->wait_link) && !is_ending(op)) {
            found = op;
            break;
        }
    pthread_mutex_unlock(&h->lock);
    return found;
}

/* One by one: each failure may complete others. */
void ms_head_fail_waiting(struct ms_head *h, const struct ms_driver *d)
{
    struct ms_head_op *op;

    while ((op = find_waiting(h, d)))
        ms_head_op_fail(op, -ESHUTDOWN, "the driver has ended");
}
