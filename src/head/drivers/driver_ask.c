#include "base/cleanup.h"
#include "base/proto.h"
#include "head/answer.h"
#include "head/drivers/driver_impl.h"
#include "head/op.h"
#include "head/request.h"
#include "head/verbs.h"

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

static bool is_question(const Muster__DriverToHead *wanted)
{
    const struct ms_verb *v = ms_verb_find(wanted->body_case);

    return v && v->is_question;
}

static void on_done(struct ms_head_op *op)
{
    struct ms_driver *d = op->driver;
    struct ms_answer a;

    ms_map_remove(&d->ops, op->request);
    ms_answer_init(&a, op);
    a.message.request = op->request;
    if (d->state != MS_DRIVER_ENDING && !is_question(op->wanted))
        keep(d, &a.message);
    if (d->wire)
        ms_link_send(d->wire, &a.message.base);
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
    op->asker = ms_driver_worker(d) ? MS_ASKER_WORKER : MS_ASKER_DRIVER;
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
