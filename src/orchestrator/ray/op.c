#include "orchestrator/launch.h"
#include "orchestrator/ray/ray_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_launch(const struct ms_orch_op *op)
{
    return op->kind == OP_RESERVE || op->kind == OP_GROW;
}

/* ---- completing -------------------------------------------------------------------- */

static void fail(struct ms_orch_op *op, const struct ms_error *why)
{
    struct ms_error said = *why;
    ms_orch_done *done = op->done;
    void *arg = op->arg;

    ms_ray_op_free(op);
    done(arg, said.code, &said, NULL);
}

/* What only asks has two answers beside its own: not allowed, and not now. */
static void fail_to_ask(struct ms_orch_op *op, const struct ms_error *why)
{
    struct ms_error said = *why;

    if (!is_launch(op) && said.code != -EACCES && said.code != -ENOMEM)
        said.code = -EAGAIN;
    fail(op, &said);
}

/* Of what was released nothing stays in the books. */
static void forget(struct ms_orch_op *op)
{
    struct ms_mirror *mirror = &op->ray->mirror;
    struct ms_mirrored *m = ms_mirror_find(mirror, op->key);
    const json_t *numbers = json_object_get(op->request, "pieces");

    if (!m)
        return;
    for (size_t i = 0; i < json_array_size(numbers); i++)
        ms_mirror_remove_piece(
            mirror, m, (uint32_t)json_integer_value(json_array_get(numbers, i)));
    if (!numbers || m->count == 0)
        ms_mirror_remove(mirror, m);
    ms_watches_wake(&op->ray->watches);
}

static void succeed(struct ms_orch_op *op)
{
    struct ray *r = op->ray;
    char key[sizeof op->key];
    ms_orch_done *done = op->done;
    void *arg = op->arg;
    bool tells = op->kind == OP_LIST || is_launch(op);
    struct ms_orch_answer nothing = {.cursor = r->mirror.cursor};

    memcpy(key, op->key, sizeof key);
    if (op->kind == OP_RELEASE)
        forget(op);
    ms_ray_op_free(op);
    if (tells)
        ms_told_answer(&r->mirror, key, done, arg);
    else
        done(arg, 0, NULL, &nothing);
}

void ms_ray_answered(struct ray *r, uint64_t id, int rc, const char *why)
{
    struct ms_error said = {0};

    if (id == r->known_id && r->tie == TIE_STARTING) {
        r->tie = TIE_UP;
        ms_ray_avoid_again(r);
        ms_ray_turn_soon(r);
        return;
    }
    ms_list_each (op, &r->ops, struct ms_orch_op, link) {
        if (op->id != id || op->state != OP_ASKED)
            continue;
        if (rc >= 0) {
            succeed(op);
            return;
        }
        ms_error_set(&said, rc, "%s", why ? why : "the bridge does not say why");
        if (rc == -EAGAIN && is_launch(op) && !op->is_cancelled) {
            op->state = OP_HELD;
            op->why = said;
        } else {
            fail(op, &said);
        }
        return;
    }
}

void ms_ray_ops_down(struct ray *r, bool was_up, const struct ms_error *why)
{
    ms_list_each (op, &r->ops, struct ms_orch_op, link) {
        if (op->state == OP_REFUSED || (was_up && op->state == OP_NEW))
            continue; /* of a bridge that comes after it */
        if (was_up && op->kind == OP_RELEASE)
            succeed(op); /* it has released everything */
        else
            fail_to_ask(op, why);
    }
    ms_ray_turn_soon(r);
}

/* ---- asking ------------------------------------------------------------------------ */

static bool is_silent(const struct ray *r)
{
    return r->is_silent || r->is_ray_silent;
}

static void set_timeout(struct ms_orch_op *op)
{
    int64_t left_ns = op->deadline_ns - ms_now_ns();

    double left_s = left_ns > 1 ? (double)left_ns / 1e9 : 1e-9;

    /* what is longer ends here */
    if (left_s > MS_RAY_LAUNCH_MAX_S)
        left_s = MS_RAY_LAUNCH_MAX_S;
    json_object_set_new(op->request, "timeout_s", json_real(left_s));
    op->give_up_ns = ms_deadline_ns(op->deadline_ns, op->ray->late_ns);
}

static void ask(struct ms_orch_op *op)
{
    struct ray *r = op->ray;
    struct ms_error why = {0};
    int rc;

    if (is_silent(r)) {
        if (!is_launch(op)) {
            fail_to_ask(op, &r->silence);
            return;
        }
        op->state = OP_HELD;
        op->why = r->silence;
        return;
    }
    if (is_launch(op))
        set_timeout(op);
    else
        op->deadline_ns =
            ms_now_ns() + (op->kind == OP_RELEASE ? MS_RAY_FREE_NS : MS_RAY_LIST_NS);
    rc = ms_ray_send(r, op->request, &op->id);
    if (rc == 0) {
        op->state = OP_ASKED;
        return;
    }
    ms_error_sys(&why, rc, "it cannot be asked of the bridge");
    fail(op, &why);
}

/* Whatever it needs to be asked. */
static void begin(struct ms_orch_op *op)
{
    struct ray *r = op->ray;
    struct ms_error why = {0};
    bool durable = r->base.ops->can & MS_ORCH_DURABLE;

    if (r->tie == TIE_UP)
        ask(op);
    else if (r->tie == TIE_DOWN && op->kind == OP_RELEASE && !durable)
        succeed(op); /* without a bridge there is nothing */
    else if (r->tie == TIE_DOWN && ms_ray_tie(r, &why) < 0)
        fail_to_ask(op, &why);
}

/* ---- time -------------------------------------------------------------------------- */

/* With `undo` also what it has won meanwhile: nobody hears of it any more. */
static void send_cancel(struct ms_orch_op *op, bool undo)
{
    json_t *o = json_pack("{s:s, s:I, s:b}",
                          "verb",
                          "cancel",
                          "of",
                          (json_int_t)op->id,
                          "undo",
                          (int)undo);
    uint64_t id;

    op->is_cancel_sent = true;
    if (o && op->ray->carrier)
        ms_ray_send(op->ray, o, &id);
    json_decref(o);
}

static void cancelled(struct ms_orch_op *op)
{
    struct ms_error why = {0};

    if (op->state == OP_ASKED && is_launch(op)) {
        int64_t until_ns = ms_deadline_ns(ms_now_ns(), op->ray->late_ns);

        send_cancel(op, false); /* and its own answer says how that went */
        if (until_ns < op->give_up_ns)
            op->give_up_ns = until_ns;
        return;
    }
    ms_error_set(&why, -ECANCELED, "cancelled");
    fail(op, &why);
}

static void late(struct ms_orch_op *op)
{
    struct ms_error why = {0};
    const char *because = op->why.code             ? op->why.text
                          : op->ray->tie == TIE_UP ? "the bridge does not answer"
                                                   : "there is no bridge on Ray yet";

    if (op->state == OP_ASKED && is_launch(op))
        send_cancel(op, true);
    if (op->is_cancelled)
        ms_error_set(&why, -ECANCELED, "cancelled; %.*s", MS_RAY_WORDS, because);
    else if (is_launch(op))
        ms_error_set(&why,
                     -ETIMEDOUT,
                     "%s: not lent in time: %.*s",
                     op->key,
                     MS_RAY_WORDS,
                     because);
    else
        ms_error_set(&why, -EAGAIN, "%s", because);
    fail(op, &why);
}

/* A launch has told the bridge its deadline: that is to say why not. */
static int64_t give_up_ns(const struct ms_orch_op *op)
{
    return op->state == OP_ASKED && is_launch(op) ? op->give_up_ns : op->deadline_ns;
}

static void turn_one(struct ms_orch_op *op)
{
    if (op->state == OP_REFUSED)
        fail(op, &op->why);
    else if (op->is_cancelled && !op->is_cancel_sent)
        cancelled(op);
    else if (ms_now_ns() >= give_up_ns(op))
        late(op);
    else if (op->state == OP_ASKED && !is_launch(op) && is_silent(op->ray))
        fail_to_ask(op, &op->ray->silence);
    else if (op->state == OP_NEW)
        begin(op);
    else if (op->state == OP_HELD && op->ray->tie == TIE_UP && !is_silent(op->ray))
        ask(op);
}

void ms_ray_turn(void *arg)
{
    struct ray *r = arg;

    r->is_turn_due = false;
    ms_list_each (op, &r->ops, struct ms_orch_op, link)
        turn_one(op);
    if (!ms_list_is_empty(&r->ops) && !r->is_turn_due)
        ms_timer_set(&r->turn, MS_RAY_AGAIN_NS);
}

void ms_ray_turn_soon(struct ray *r)
{
    r->is_turn_due = ms_timer_set(&r->turn, 0) == 0;
}

struct ms_orch_op *ms_ray_op_create(
    struct ray *r, enum op_kind kind, const char *key, ms_orch_done *done, void *arg)
{
    struct ms_orch_op *op = calloc(1, sizeof *op);

    if (!op)
        return NULL;
    op->ray = r;
    op->kind = kind;
    op->done = done;
    op->arg = arg;
    op->deadline_ns = ms_deadline_ns(ms_now_ns(), MS_RAY_START_NS);
    ms_launch_key(op->key, key);
    ms_list_add_tail(&r->ops, &op->link);
    ms_ray_turn_soon(r);
    return op;
}

void ms_ray_op_free(struct ms_orch_op *op)
{
    ms_list_remove(&op->link);
    json_decref(op->request);
    free(op);
}
