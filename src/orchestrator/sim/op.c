#include "base/cleanup.h"
#include "orchestrator/launch.h"
#include "orchestrator/sim/sim_impl.h"
#include "resource/request_copy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_launch(const struct ms_orch_op *op)
{
    return op->kind == MS_SIM_RESERVE || op->kind == MS_SIM_GROW;
}

/* ---- the end ------------------------------------------------------------------------ */

void ms_sim_op_free(struct ms_orch_op *op)
{
    ms_list_remove(&op->link);
    ms_request_finish(&op->pieces);
    free(op->numbers);
    free(op);
}

static void fail(struct ms_orch_op *op, const struct ms_error *why)
{
    if (op->done)
        op->done(op->arg, why->code, why, NULL);
    ms_sim_op_free(op);
}

static void succeed(struct ms_orch_op *op)
{
    static const struct ms_orch_answer nothing = {0};

    if (is_launch(op) || op->kind == MS_SIM_LIST)
        ms_told_answer(&op->sim->mirror, op->key, op->done, op->arg);
    else if (op->done)
        op->done(op->arg, 0, NULL, &nothing);
    ms_sim_op_free(op);
}

/* ---- asking -------------------------------------------------------------------------- */

/* Also again: what is done is not done twice. What is lost is asked again by the tick. */
static void ask(struct ms_orch_op *op)
{
    struct sim *s = op->sim;

    op->request = ++s->asked;
    if (op->state == MS_SIM_UNDOING || op->kind == MS_SIM_RELEASE)
        ms_sim_stop(s->engine, op->request, op->key, op->numbers, op->count);
    else if (op->kind == MS_SIM_AVOID)
        ms_sim_cordon(s->engine, op->request, op->key);
    else if (op->kind == MS_SIM_LIST)
        ms_sim_ask_all(s->engine, op->request);
    else
        ms_sim_launch(
            s->engine, op->request, op->key, op->first, &op->pieces, op->mark);
}

/* Another one wants the same pieces. */
static bool has_other(const struct ms_orch_op *op)
{
    ms_list_each (other, &op->sim->ops, struct ms_orch_op, link)
        if (other != op && other->kind == MS_SIM_RESERVE &&
            op->kind == MS_SIM_RESERVE && other->state == MS_SIM_ASKED &&
            strcmp(other->key, op->key) == 0)
            return true;
    return false;
}

/* Nothing of it may be left: of a grown reservation what is new. */
static void stop_pieces(struct ms_orch_op *op, const struct ms_error *why)
{
    uint32_t *numbers =
        op->kind == MS_SIM_GROW ? calloc(op->pieces.count, sizeof *numbers) : NULL;

    op->why = *why;
    op->state = MS_SIM_UNDOING;
    op->deadline_ns = ms_deadline_ns(ms_sim_now_ns(op->sim->engine), MS_SIM_UNDO_NS);
    for (size_t i = 0; numbers && i < op->pieces.count; i++)
        numbers[i] = op->first + (uint32_t)i;
    op->numbers = numbers;
    op->count = numbers ? op->pieces.count : 0;
    ask(op);
}

/* It has failed. */
static void undo(struct ms_orch_op *op, const struct ms_error *why)
{
    struct ms_error because = *why;

    if (has_other(op))
        fail(op, &because);
    else
        stop_pieces(op, &because);
}

static void forget_pieces(struct ms_orch_op *op)
{
    ms_launch_forget(&op->sim->mirror, op->key, op->numbers, op->count);
    ms_watches_wake(&op->sim->watches);
}

void ms_sim_op_answered(struct ms_orch_op *op, int rc, const struct ms_error *why)
{
    if (op->state == MS_SIM_UNDOING) {
        struct ms_error because = op->why;

        forget_pieces(op);
        fail(op, &because);
    } else if (is_launch(op)) {
        if (rc == -EBUSY)
            op->why = *why; /* why it still waits */
        else if (rc < 0)
            undo(op, why);
    } else if (rc < 0) {
        fail(op, why);
    } else {
        if (op->kind == MS_SIM_RELEASE)
            forget_pieces(op);
        succeed(op);
    }
}

/* ---- launches ------------------------------------------------------------------------ */

static struct ms_launch launch_of(const struct ms_orch_op *op)
{
    return (struct ms_launch){.key = op->key,
                              .is_grow = op->kind == MS_SIM_GROW,
                              .mark = op->mark,
                              .count = op->pieces.count,
                              .first = op->first};
}

void ms_sim_op_step(struct ms_orch_op *op)
{
    struct ms_launch launch = launch_of(op);
    struct ms_error why = {0};
    int at;

    if (op->state != MS_SIM_ASKED || !is_launch(op))
        return;
    at = ms_launch_progress(&op->sim->mirror, &launch, &why);
    if (at > 0)
        succeed(op);
    else if (at < 0)
        undo(op, &why);
}

/* Its pieces are written down, and asked for. */
static void launch(struct ms_orch_op *op)
{
    struct ms_launch launch = launch_of(op);
    struct ms_error why = {0};
    int rc = ms_launch_begin(&op->sim->mirror, &launch, &why);

    if (rc < 0) {
        fail(op, &why);
        return;
    }
    if (rc == 0 && !has_other(op) && ms_launch_is_held(&op->sim->mirror, &launch)) {
        succeed(op);
        return;
    }
    op->first = launch.first;
    ask(op);
    if (rc == 0) /* the same again: it ends as that one does */
        ms_sim_op_step(op);
}

static void begin(struct ms_orch_op *op)
{
    op->state = MS_SIM_ASKED;
    if (is_launch(op))
        launch(op);
    else
        ask(op);
}

/* ---- time ---------------------------------------------------------------------------- */

static void give_up(struct ms_orch_op *op)
{
    struct ms_error why = {0};

    if (op->state == MS_SIM_UNDOING) { /* it is tried on, but nobody waits for that */
        ms_orch_done *done = MS_TAKE(op->done);

        op->deadline_ns = MS_NEVER;
        ms_error_wrap(&op->why, "it could not be undone yet");
        if (done)
            done(op->arg, op->why.code, &op->why, NULL);
    } else if (is_launch(op)) {
        ms_error_set(&why,
                     -ETIMEDOUT,
                     "%s: not lent in time%s%.160s",
                     op->key,
                     op->why.code ? ": " : "",
                     op->why.text);
        if (op->state == MS_SIM_NEW)
            fail(op, &why);
        else
            undo(op, &why);
    } else {
        ms_error_set(&why, -EAGAIN, "the engine does not answer");
        fail(op, &why);
    }
}

static void cancelled(struct ms_orch_op *op)
{
    struct ms_error why = {0};

    op->is_cancelled = false;
    ms_error_set(&why, -ECANCELED, "cancelled");
    if (op->state == MS_SIM_ASKED && is_launch(op))
        undo(op, &why);
    else if (op->state != MS_SIM_UNDOING)
        fail(op, &why);
}

static void turn_one(struct ms_orch_op *op)
{
    struct ms_error why = op->why;

    if (op->state == MS_SIM_REFUSED)
        fail(op, &why);
    else if (op->is_cancelled)
        cancelled(op);
    else if (ms_sim_now_ns(op->sim->engine) >= op->deadline_ns)
        give_up(op);
    else if (op->state == MS_SIM_NEW && (op->sim->is_known || op->kind == MS_SIM_LIST))
        begin(op);
}

static void tick(void *arg);

static void turn(void *arg)
{
    struct sim *s = arg;

    s->is_turning = false;
    ms_list_each (op, &s->ops, struct ms_orch_op, link)
        turn_one(op);
    if (!s->is_known && !s->compare)
        ms_sim_compare(s);
}

void ms_sim_turn_soon(struct sim *s)
{
    struct ms_sim_clock *c = ms_sim_clock(s->engine);

    if (!s->is_turning)
        s->is_turning = ms_sim_clock_add(c, 0, turn, s) != 0;
    if (!s->is_ticking)
        s->is_ticking = ms_sim_clock_add(c, MS_SIM_ASK_AGAIN_NS, tick, s) != 0;
}

static void tick(void *arg)
{
    struct sim *s = arg;

    s->is_ticking = false;
    ms_list_each (op, &s->ops, struct ms_orch_op, link)
        if (op->state == MS_SIM_ASKED || op->state == MS_SIM_UNDOING)
            ask(op);
    if (!s->is_known || ms_sim_now_ns(s->engine) >= s->compared_ns + MS_SIM_COMPARE_NS)
        ms_sim_compare(s);
    if (!ms_list_is_empty(&s->ops) || !ms_list_is_empty(&s->watches.all))
        ms_sim_turn_soon(s);
}

struct ms_orch_op *ms_sim_op_create(struct ms_orchestrator *o,
                                    enum ms_sim_kind kind,
                                    const char *key,
                                    ms_orch_done *done,
                                    void *arg)
{
    struct ms_orch_op *op = calloc(1, sizeof *op);
    struct sim *s = (struct sim *)o;

    if (!op)
        return NULL;
    op->sim = s;
    op->kind = kind;
    op->done = done;
    op->arg = arg;
    op->deadline_ns = ms_deadline_ns(ms_sim_now_ns(s->engine), MS_SIM_GIVE_UP_NS);
    ms_launch_key(op->key, key);
    ms_list_add_tail(&s->ops, &op->link);
    ms_sim_turn_soon(s);
    return op;
}
