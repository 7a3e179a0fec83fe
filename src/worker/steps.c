/* steps.c - runs the steps of a cluster in the engine, one after the other */
#include "worker/steps.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/proto.h"

#include <errno.h>

struct ms_steps {
    struct ms_server *server;
    const struct ms_steps_ops *ops;
    void *arg;
    Muster__RunSteps *run;   /* under way, or the last one; NULL: there was none */
    Muster__StepsDone *done; /* its answers so far */
    bool is_over;
    int64_t since_ns; /* when it began */
};

static void next(struct ms_steps *s);

struct ms_steps *
ms_steps_create(struct ms_server *server, const struct ms_steps_ops *ops, void *arg)
{
    struct ms_steps *s = calloc(1, sizeof *s);

    if (s)
        *s = (struct ms_steps){.server = server, .ops = ops, .arg = arg};
    return s;
}

static void forget(struct ms_steps *s)
{
    muster__run_steps__free_unpacked(s->run, NULL);
    muster__steps_done__free_unpacked(s->done, NULL);
    s->run = NULL;
    s->done = NULL;
}

void ms_steps_destroy(struct ms_steps *s)
{
    if (!s)
        return;
    forget(s);
    free(s);
}

static void finish(struct ms_steps *s)
{
    s->is_over = true;
    s->ops->on_done(s->arg, s->done);
}

/* A failure of our own; without memory for it the run ends without a failure, and with
 * fewer answers than steps. */
static void fail(struct ms_steps *s, Muster__Failure__Kind kind, const char *message)
{
    Muster__Failure f = MUSTER__FAILURE__INIT;

    f.kind = kind;
    f.message = (char *)(uintptr_t)message;
    s->done->failure = (Muster__Failure *)ms_proto_copy(&f.base);
    finish(s);
}

static int
add_answer(Muster__StepsDone *done, uint8_t codec, const uint8_t *body, size_t len)
{
    Muster__StepAnswer a = MUSTER__STEP_ANSWER__INIT;

    a.codec = codec;
    a.body = (ProtobufCBinaryData){len, (uint8_t *)(uintptr_t)body};
    return ms_proto_append(&done->answers, &done->n_answers, ms_proto_copy(&a.base))
               ? 0
               : -ENOMEM;
}

static void
on_answer(void *arg, uint8_t kind, uint8_t codec, const uint8_t *body, size_t len)
{
    struct ms_steps *s = arg;

    if (kind == MS_KIND_ERROR) {
        s->done->failure = muster__failure__unpack(NULL, len, body);
        if (s->done->failure)
            finish(s);
        else
            fail(s, MUSTER__FAILURE__KIND__NO_MEMORY, "out of memory");
    } else if (add_answer(s->done, codec, body, len) < 0) {
        fail(s, MUSTER__FAILURE__KIND__NO_MEMORY, "out of memory");
    } else {
        next(s);
    }
}

/* The step's op; a negative errno: it has none. */
static int op_of(struct ms_steps *s, const Muster__Step *step)
{
    if (step->op)
        return step->op < MS_OP_METHOD ? (int)step->op : -EINVAL;
    return ms_server_submit_method(s->server, step->engine, step->method);
}

static void next(struct ms_steps *s)
{
    const Muster__Step *step;
    uint8_t *body;
    int op;

    if (s->done->n_answers == s->run->n_steps) {
        finish(s);
        return;
    }
    step = s->run->steps[s->done->n_answers];
    op = op_of(s, step);
    if (op < 0 || step->n_arguments != 1 || step->codec > MS_CODEC_LAST) {
        fail(s, MUSTER__FAILURE__KIND__BAD_ARGUMENT, "this step cannot be run");
        return;
    }
    body = ms_bytes_copy(step->arguments[0].data, step->arguments[0].len);
    if (!body || !ms_server_submit(s->server,
                                   (uint16_t)op,
                                   (uint8_t)step->codec,
                                   body,
                                   step->arguments[0].len,
                                   on_answer,
                                   s))
        fail(s, MUSTER__FAILURE__KIND__NO_MEMORY, "out of memory");
}

static Muster__StepsDone *done_create(const Muster__RunSteps *run)
{
    Muster__StepsDone empty = MUSTER__STEPS_DONE__INIT;

    empty.uid = run->uid;
    empty.run = run->run;
    return (Muster__StepsDone *)ms_proto_copy(&empty.base);
}

/* This run fails now, and no other is touched. */
static void refuse(struct ms_steps *s,
                   const Muster__RunSteps *run,
                   Muster__Failure__Kind kind,
                   const char *message,
                   const char *traceback)
{
    Muster__StepsDone done = MUSTER__STEPS_DONE__INIT;
    Muster__Failure failure = MUSTER__FAILURE__INIT;

    failure.kind = kind;
    failure.message = (char *)(uintptr_t)message;
    failure.traceback = (char *)(uintptr_t)traceback;
    done.uid = run->uid;
    done.run = run->run;
    done.failure = &failure;
    s->ops->on_done(s->arg, &done);
}

static void say_late(struct ms_steps *s, const Muster__RunSteps *run)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf stack = {0};
    const char *text;

    if (s->ops->stack)
        s->ops->stack(s->arg, &stack);
    text = ms_buf_str(&stack);
    refuse(s, run, MUSTER__FAILURE__KIND__DEADLINE, "", text ? text : "");
}

int64_t ms_steps_since_ns(const struct ms_steps *s)
{
    return s->run && !s->is_over ? s->since_ns : 0;
}

void ms_steps_run(struct ms_steps *s, Muster__RunSteps *run)
{
    Muster__StepsDone *done;

    if (run->is_late) {
        say_late(s, run);
        muster__run_steps__free_unpacked(run, NULL);
        return;
    }
    if (s->run && s->run->run == run->run) {
        muster__run_steps__free_unpacked(run, NULL);
        if (s->is_over)
            s->ops->on_done(s->arg, s->done);
        return;
    }
    done = s->run && !s->is_over ? NULL : done_create(run);
    if (!done) {
        refuse(s,
               run,
               MUSTER__FAILURE__KIND__REFUSED,
               "this worker does other steps just now",
               "");
        muster__run_steps__free_unpacked(run, NULL);
        return;
    }
    forget(s);
    s->run = run;
    s->done = done;
    s->is_over = false;
    s->since_ns = ms_now_ns();
    next(s);
}
