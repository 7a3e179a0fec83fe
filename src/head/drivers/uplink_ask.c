#include "base/cleanup.h"
#include "head/answer.h"
#include "head/drivers/uplink_impl.h"
#include "head/head_impl.h"
#include "head/op.h"
#include "head/verbs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- asking ---------------------------------------------------------------------- */

/* All answers up to this one have come. */
static uint64_t answered(const struct ms_uplink *u)
{
    uint64_t lowest = u->last_request + 1;
    const struct ms_head_op *op;
    size_t at = 0;

    while ((op = ms_map_next(&u->open, &at)))
        if (op->request < lowest)
            lowest = op->request;
    return lowest - 1;
}

static int send(struct ms_uplink *u, struct ms_head_op *op)
{
    op->wanted->answered = answered(u);
    return ms_link_send(u->wire, &op->wanted->base);
}

/* Whatever way it ends. */
static void on_failed(struct ms_head_op *op)
{
    ms_map_remove(&op->head->uplink->open, op->request);
}

void ms_uplink_ask_run(struct ms_head_op *op)
{
    struct ms_uplink *u = op->head->uplink;
    int rc = 0;

    if (u->state == MS_UPLINK_LOST) {
        ms_head_op_fail_with(op, &u->why);
        return;
    }
    op->request = op->wanted->request = ++u->last_request;
    if (ms_map_add(&u->open, op->request, op) < 0) {
        ms_head_op_fail(op, -ENOMEM, "out of memory");
        return;
    }
    op->on_failed = on_failed;
    if (u->state == MS_UPLINK_READY)
        rc = send(u, op);
    if (rc == -EMSGSIZE || rc == -ENOMEM)
        ms_head_op_fail(op, rc, "cannot ask the head: %s", strerror(-rc));
}

void ms_uplink_fail_open(struct ms_uplink *u, const struct ms_error *why)
{
    struct ms_head_op *op;
    size_t at;

    for (at = 0; (op = ms_map_next(&u->open, &at)); at = 0) {
        ms_map_remove(&u->open, op->request);
        if (op != u->head->stop_op)
            ms_head_op_fail_with(op, why);
    }
}

static int by_request(const void *a, const void *b)
{
    const struct ms_head_op *x = *(const struct ms_head_op *const *)a;
    const struct ms_head_op *y = *(const struct ms_head_op *const *)b;

    return x->request < y->request ? -1 : x->request > y->request;
}

/* Another process of the head may have begun this one: what there is of it ends first.
 * Nobody waits for the answer. */
static void begin_anew(struct ms_uplink *u, const struct ms_head_op *op)
{
    Muster__DestroyCluster destroy = MUSTER__DESTROY_CLUSTER__INIT;
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;

    m.request = ++u->last_request;
    m.body_case = MUSTER__DRIVER_TO_HEAD__BODY_DESTROY;
    m.destroy = &destroy;
    destroy.name = op->wanted->create->spec->name;
    destroy.own = true;
    ms_link_send(u->wire, &m.base);
}

void ms_uplink_resend(struct ms_uplink *u, bool is_new)
{
    MS_CLEANUP(ms_cleanup_free)
    struct ms_head_op **open = calloc(u->open.count + 1, sizeof(struct ms_head_op *));
    struct ms_head_op *op;
    size_t count = 0, at = 0;

    if (is_new)
        ms_uplink_restore_groups(u);
    while (open && (op = ms_map_next(&u->open, &at)))
        if (op->wanted)
            open[count++] = op;
    if (open)
        qsort(open, count, sizeof *open, by_request);
    for (size_t i = 0; i < count; i++) {
        if (is_new && open[i]->wanted->body_case == MUSTER__DRIVER_TO_HEAD__BODY_CREATE)
            begin_anew(u, open[i]);
        send(u, open[i]);
    }
}

/* ---- answers --------------------------------------------------------------------- */

static void has_come(struct ms_uplink *u, uint64_t uid)
{
    if (!ms_map_find(&u->dead, uid))
        (void)ms_map_add(&u->living, uid, u);
}

static void created(struct ms_uplink *u, const Muster__ClusterStatus *c)
{
    for (size_t i = 0; i < c->n_workers; i++)
        has_come(u, c->workers[i]->uid);
}

void ms_uplink_worker_exited(struct ms_uplink *u,
                             uint64_t uid,
                             const Muster__Exit *exit)
{
    struct ms_head *h = u->head;

    ms_map_remove(&u->living, uid);
    if (uid && ms_map_add(&u->dead, uid, u) != -EEXIST && h->on_exit)
        h->on_exit(h->arg, uid, exit);
}

/* Takes what workers said out of the answer. */
static void fail(struct ms_head_op *op, Muster__HeadToDriver *m)
{
    const Muster__Failure *f = m->failure;
    struct ms_error why = {0};

    if (f->traceback[0])
        op->table = strdup(f->traceback);
    ms_error_set(&why, f->code < 0 ? f->code : -EIO, "%s", f->message);
    if (f->n_workers)
        op->failure = MS_TAKE(m->failure);
    ms_head_op_fail_with(op, &why);
}

static void succeed(struct ms_head_op *op, Muster__HeadToDriver *m)
{
    const struct ms_verb *v = op->wanted ? ms_verb_find(op->wanted->body_case) : NULL;
    ProtobufCMessage *result = NULL;

    if (ms_answer_take(v, m, &result) < 0)
        ms_head_op_fail(op, -EPROTO, "the head gave another answer than was asked for");
    else
        ms_head_op_succeed(op, result);
}

static void on_answer(struct ms_uplink *u, Muster__HeadToDriver *m)
{
    struct ms_head_op *op = ms_map_remove(&u->open, m->request);

    if (!op)
        return; /* nobody waits for it any more, or it has come twice */
    op->on_failed = NULL;
    if (op == u->head->stop_op)
        u->head->stop_op = NULL;
    ms_uplink_note_group(u, op->wanted, m);
    if (m->body_case == MUSTER__HEAD_TO_DRIVER__BODY_FAILURE)
        fail(op, m);
    else
        succeed(op, m);
}

bool ms_uplink_read(struct ms_uplink *u, const uint8_t *body, size_t len)
{
    Muster__HeadToDriver *m = muster__head_to_driver__unpack(NULL, len, body);
    struct ms_head *h = u->head;

    if (!m)
        return false;
    if (m->body_case == MUSTER__HEAD_TO_DRIVER__BODY_CREATED)
        created(u, m->created);
    if (m->body_case == MUSTER__HEAD_TO_DRIVER__BODY_EXITED && m->exited->exit)
        ms_uplink_worker_exited(u, m->exited->uid, m->exited->exit);
    if (m->body_case == MUSTER__HEAD_TO_DRIVER__BODY_CHANGED)
        atomic_fetch_add(&h->changes, 1);
    if (m->body_case == MUSTER__HEAD_TO_DRIVER__BODY_WELCOME)
        ms_uplink_welcomed(u, m->welcome);
    else if (m->body_case == MUSTER__HEAD_TO_DRIVER__BODY_FAILURE &&
             u->state == MS_UPLINK_GREETING)
        ms_uplink_refused(u, m->failure);
    else if (m->body_case == MUSTER__HEAD_TO_DRIVER__BODY_GOODBYE)
        ms_uplink_lose(u, "the head was stopped, and all workers with it");
    else if (m->body_case == MUSTER__HEAD_TO_DRIVER__BODY_NODE && h->on_node)
        h->on_node(h->arg, m->node);
    else if (m->body_case == MUSTER__HEAD_TO_DRIVER__BODY_LOG && h->on_log)
        h->on_log(h->arg, m->log);
    else if (m->request)
        on_answer(u, m);
    muster__head_to_driver__free_unpacked(m, NULL);
    return true;
}
