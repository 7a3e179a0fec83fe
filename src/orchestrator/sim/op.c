#include "base/cleanup.h"
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
    struct ms_mirror *m = &op->sim->mirror;
    struct ms_mirrored *r = ms_mirror_find(m, op->key);

    if (!r)
        return;
    for (size_t i = 0; i < op->count; i++)
        ms_mirror_remove_piece(m, r, op->numbers[i]);
    if (op->count == 0 || r->count == 0)
        ms_mirror_remove(m, r);
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

/* Its own pieces: all run (1), one has ended (-1), neither (0). */
static int progress(const struct ms_orch_op *op, const struct ms_lent_piece **ended)
{
    struct ms_mirrored *r = ms_mirror_find(&op->sim->mirror, op->key);
    bool all = r != NULL;

    if (r && op->kind == MS_SIM_RESERVE && r->in_phase[MS_PHASE_ENDED] == 0)
        return ms_mirrored_is(r, MS_PHASE_RUNNING); /* without a look at each */
    for (size_t i = 0; r && i < op->pieces.count; i++) {
        const struct ms_lent_piece *p = ms_mirror_piece(r, op->first + (uint32_t)i);

        if (!p || p->phase == MS_PHASE_ENDED) {
            *ended = p;
            return -1;
        }
        all = all && p->phase == MS_PHASE_RUNNING;
    }
    return all;
}

void ms_sim_op_step(struct ms_orch_op *op)
{
    const struct ms_lent_piece *ended = NULL;
    struct ms_error why = {0};
    int at;

    if (op->state != MS_SIM_ASKED || !is_launch(op))
        return;
    at = progress(op, &ended);
    if (at > 0)
        succeed(op);
    if (at >= 0)
        return;
    ms_error_set(&why,
                 -ECHILD,
                 "%s: piece %u on %s ended: %s",
                 op->key,
                 ended ? ended->number : op->first,
                 ended && ended->node ? ended->node : "no node",
                 ended ? ms_cause_name(ended->cause) : "it was released");
    undo(op, &why);
}

static void refuse(struct ms_orch_op *op, int rc, const char *what)
{
    struct ms_error why = {0};

    ms_error_set(&why, rc, "reservation '%s': %s", op->key, what);
    fail(op, &why);
}

/* Its pieces are written down, and asked for. */
static void launch(struct ms_orch_op *op, struct ms_mirrored *r)
{
    int64_t first = ms_mirror_add_pieces(&op->sim->mirror, r, op->pieces.count);

    if (first < 0) {
        if (r->count == 0)
            ms_mirror_remove(&op->sim->mirror, r);
        refuse(op, (int)first, "too many pieces, or no memory");
        return;
    }
    op->first = (uint32_t)first;
    ask(op);
}

static void begin_reserve(struct ms_orch_op *op)
{
    struct ms_mirror *m = &op->sim->mirror;
    struct ms_mirrored *r = ms_mirror_find(m, op->key);

    if (r && (uint64_t)(uintptr_t)r->owner != op->mark) {
        refuse(op, -EEXIST, "another one has this key");
        return;
    }
    if (r) { /* the same again: it ends as that one does */
        ask(op);
        ms_sim_op_step(op);
        return;
    }
    r = ms_mirror_add(m, op->key);
    if (!r) {
        refuse(op, -ENOMEM, "out of memory");
        return;
    }
    r->owner = (void *)(uintptr_t)op->mark;
    launch(op, r);
}

static void begin(struct ms_orch_op *op)
{
    struct ms_mirrored *r = ms_mirror_find(&op->sim->mirror, op->key);

    op->state = MS_SIM_ASKED;
    if (op->kind == MS_SIM_RESERVE)
        begin_reserve(op);
    else if (op->kind != MS_SIM_GROW)
        ask(op);
    else if (r)
        launch(op, r);
    else
        refuse(op, -ENOENT, "there is none");
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
    snprintf(op->key, sizeof op->key, "%s", key ? key : "");
    ms_list_add_tail(&s->ops, &op->link);
    ms_sim_turn_soon(s);
    return op;
}
