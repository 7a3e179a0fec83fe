/* answer.c - from a completed operation to HeadToDriver, and back */
#include "head/ops/answer.h"
#include "base/cleanup.h"
#include "head/ops/op.h"
#include "head/ops/verbs.h"

#include <errno.h>

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

void ms_answer_fail(struct ms_answer *a, const struct ms_error *why)
{
    ms_head_failure(&a->failure, why);
    a->message.body_case = MUSTER__HEAD_TO_DRIVER__BODY_FAILURE;
    a->message.failure = &a->failure;
}

static void init_failure(struct ms_answer *a, const struct ms_head_op *op)
{
    ms_answer_fail(a, &op->error);
    if (op->table.len) {
        a->failure.kind = MUSTER__FAILURE__KIND__PLACEMENT;
        a->failure.traceback = (char *)op->table.data;
    }
    if (op->failure) {
        a->failure.workers = op->failure->workers;
        a->failure.n_workers = op->failure->n_workers;
    }
}

void ms_answer_init(struct ms_answer *a, const struct ms_head_op *op)
{
    const struct ms_verb *v = ms_verb_find(op->request->body_case);

    muster__head_to_driver__init(&a->message);
    muster__done__init(&a->done);
    if (op->error.code) {
        init_failure(a, op);
    } else if (v && op->message) {
        a->message.body_case = v->answer;
        /* all bodies are pointers in a union */
        a->message.done = (Muster__Done *)op->message;
    } else { /* some have nothing to tell now, as a worker that nobody replaces */
        a->message.body_case = MUSTER__HEAD_TO_DRIVER__BODY_DONE;
        a->message.done = &a->done;
    }
}

int ms_answer_take(const struct ms_verb *v,
                   Muster__HeadToDriver *answer,
                   ProtobufCMessage **result)
{
    *result = NULL;
    if (answer->body_case == MUSTER__HEAD_TO_DRIVER__BODY_DONE)
        return 0;
    if (!v || answer->body_case != v->answer)
        return -EPROTO;
    *result = (ProtobufCMessage *)MS_TAKE(answer->done);
    return 0;
}
