/* uplink_ask.c - what a head that has joined another asks it, the answers, and what follows:
 * the workers that it has, and the placement groups, for a head that was started again */
#include "base/cleanup.h"
#include "head/drivers/uplink_impl.h"
#include "head/head_impl.h"
#include "head/ops/answer.h"
#include "head/ops/op.h"
#include "head/ops/verbs.h"
#include "head/place/kept_groups.h"

#include <errno.h>
#include <string.h>

static struct ms_head_op *op_of(struct ms_pending *p)
{
    return MS_CONTAINER(p, struct ms_head_op, pending);
}

/* ---- workers: all of them end when the head is lost --------------------------------- */

/* A worker is known from the answer that names it (to a creation, a restart, a resize) until
 * its end is told. After a reconnect the head tells ends again, and sends answers that it
 * kept, which may name a worker whose end was told before. So ends that come while such an
 * answer is due are remembered until none is: they are not told twice, and who has ended is
 * not taken for alive.
 */

/* What u->workers has of one. */
static char lives, told;

static bool is_naming(const struct ms_head_op *op)
{
    const struct ms_verb *v = op->request ? ms_verb_find(op->request->body_case) : NULL;

    return v && v->answer == MUSTER__HEAD_TO_DRIVER__BODY_CREATED;
}

static bool may_be_named(const struct ms_uplink *u)
{
    ms_list_each (p, &u->requests.open, struct ms_pending, link)
        if (is_naming(op_of(p)))
            return true;
    return false;
}

/* One that lives, or one whose end was told; 0: there is none. */
static uint64_t find(const struct ms_uplink *u, const char *what)
{
    for (size_t i = 0; i < u->workers.capacity; i++)
        if (u->workers.slots[i].key && u->workers.slots[i].value == what)
            return u->workers.slots[i].key;
    return 0;
}

static void worker_exited(struct ms_uplink *u, uint64_t uid, const Muster__Exit *exit)
{
    struct ms_head *h = u->head;

    if (!uid || ms_map_find(&u->workers, uid) == &told)
        return;
    ms_map_remove(&u->workers, uid);
    if (may_be_named(u))
        (void)ms_map_add(&u->workers, uid, &told);
    if (h->on_exit)
        h->on_exit(h->arg, uid, exit);
}

/* One that its creation names lives, or its end follows. */
static void name(struct ms_uplink *u, const Muster__WorkerStatus *w, bool is_new)
{
    if (is_new || w->state != MUSTER__WORKER_STATE__WORKER_EXITED)
        (void)ms_map_add(&u->workers, w->uid, &lives); /* unless it is there */
    for (size_t i = 0; i < w->n_helpers; i++)
        name(u, w->helpers[i], is_new);
}

static void name_workers(struct ms_uplink *u,
                         const Muster__DriverToHead *request,
                         const Muster__ClusterStatus *c)
{
    for (size_t i = 0; i < c->n_workers; i++)
        name(u,
             c->workers[i],
             request->body_case == MUSTER__DRIVER_TO_HEAD__BODY_CREATE);
}

static void forget_ends(struct ms_uplink *u)
{
    uint64_t uid;

    while (u->workers.count && !may_be_named(u) && (uid = find(u, &told)))
        ms_map_remove(&u->workers, uid);
}

void ms_uplink_lose_workers(struct ms_uplink *u, const char *why)
{
    Muster__Exit exit = MUSTER__EXIT__INIT;
    uint64_t uid;

    exit.code = -1;
    exit.detail = (char *)(uintptr_t)why;
    while ((uid = find(u, &lives)))
        worker_exited(u, uid, &exit);
}

/* ---- asking ---------------------------------------------------------------------- */

static int send(struct ms_uplink *u, struct ms_head_op *op)
{
    struct ms_requests *r = &u->requests;
    int rc;

    op->request->answered = ms_requests_watermark(r);
    op->request->n_arrived = r->arrived_count;
    op->request->arrived = r->arrived;
    rc = ms_link_send(ms_redial_link(&u->redial), &op->request->base);
    op->request->n_arrived = 0;
    op->request->arrived = NULL; /* it is not the message's */
    if (rc == 0)
        ms_requests_told(r);
    return rc;
}

/* Whatever way it ends. */
static void on_failed(struct ms_head_op *op)
{
    ms_requests_remove(&op->head->uplink->requests, &op->pending);
    forget_ends(op->head->uplink);
}

int ms_uplink_ask_run(struct ms_head_op *op)
{
    struct ms_uplink *u = op->head->uplink;
    int rc = 0;

    if (u->state == MS_UPLINK_LOST) {
        op->error = u->why;
        return u->why.code;
    }
    if (ms_requests_add(&u->requests, &op->pending) < 0)
        return -ENOMEM;
    op->request->request = op->pending.number;
    op->on_failed = on_failed;
    if (ms_redial_link(&u->redial))
        rc = send(u, op);
    if (rc != -EMSGSIZE && rc != -ENOMEM)
        return 0; /* it was sent, or is when the link is back */
    return ms_error_set(&op->error, rc, "cannot ask the head: %s", strerror(-rc));
}

/* A request whose answer nobody waits for; one of the bodies of DriverToHead. */
static void
tell(struct ms_uplink *u, Muster__DriverToHead__BodyCase which, const void *body)
{
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;

    m.request = ++u->requests.last;
    m.body_case = which;
    m.hello = (Muster__LinkHello *)(uintptr_t)body;
    ms_link_send(ms_redial_link(&u->redial), &m.base);
}

void ms_uplink_fail_open(struct ms_uplink *u, const struct ms_error *why)
{
    while (!ms_list_is_empty(&u->requests.open)) {
        struct ms_head_op *op =
            op_of(ms_list_first(&u->requests.open, struct ms_pending, link));

        ms_requests_remove(&u->requests, &op->pending);
        if (op != u->head->stop_op)
            ms_head_op_fail_with(op, why);
    }
}

void ms_uplink_resend(struct ms_uplink *u, bool is_new)
{
    ms_list_each (k, &u->groups, struct ms_kept_group, link)
        if (is_new)
            tell(u, MUSTER__DRIVER_TO_HEAD__BODY_RESTORE_GROUP, k->message);
    ms_list_each (p, &u->requests.open, struct ms_pending, link) {
        struct ms_head_op *op = op_of(p);

        if (!op->request)
            continue; /* the goodbye goes with its link */
        if (is_new && op->request->body_case == MUSTER__DRIVER_TO_HEAD__BODY_CREATE)
            op->request->create->again = true;
        send(u, op);
    }
}

void ms_uplink_unanswer(struct ms_uplink *u)
{
    u->requests.last--;
}

/* ---- answers --------------------------------------------------------------------- */

/* An answer that may be about a group. */
static void note_group(struct ms_uplink *u,
                       const Muster__DriverToHead *request,
                       const Muster__HeadToDriver *answer)
{
    bool is_group = answer->body_case == MUSTER__HEAD_TO_DRIVER__BODY_GROUP;

    if (request->body_case == MUSTER__DRIVER_TO_HEAD__BODY_PLACE_GROUP && is_group)
        ms_kept_group_put(&u->groups, request->place_group, answer->group);
    if (request->body_case == MUSTER__DRIVER_TO_HEAD__BODY_WAIT_GROUP && is_group)
        ms_kept_group_put(&u->groups, NULL, answer->group);
    if (request->body_case != MUSTER__DRIVER_TO_HEAD__BODY_REMOVE_GROUP ||
        answer->body_case != MUSTER__HEAD_TO_DRIVER__BODY_DONE)
        return;
    ms_list_each (k, &u->groups, struct ms_kept_group, link)
        if (request->remove_group->id
                ? k->message->status->id == request->remove_group->id
                : strcmp(k->message->status->name, request->remove_group->name) == 0)
            ms_kept_group_destroy(k);
}

/* Takes what workers said out of the answer. */
static void fail(struct ms_head_op *op, Muster__HeadToDriver *m)
{
    const Muster__Failure *f = m->failure;

    ms_buf_append(&op->table, f->traceback, strlen(f->traceback));
    ms_error_set(&op->error, f->code < 0 ? f->code : -EIO, "%s", f->message);
    if (f->n_workers)
        op->failure = MS_TAKE(m->failure);
    ms_head_op_done(op);
}

static void succeed(struct ms_head_op *op, Muster__HeadToDriver *m)
{
    const struct ms_verb *v = op->request ? ms_verb_find(op->request->body_case) : NULL;
    ProtobufCMessage *result = NULL;

    if (ms_answer_take(v, m, &result) < 0)
        ms_head_op_fail(op, -EPROTO, "the head gave another answer than was asked for");
    else
        ms_head_op_succeed(op, result);
}

static void on_answer(struct ms_uplink *u, Muster__HeadToDriver *m)
{
    struct ms_pending *p = ms_requests_find(&u->requests, m->request);
    struct ms_head_op *op;

    if (!p)
        return; /* nobody waits for it any more, or it has come twice */
    ms_requests_remove(&u->requests, p);
    op = op_of(p);
    op->on_failed = NULL;
    if (op == u->head->stop_op)
        u->head->stop_op = NULL;
    if (op->request)
        note_group(u, op->request, m);
    if (op->request && m->body_case == MUSTER__HEAD_TO_DRIVER__BODY_CREATED)
        name_workers(u, op->request, m->created);
    forget_ends(u);
    if (m->body_case == MUSTER__HEAD_TO_DRIVER__BODY_FAILURE)
        fail(op, m);
    else
        succeed(op, m);
}

bool ms_uplink_read(void *arg, const uint8_t *body, size_t len)
{
    struct ms_uplink *u = arg;
    static const struct ms_error stopped = {
        -EPIPE, "the head was stopped, and all workers with it"};
    Muster__HeadToDriver *m = muster__head_to_driver__unpack(NULL, len, body);
    struct ms_head *h = u->head;

    if (!m)
        return false;
    if (m->body_case == MUSTER__HEAD_TO_DRIVER__BODY_EXITED && m->exited->exit)
        worker_exited(u, m->exited->uid, m->exited->exit);
    if (m->body_case == MUSTER__HEAD_TO_DRIVER__BODY_CHANGED)
        atomic_fetch_add(&h->changes, 1);
    if (m->body_case == MUSTER__HEAD_TO_DRIVER__BODY_GOODBYE)
        ms_uplink_lose(u, &stopped);
    else if (m->body_case == MUSTER__HEAD_TO_DRIVER__BODY_NODE && h->on_node)
        h->on_node(h->arg, m->node);
    else if (m->body_case == MUSTER__HEAD_TO_DRIVER__BODY_LOG && h->on_log)
        h->on_log(h->arg, m->log);
    else if (m->request)
        on_answer(u, m);
    muster__head_to_driver__free_unpacked(m, NULL);
    return true;
}
