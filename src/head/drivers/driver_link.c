/* driver_link.c - a driver's link: what it asks, its answers; it comes, breaks, comes back */
#include "base/cleanup.h"
#include "head/drivers/driver_impl.h"
#include "head/head_impl.h"
#include "head/jobs/asked.h"
#include "head/ops/answer.h"
#include "head/ops/op.h"
#include "head/ops/request.h"
#include "head/ops/verbs.h"
#include "head/shards/shards.h"

#include <errno.h>

/* ---- answers --------------------------------------------------------------------- */

static bool is_question(const Muster__DriverToHead *wanted)
{
    const struct ms_verb *v = ms_verb_find(wanted->body_case);

    return v && v->is_question;
}

static void send_reply(struct ms_driver *d, const struct ms_reply *kept)
{
    if (d->wire)
        ms_link_send_packed(d->wire, kept->data, kept->len);
}

static void send_answer(struct ms_driver *d, const Muster__HeadToDriver *m)
{
    const struct ms_reply *kept = ms_replies_keep(&d->replies, m->request, &m->base);

    if (kept)
        send_reply(d, kept);
    else if (d->wire)
        ms_link_send(d->wire, &m->base);
}

static void on_done(struct ms_head_op *op, void *arg)
{
    struct ms_driver *d = arg;
    struct ms_error too_big = {0};
    struct ms_answer a;

    d->running--;
    ms_answer_init(&a, op);
    a.message.request = op->pending.number;
    if (muster__head_to_driver__get_packed_size(&a.message) > MS_CONTROL_MAX) {
        ms_error_set(&too_big,
                     -EMSGSIZE,
                     "the answer to '%s' has more than the %u MiB that a link carries",
                     ms_verb_name(ms_verb_find(op->request->body_case)),
                     (unsigned)(MS_CONTROL_MAX >> 20));
        ms_answer_fail(&a, &too_big);
    }
    if (is_question(op->request))
        ms_replies_forget(&d->replies, op->pending.number);
    send_answer(d, &a.message);
    ms_driver_settle(d);
}

static void refuse(struct ms_driver *d, uint64_t request, int code, const char *why)
{
    struct ms_error err = {0};
    Muster__Failure failure;

    ms_error_set(&err, code, "%s", why);
    ms_head_failure(&failure, &err);
    ms_driver_tell(d, request, MUSTER__HEAD_TO_DRIVER__BODY_FAILURE, &failure);
}

/* ---- requests -------------------------------------------------------------------- */

static void begin(struct ms_driver *d, Muster__DriverToHead *m)
{
    struct ms_head_op *op = ms_head_op_create(d->head);

    if (!op) {
        ms_replies_forget(&d->replies, m->request);
        refuse(d, m->request, -ENOMEM, "out of memory");
        muster__driver_to_head__free_unpacked(m, NULL);
        return;
    }
    d->running++;
    op->request = m;
    op->pending.number = m->request;
    op->asker = ms_driver_asker(d);
    op->driver = d;
    op->on_done = on_done;
    op->done_arg = d;
    ms_head_op_run(op);
    ms_head_op_unref(op);
}

static void refuse_given_up(struct ms_driver *d, uint64_t request)
{
    struct ms_error why = {0};

    ms_error_set(
        &why,
        -ESTALE,
        "this driver was silent for more than %.3g s and was given up; what it "
        "had asked before may have been done: look before you ask again",
        (double)d->head->link_grace_ns / (double)MS_NS_PER_S);
    refuse(d, request, why.code, why.text);
}

/* A request: carried out if it is new, answered again if it was. */
static void take(struct ms_driver *d, Muster__DriverToHead **m)
{
    const struct ms_reply *kept = NULL;
    uint64_t id;
    int rc;

    if ((*m)->request <= d->given_up && !is_question(*m)) {
        refuse_given_up(d, (*m)->request);
        return;
    }
    rc = ms_replies_begin(&d->replies, (*m)->request, &id, &kept);

    if (rc > 0)
        begin(d, MS_TAKE(*m));
    else if (rc < 0)
        refuse(d, (*m)->request, -ENOMEM, "out of memory");
    else if (kept)
        send_reply(d, kept);
}

/* A message from it; false: it is none. */
static bool take_message(struct ms_driver *d, const uint8_t *body, size_t len)
{
    Muster__DriverToHead *m = muster__driver_to_head__unpack(NULL, len, body);

    if (!m)
        return false;
    ms_replies_settle(&d->replies, m->answered, m->arrived, m->n_arrived);
    ms_asked_settle(d->head->jobs, d->id, m->answered, m->arrived, m->n_arrived);
    if (m->body_case == MUSTER__DRIVER_TO_HEAD__BODY_GOODBYE) {
        d->goodbye = m->request;
        ms_head_shards_link_gone(d->head, d->id);
        ms_driver_end(d, ms_head_grace(m->goodbye->grace_ns), "it said goodbye");
    } else if (m->request == 0 || m->body_case == MUSTER__DRIVER_TO_HEAD__BODY_HELLO) {
        muster__driver_to_head__free_unpacked(m, NULL);
        return false;
    } else if (d->state == MS_DRIVER_ENDING) {
        refuse(d, m->request, -ESHUTDOWN, "this driver has ended");
    } else {
        take(d, &m);
    }
    muster__driver_to_head__free_unpacked(m, NULL);
    return true;
}

/* ---- its link -------------------------------------------------------------------- */

static void on_body(void *arg, const uint8_t *body, size_t len)
{
    struct ms_driver *d = arg;

    if (take_message(d, body, len))
        return;
    ms_link_destroy(MS_TAKE(d->wire));
    ms_driver_end(d, MS_STOP_GRACE_NS, "it sent what is no message");
}

static void on_closed(void *arg, const struct ms_error *why)
{
    struct ms_driver *d = arg;
    bool is_end = ms_link_has_ended(why);

    ms_link_destroy(MS_TAKE(d->wire));
    if (d->over) {
        ms_driver_destroy(d);
    } else if (is_end) {
        ms_driver_end(d, MS_STOP_GRACE_NS, "its process has ended");
    } else if (d->state == MS_DRIVER_HERE) {
        d->state = MS_DRIVER_AWAY;
        d->suspect = true;
        ms_timer_set(&d->grace, d->head->link_grace_ns);
    }
}

static void on_suspect(void *arg, bool suspect)
{
    struct ms_driver *d = arg;

    d->suspect = suspect;
    if (d->state != MS_DRIVER_HERE)
        return;
    if (suspect)
        ms_timer_set(&d->grace, d->head->link_grace_ns - MS_SUSPECT_NS);
    else
        ms_timer_cancel(&d->grace);
}

static const struct ms_link_ops link_ops = {
    .on_body = on_body,
    .on_closed = on_closed,
    .on_suspect = on_suspect,
};

/* Without workers and tools. */
static size_t count_drivers(const struct ms_head *h)
{
    const struct ms_driver *d;
    size_t count = 0, at = 0;

    while ((d = ms_map_next(&h->drivers, &at)))
        count += ms_driver_asker(d) == MS_ASKER_DRIVER;
    return count;
}

static int check_hello(struct ms_head *h,
                       const Muster__DriverHello *hello,
                       const struct ms_driver *d,
                       struct ms_error *err)
{
    if (!hello->driver || !hello->context)
        return ms_error_set(err, -EINVAL, "a driver without an id or a context");
    if (d && d->state == MS_DRIVER_ENDING)
        return ms_error_set(err,
                            -EBUSY,
                            "this driver was silent for more than %.3g s, and its "
                            "clusters were ended",
                            (double)h->link_grace_ns / (double)MS_NS_PER_S);
    if (!d && !hello->worker && !hello->tool && count_drivers(h) >= MS_DRIVERS_MAX)
        return ms_error_set(err,
                            -ENOSPC,
                            "there are %u drivers; a head can have no more",
                            MS_DRIVERS_MAX);
    return 0;
}

int ms_driver_attach(struct ms_head *h,
                     struct ms_link *wire,
                     Muster__DriverHello **hello,
                     struct ms_error *err)
{
    struct ms_driver *d = ms_driver_find(h, (*hello)->driver);
    bool is_new = !d || !d->hello;
    int rc = check_hello(h, *hello, d, err);

    if (rc < 0)
        return rc;
    if (!d)
        d = ms_driver_create(h, (*hello)->driver);
    if (!d)
        return ms_error_sys(err, -ENOMEM, "cannot take another driver");
    muster__driver_hello__free_unpacked(d->hello, NULL);
    d->hello = MS_TAKE(*hello);
    d->hello->context->driver = d->id;
    ms_link_destroy(d->wire);
    d->wire = wire;
    ms_link_set_ops(wire, &link_ops, d);
    d->state = MS_DRIVER_HERE;
    d->suspect = d->is_silent = false;
    if (is_new)
        d->given_up = ms_driver_given_up(h, d->id);
    ms_timer_cancel(&d->grace);
    if (is_new)
        ms_driver_report(d, NULL);
    return 0;
}
