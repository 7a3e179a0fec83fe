#include "base/cleanup.h"
#include "cluster/copy.h"
#include "head/state.h"

#include <errno.h>
#include <string.h>

/* An answer that may have to be given once more. */
struct kept {
    struct ms_list link; /* driver->kept, in no order */
    Muster__HeadToDriver *answer;
};

static void kept_destroy(struct kept *k)
{
    ms_list_remove(&k->link);
    muster__head_to_driver__free_unpacked(k->answer, NULL);
    free(k);
}

void ms_driver_forget_answers(struct ms_driver *d, uint64_t upto)
{
    ms_list_each (k, &d->kept, struct kept, link)
        if (k->answer->request <= upto)
            kept_destroy(k);
}

static void keep(struct ms_driver *d, const Muster__HeadToDriver *m)
{
    struct kept *k = calloc(1, sizeof *k);

    if (!k)
        return;
    k->answer = (Muster__HeadToDriver *)ms_proto_copy(&m->base);
    if (k->answer)
        ms_list_add_tail(&d->kept, &k->link);
    else
        free(k);
}

/* ---- answers --------------------------------------------------------------------- */

static Muster__Failure__Kind kind_of(int code)
{
    switch (code) {
    case -ENOMEM:
        return MUSTER__FAILURE__KIND__NO_MEMORY;
    case -EINVAL:
        return MUSTER__FAILURE__KIND__BAD_ARGUMENT;
    default:
        return MUSTER__FAILURE__KIND__REFUSED;
    }
}

void ms_head_failure(Muster__Failure *f, const struct ms_error *why)
{
    muster__failure__init(f);
    f->kind = kind_of(why->code);
    f->code = why->code;
    f->message = (char *)(uintptr_t)why->text;
}

/* Nobody, if the old one was only to end. */
static void
set_replaced(Muster__HeadToDriver *m, const struct ms_head_op *op, Muster__Done *done)
{
    if (op->message) {
        m->body_case = MUSTER__HEAD_TO_DRIVER__BODY_REPLACED;
        m->replaced = (Muster__WorkerStatus *)op->message;
    } else {
        m->body_case = MUSTER__HEAD_TO_DRIVER__BODY_DONE;
        m->done = done;
    }
}

/* The body of an answer by what was wanted; the message stays the operation's. */
static void
set_body(Muster__HeadToDriver *m, const struct ms_head_op *op, Muster__Done *done)
{
    switch (op->wanted->body_case) {
    case MUSTER__DRIVER_TO_HEAD__BODY_CREATE:
        m->body_case = MUSTER__HEAD_TO_DRIVER__BODY_CREATED;
        m->created = (Muster__ClusterStatus *)op->message;
        break;
    case MUSTER__DRIVER_TO_HEAD__BODY_HOLD_PORT:
        m->body_case = MUSTER__HEAD_TO_DRIVER__BODY_PORT;
        m->port = (Muster__PortHeld *)op->message;
        break;
    case MUSTER__DRIVER_TO_HEAD__BODY_STATUS:
        m->body_case = MUSTER__HEAD_TO_DRIVER__BODY_STATUS;
        m->status = (Muster__Status *)op->message;
        break;
    case MUSTER__DRIVER_TO_HEAD__BODY_ASK_DEATH:
        m->body_case = MUSTER__HEAD_TO_DRIVER__BODY_EXITED;
        m->exited = (Muster__WorkerExited *)op->message;
        break;
    case MUSTER__DRIVER_TO_HEAD__BODY_REPLACE:
        set_replaced(m, op, done);
        break;
    case MUSTER__DRIVER_TO_HEAD__BODY_ASK_SUCCESSOR:
        m->body_case = MUSTER__HEAD_TO_DRIVER__BODY_SUCCESSOR;
        m->successor = (Muster__Successor *)op->message;
        break;
    case MUSTER__DRIVER_TO_HEAD__BODY_READ_LOG:
        m->body_case = MUSTER__HEAD_TO_DRIVER__BODY_PIECE;
        m->piece = (Muster__LogPiece *)op->message;
        break;
    case MUSTER__DRIVER_TO_HEAD__BODY_FIND:
        m->body_case = MUSTER__HEAD_TO_DRIVER__BODY_FOUND;
        m->found = (Muster__ClusterStatus *)op->message;
        break;
    case MUSTER__DRIVER_TO_HEAD__BODY_PLACE_GROUP:
    case MUSTER__DRIVER_TO_HEAD__BODY_WAIT_GROUP:
    case MUSTER__DRIVER_TO_HEAD__BODY_FIND_GROUP:
        m->body_case = MUSTER__HEAD_TO_DRIVER__BODY_GROUP;
        m->group = (Muster__GroupStatus *)op->message;
        break;
    case MUSTER__DRIVER_TO_HEAD__BODY_PLACE_CLUSTER:
        m->body_case = MUSTER__HEAD_TO_DRIVER__BODY_PLACED;
        m->placed = (Muster__ClusterPlaced *)op->message;
        break;
    case MUSTER__DRIVER_TO_HEAD__BODY_RESOURCES:
        m->body_case = MUSTER__HEAD_TO_DRIVER__BODY_RESOURCES;
        m->resources = (Muster__Resources *)op->message;
        break;
    case MUSTER__DRIVER_TO_HEAD__BODY_KV_PUT:
    case MUSTER__DRIVER_TO_HEAD__BODY_KV_DELETE:
        m->body_case = MUSTER__HEAD_TO_DRIVER__BODY_KV_DONE;
        m->kv_done = (Muster__KvDone *)op->message;
        break;
    case MUSTER__DRIVER_TO_HEAD__BODY_KV_GET:
        m->body_case = MUSTER__HEAD_TO_DRIVER__BODY_KV_ENTRY;
        m->kv_entry = (Muster__KvEntry *)op->message;
        break;
    case MUSTER__DRIVER_TO_HEAD__BODY_KV_KEYS:
    case MUSTER__DRIVER_TO_HEAD__BODY_KV_WATCH:
        m->body_case = MUSTER__HEAD_TO_DRIVER__BODY_KV_EVENTS;
        m->kv_events = (Muster__KvEvents *)op->message;
        break;
    case MUSTER__DRIVER_TO_HEAD__BODY_RESERVE:
    case MUSTER__DRIVER_TO_HEAD__BODY_RESERVATION:
        m->body_case = MUSTER__HEAD_TO_DRIVER__BODY_RESERVATION;
        m->reservation = (Muster__Reservation *)op->message;
        break;
    default:
        m->body_case = MUSTER__HEAD_TO_DRIVER__BODY_DONE;
        m->done = done;
    }
}

/* Asking for these again is as good as keeping the answer. */
static bool is_question(const Muster__DriverToHead *m)
{
    return m->body_case == MUSTER__DRIVER_TO_HEAD__BODY_STATUS ||
           m->body_case == MUSTER__DRIVER_TO_HEAD__BODY_ASK_DEATH ||
           m->body_case == MUSTER__DRIVER_TO_HEAD__BODY_ASK_SUCCESSOR ||
           m->body_case == MUSTER__DRIVER_TO_HEAD__BODY_READ_LOG ||
           m->body_case == MUSTER__DRIVER_TO_HEAD__BODY_FIND ||
           m->body_case == MUSTER__DRIVER_TO_HEAD__BODY_WAIT_GROUP ||
           m->body_case == MUSTER__DRIVER_TO_HEAD__BODY_FIND_GROUP ||
           m->body_case == MUSTER__DRIVER_TO_HEAD__BODY_RESOURCES ||
           m->body_case == MUSTER__DRIVER_TO_HEAD__BODY_KV_GET ||
           m->body_case == MUSTER__DRIVER_TO_HEAD__BODY_KV_KEYS ||
           m->body_case == MUSTER__DRIVER_TO_HEAD__BODY_KV_WATCH ||
           m->body_case == MUSTER__DRIVER_TO_HEAD__BODY_RESERVATION;
}

static void on_done(struct ms_head_op *op)
{
    struct ms_driver *d = op->driver;
    Muster__Done done = MUSTER__DONE__INIT;
    Muster__Failure failure;
    Muster__HeadToDriver m = MUSTER__HEAD_TO_DRIVER__INIT;

    ms_map_remove(&d->ops, op->request);
    m.request = op->request;
    if (op->error.code) {
        ms_head_failure(&failure, &op->error);
        if (op->table) {
            failure.kind = MUSTER__FAILURE__KIND__PLACEMENT;
            failure.traceback = op->table;
        }
        m.body_case = MUSTER__HEAD_TO_DRIVER__BODY_FAILURE;
        m.failure = &failure;
    } else {
        set_body(&m, op, &done);
    }
    if (d->state != MS_DRIVER_ENDING && !is_question(op->wanted))
        keep(d, &m);
    if (d->wire)
        ms_link_send(d->wire, &m.base);
    ms_driver_op_gone(d);
}

static void refuse(struct ms_driver *d, uint64_t request, int code, const char *why)
{
    struct ms_error err = {0};
    Muster__Failure failure;
    Muster__HeadToDriver m = MUSTER__HEAD_TO_DRIVER__INIT;

    ms_error_set(&err, code, "%s", why);
    ms_head_failure(&failure, &err);
    m.request = request;
    m.body_case = MUSTER__HEAD_TO_DRIVER__BODY_FAILURE;
    m.failure = &failure;
    if (d->wire)
        ms_link_send(d->wire, &m.base);
}

/* ---- requests -------------------------------------------------------------------- */

/* True if it was sent before: its answer is there, or will come. */
static bool is_known(struct ms_driver *d, uint64_t request)
{
    if (ms_map_find(&d->ops, request))
        return true;
    /* The analyzer does not see that what was freed was removed.
     * NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
    ms_list_each (k, &d->kept, struct kept, link)
        if (k->answer->request == request) {
            if (d->wire)
                ms_link_send(d->wire, &k->answer->base);
            return true;
        }
    return false;
}

static void begin(struct ms_driver *d, Muster__DriverToHead *m)
{
    struct ms_head_op *op = ms_head_op_create(d->head);

    if (!op || ms_map_add(&d->ops, m->request, op) < 0) {
        refuse(d, m->request, -ENOMEM, "out of memory");
        muster__driver_to_head__free_unpacked(m, NULL);
        if (op)
            ms_head_op_fail(op, -ENOMEM, "out of memory");
        ms_head_op_unref(op);
        return;
    }
    op->wanted = m;
    op->request = m->request;
    op->driver = d;
    op->on_done = on_done;
    ms_head_request_run(op);
    ms_head_op_unref(op);
}

bool ms_driver_read(struct ms_driver *d, const uint8_t *body, size_t len)
{
    Muster__DriverToHead *m = muster__driver_to_head__unpack(NULL, len, body);

    if (!m)
        return false;
    if (m->answered)
        ms_driver_forget_answers(d, m->answered);
    if (m->body_case == MUSTER__DRIVER_TO_HEAD__BODY_GOODBYE) {
        d->goodbye = m->request;
        ms_driver_end(d, ms_head_grace(m->goodbye->grace_ns));
    } else if (m->request == 0 || m->body_case == MUSTER__DRIVER_TO_HEAD__BODY_HELLO) {
        muster__driver_to_head__free_unpacked(m, NULL);
        return false;
    } else if (d->state == MS_DRIVER_ENDING) {
        refuse(d, m->request, -ESHUTDOWN, "this driver has ended");
    } else if (!is_known(d, m->request)) {
        begin(d, MS_TAKE(m));
    }
    if (m)
        muster__driver_to_head__free_unpacked(m, NULL);
    return true;
}
