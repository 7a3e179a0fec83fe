#include "base/cleanup.h"
#include "cluster/copy.h"
#include "head/state.h"

#include <errno.h>

static void run_ask(struct ms_head_op *op)
{
    struct ms_error err = {0};

    if (ms_head_agent_ask(op->head, op, &err) < 0)
        ms_head_op_fail_with(op, &err);
}

/* Done, or whatever else says that it went well. */
static void answered(struct ms_head_op *op, Muster__AgentToHead *answer)
{
    (void)answer;
    ms_head_op_succeed(op, NULL);
}

static void port_answered(struct ms_head_op *op, Muster__AgentToHead *answer)
{
    if (answer->body_case == MUSTER__AGENT_TO_HEAD__BODY_PORT)
        ms_head_op_succeed(op, &MS_TAKE(answer->port)->base);
    else
        ms_head_op_fail(op, -EPROTO, "the agent answered without a port");
}

/* Ask the agent; `m` is borrowed. */
static struct ms_head_op *ask(struct ms_head *h,
                              const Muster__HeadToAgent *m,
                              void (*on_answer)(struct ms_head_op *op,
                                                Muster__AgentToHead *answer))
{
    struct ms_head_op *op = ms_head_op_create(h);

    if (!op)
        return ms_head_op_refused(h);
    op->run = run_ask;
    op->on_answer = on_answer;
    op->to_agent = (Muster__HeadToAgent *)ms_proto_copy(&m->base);
    if (!op->to_agent) {
        ms_head_op_fail(op, -ENOMEM, "out of memory");
        return op;
    }
    return ms_head_op_submit(op);
}

/* protobuf-c's fields are not const; nothing here is changed. */
static char *text(const char *s)
{
    return (char *)(uintptr_t)(s ? s : "");
}

struct ms_head_op *ms_head_hold_port(struct ms_head *h, const char *owner)
{
    Muster__HoldPort hold = MUSTER__HOLD_PORT__INIT;
    Muster__HeadToAgent m = MUSTER__HEAD_TO_AGENT__INIT;

    hold.owner = text(owner);
    m.body_case = MUSTER__HEAD_TO_AGENT__BODY_HOLD_PORT;
    m.hold_port = &hold;
    return ask(h, &m, port_answered);
}

struct ms_head_op *ms_head_drop_port(struct ms_head *h, const char *owner)
{
    Muster__DropPort drop = MUSTER__DROP_PORT__INIT;
    Muster__HeadToAgent m = MUSTER__HEAD_TO_AGENT__INIT;

    drop.owner = text(owner);
    m.body_case = MUSTER__HEAD_TO_AGENT__BODY_DROP_PORT;
    m.drop_port = &drop;
    return ask(h, &m, answered);
}

struct ms_head_op *ms_head_prepare(struct ms_head *h, const Muster__ZygoteKey *key)
{
    Muster__Prepare prepare = MUSTER__PREPARE__INIT;
    Muster__HeadToAgent m = MUSTER__HEAD_TO_AGENT__INIT;

    prepare.key = (Muster__ZygoteKey *)(uintptr_t)key;
    m.body_case = MUSTER__HEAD_TO_AGENT__BODY_PREPARE;
    m.prepare = &prepare;
    return ask(h, &m, answered);
}

static void run_status(struct ms_head_op *op)
{
    Muster__Status *s = ms_head_status_message(op->head);

    if (s)
        ms_head_op_succeed(op, &s->base);
    else
        ms_head_op_fail(op, -ENOMEM, "out of memory");
}

struct ms_head_op *ms_head_status(struct ms_head *h)
{
    struct ms_head_op *op = ms_head_op_create(h);

    if (!op)
        return ms_head_op_refused(h);
    op->run = run_status;
    return ms_head_op_submit(op);
}
