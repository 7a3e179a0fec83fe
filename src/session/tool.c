/* tool.c - asking a head as a command does, over a link */
#include "session/tool.h"
#include "base/cleanup.h"
#include "base/proto.h"

#include <errno.h>
#include <poll.h>

#define PAUSE_MS 100

static int64_t patience_ns(const struct ms_tool *t)
{
    return t->is_patient ? MS_TOOL_BACK_NS : 0;
}

int ms_tool_join(struct ms_tool *t, int64_t timeout_ns, struct ms_error *err)
{
    const struct ms_head_options o = {
        .tool = true,
        .is_patient = t->is_patient,
        .timeout_ns = timeout_ns < patience_ns(t) ? patience_ns(t) : timeout_ns,
    };
    struct ms_error why = {0};

    if (t->head)
        return 0;
    t->head = ms_head_join(&o, &t->at, &why);
    if (!t->head && why.code == -ENOKEY) { /* it wants TLS here too */
        t->at.tls = MS_TLS_ON;
        t->head = ms_head_join(&o, &t->at, &why);
    }
    return t->head ? 0 : ms_error_set(err, why.code, "%s", why.text);
}

void ms_tool_leave(struct ms_tool *t)
{
    if (t->head)
        ms_head_stop(MS_TAKE(t->head), 0);
}

/* When it has come in time; a head that is away has until then. */
static int wait_answer(const struct ms_tool *t,
                       struct ms_head_op *op,
                       int64_t timeout_ns,
                       int64_t until_ns,
                       struct ms_error *err)
{
    int rc = ms_head_op_wait(op, ms_deadline_ns(ms_now_ns(), timeout_ns));

    if (rc < 0 && ms_head_is_away(t->head))
        rc = ms_head_op_wait(op, until_ns);
    if (rc < 0)
        return ms_error_set(err, rc, "%s", ms_head_op_delay(op));
    rc = ms_head_op_result(op, err);
    return rc < 0 && rc != -EPIPE ? -EREMOTEIO : rc; /* err->code is the head's */
}

static int ask(struct ms_tool *t,
               Muster__DriverToHead__BodyCase what,
               const void *want,
               int64_t timeout_ns,
               int64_t until_ns,
               ProtobufCMessage **answer,
               struct ms_error *err)
{
    struct ms_head_op *op;
    int rc = ms_tool_join(t, timeout_ns, err);

    if (rc < 0)
        return rc;
    op = ms_head_request(t->head, what, want);
    rc = wait_answer(t, op, timeout_ns, until_ns, err);
    if (rc == 0 && ms_head_op_message(op)) {
        *answer = ms_proto_copy(ms_head_op_message(op));
        if (!*answer)
            rc = ms_error_set(err, -ENOMEM, "out of memory");
    }
    ms_head_op_unref(op);
    if (rc == -EPIPE)
        ms_tool_leave(t); /* another question joins anew */
    return rc;
}

int ms_tool_ask(struct ms_tool *t,
                Muster__DriverToHead__BodyCase what,
                const ProtobufCMessage *want,
                int64_t timeout_ns,
                ProtobufCMessage **answer,
                struct ms_error *err)
{
    int64_t until_ns = ms_now_ns() + patience_ns(t);
    struct ms_error why = {0};
    int rc;

    *answer = NULL;
    /* one that has just started again does not know yet what runs */
    while ((rc = ask(t, what, want, timeout_ns, until_ns, answer, &why)) ==
               -EREMOTEIO &&
           why.code == -EAGAIN && ms_now_ns() < until_ns)
        poll(NULL, 0, PAUSE_MS);
    if (rc < 0 && err)
        *err = why;
    return rc;
}
