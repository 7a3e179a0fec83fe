#include "base/cleanup.h"
#include "cluster/copy.h"
#include "head/drivers/driver_impl.h"
#include "head/op.h"
#include "head/request.h"

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

#define RULE(wanted, answer, is_question)                                              \
    {                                                                                  \
        MUSTER__DRIVER_TO_HEAD__BODY_##wanted, MUSTER__HEAD_TO_DRIVER__BODY_##answer,  \
            is_question                                                                \
    }

/* What answers what; all else is answered with Done. */
static const struct rule {
    Muster__DriverToHead__BodyCase wanted;
    Muster__HeadToDriver__BodyCase answer;
    bool is_question; /* asking again is as good as keeping the answer */
} rules[] = {
    RULE(CREATE, CREATED, false),      RULE(HOLD_PORT, PORT, false),
    RULE(STATUS, STATUS, true),        RULE(ASK_DEATH, EXITED, true),
    RULE(RESTART, CREATED, false),     RULE(ASK_SUCCESSOR, SUCCESSOR, true),
    RULE(RESIZE, CREATED, false),
    RULE(READ_LOG, PIECE, true),       RULE(FIND, FOUND, true),
    RULE(PLACE_GROUP, GROUP, false),   RULE(WAIT_GROUP, GROUP, true),
    RULE(FIND_GROUP, GROUP, true),     RULE(PLACE_CLUSTER, PLACED, true),
    RULE(RESOURCES, RESOURCES, true),  RULE(KV_PUT, KV_DONE, false),
    RULE(KV_DELETE, KV_DONE, false),   RULE(KV_GET, KV_ENTRY, true),
    RULE(KV_KEYS, KV_EVENTS, true),    RULE(KV_WATCH, KV_EVENTS, true),
    RULE(RESERVE, RESERVATION, false), RULE(RESERVATION, RESERVATION, true),
};

static const struct rule *find_rule(const Muster__DriverToHead *wanted)
{
    for (size_t i = 0; i < MS_COUNT(rules); i++)
        if (rules[i].wanted == wanted->body_case)
            return &rules[i];
    return NULL;
}

/* The body of an answer by what was wanted; the message stays the operation's. One that
 * was to be replaced by nobody has none. */
static void
set_body(Muster__HeadToDriver *m, const struct ms_head_op *op, Muster__Done *done)
{
    const struct rule *rule = find_rule(op->wanted);

    if (rule && op->message) {
        m->body_case = rule->answer;
        m->done = (Muster__Done *)op->message; /* all bodies are pointers in a union */
    } else {
        m->body_case = MUSTER__HEAD_TO_DRIVER__BODY_DONE;
        m->done = done;
    }
}

static bool is_question(const Muster__DriverToHead *wanted)
{
    const struct rule *rule = find_rule(wanted);

    return rule && rule->is_question;
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
        if (op->failure) {
            failure.workers = op->failure->workers;
            failure.n_workers = op->failure->n_workers;
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
