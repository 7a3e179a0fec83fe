/* sim.c - the orchestrator `sim`: operations (op.h) on a simulated backend, in its time */
#include "orchestrator/sim/sim.h"

#include "orchestrator/op.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ASK_AGAIN_NS (5 * MS_NS_PER_S)   /* without an answer */
#define GIVE_UP_NS   (30 * MS_NS_PER_S)  /* of what only asks: "could not ask" */
#define COMPARE_NS   (10 * MS_NS_PER_S)  /* with all that there is */
#define UNDO_NS      (600 * MS_NS_PER_S) /* then nobody waits for it any more */

struct sim {
    struct ms_controller controller;
    struct ms_sim *backend;
    uint64_t asked;      /* the last request's number */
    uint64_t compare;    /* that of the last comparison */
    int64_t compared_ns; /* when it was asked for */
    bool is_known;       /* what the controller before had is in the inventory */
    bool is_ticking;
};

static struct sim *sim_of(const struct ms_orch_op *op)
{
    return (struct sim *)op->controller;
}

static void compare(struct sim *s)
{
    s->compare = ++s->asked;
    s->compared_ns = ms_sim_now_ns(s->backend);
    ms_sim_ask_all(s->backend, s->compare);
}

/* ---- time -------------------------------------------------------------------------- */

static int64_t now_ns(const struct ms_controller *c)
{
    return ms_sim_now_ns(((const struct sim *)c)->backend);
}

static void turn(void *arg)
{
    struct sim *s = arg;

    ms_controller_turn(&s->controller);
    if (!s->is_known && !s->compare)
        compare(s);
}

static void tick(void *arg);

static void wake(struct ms_controller *c)
{
    struct sim *s = (struct sim *)c;
    struct ms_sim_clock *clock = ms_sim_clock(s->backend);

    if (!c->is_turn_due)
        c->is_turn_due = ms_sim_clock_add(clock, 0, turn, s) != 0;
    if (!s->is_ticking)
        s->is_ticking = ms_sim_clock_add(clock, ASK_AGAIN_NS, tick, s) != 0;
}

/* ---- asking ------------------------------------------------------------------------ */

/* Also again: what is done is not done twice. What is lost is asked again by the tick. */
static void ask(struct ms_orch_op *op)
{
    struct sim *s = sim_of(op);

    op->request = ++s->asked;
    if (op->state == MS_OP_UNDOING || op->kind == MS_OP_RELEASE)
        ms_sim_stop(s->backend, op->request, op->key, op->numbers, op->count);
    else if (op->kind == MS_OP_AVOID)
        ms_sim_cordon(s->backend, op->request, op->node);
    else if (op->kind == MS_OP_LIST)
        ms_sim_ask_all(s->backend, op->request);
    else
        ms_sim_launch(
            s->backend, op->request, op->key, op->first, &op->pieces, op->mark);
}

static int launch(struct ms_orch_op *op, bool is_new)
{
    (void)is_new;
    ask(op);
    return 0;
}

static void begin(struct ms_orch_op *op)
{
    if (!sim_of(op)->is_known && op->kind != MS_OP_LIST)
        return;
    if (ms_op_is_launch(op)) {
        ms_op_launch(op);
        return;
    }
    op->state = MS_OP_ASKED;
    ask(op);
}

static void tick(void *arg)
{
    struct sim *s = arg;
    struct ms_controller *c = &s->controller;

    s->is_ticking = false;
    ms_list_each (op, &c->ops, struct ms_orch_op, link)
        if (op->state == MS_OP_ASKED || op->state == MS_OP_UNDOING)
            ask(op);
    if (!s->is_known || now_ns(c) >= s->compared_ns + COMPARE_NS)
        compare(s);
    if (!ms_list_is_empty(&c->ops) || !ms_list_is_empty(&c->watches))
        wake(c);
}

static const char *why_late(const struct ms_orch_op *op)
{
    return ms_op_is_launch(op) ? op->why.text : "the backend does not answer";
}

/* ---- what is heard ----------------------------------------------------------------- */

static void check_launches(struct sim *s)
{
    ms_controller_news(&s->controller);
    ms_list_each (op, &s->controller.ops, struct ms_orch_op, link)
        if (op->state == MS_OP_ASKED && ms_op_is_launch(op))
            ms_op_check_pieces(op);
    wake(&s->controller);
}

static void on_news(void *arg, const char *key, const struct ms_lent_piece *piece)
{
    struct sim *s = arg;
    struct ms_inventory *m = &s->controller.inventory;
    struct ms_inventory_entry *r = ms_inventory_find(m, key);

    if (r && ms_inventory_update(m, r, piece) > 0)
        check_launches(s);
}

/* One of all the pieces. What is not known here is of a controller before. */
static void compare_one(void *arg,
                        const char *key,
                        uint64_t mark,
                        const struct ms_lent_piece *piece)
{
    struct sim *s = arg;
    struct ms_inventory *m = &s->controller.inventory;
    struct ms_inventory_entry *r = ms_inventory_find(m, key);

    if (!r) {
        if (s->is_known || !(r = ms_inventory_add(m, key)))
            return; /* it is being stopped, and its key forgotten */
        r->owner = (void *)(uintptr_t)mark;
    }
    /* numbers are never used again: those before it may be gone */
    if ((piece->number >= r->next || !s->is_known) &&
        ms_inventory_adopt_piece(r, piece->number) < 0)
        return;
    ms_inventory_update(m, r, piece);
}

static void compared(struct sim *s)
{
    ms_sim_each(s->backend, compare_one, s);
    s->is_known = true;
    check_launches(s);
}

static void answered(struct ms_orch_op *op, int rc, const struct ms_error *why)
{
    if (op->state == MS_OP_UNDOING)
        ms_op_stopped(op);
    else if (ms_op_is_launch(op) && rc == -EBUSY)
        op->why = *why; /* why it still waits */
    else if (ms_op_is_launch(op) && rc < 0)
        ms_op_undo(op, why);
    else if (rc < 0)
        ms_op_fail(op, why);
    else if (!ms_op_is_launch(op))
        ms_op_succeed(op);
}

static void on_reply(void *arg, uint64_t request, int rc, const struct ms_error *why)
{
    struct sim *s = arg;

    if (request == s->compare) {
        compared(s);
        return;
    }
    ms_list_each (op, &s->controller.ops, struct ms_orch_op, link)
        if (op->request == request && op->state != MS_OP_NEW) {
            if (op->kind == MS_OP_LIST && rc == 0)
                compared(s);
            answered(op, rc, why);
            return;
        }
}

/* ---- life -------------------------------------------------------------------------- */

static void destroy(struct ms_orchestrator *o)
{
    struct sim *s = (struct sim *)o;

    ms_sim_listen(s->backend, NULL);
    ms_sim_clock_cancel(ms_sim_clock(s->backend), s);
    ms_controller_finish(&s->controller);
    free(s);
}

struct ms_orchestrator *ms_orchestrator_sim(struct ms_sim *backend)
{
    static const struct ms_orchestrator_ops ops = {
        .name = "sim",
        .can = MS_ORCH_BUNDLES | MS_ORCH_LABELS | MS_ORCH_SAME | MS_ORCH_AVOID |
               MS_ORCH_GROW | MS_ORCH_DURABLE,
        MS_CONTROLLER_OPS,
        .destroy = destroy,
    };
    static const struct ms_backend hooks = {
        .now_ns = now_ns,
        .wake = wake,
        .answer_ns = GIVE_UP_NS,
        .undo_ns = UNDO_NS,
        .begin = begin,
        .launch = launch,
        .stop = ask,
        .why_late = why_late,
    };
    struct sim *s = calloc(1, sizeof *s);
    const struct ms_sim_listener listener = {
        .on_reply = on_reply, .on_news = on_news, .arg = s};

    if (!s)
        return NULL;
    s->backend = backend;
    /* cursors of a controller before are older than all of this one */
    ms_controller_init(&s->controller,
                       &ops,
                       &hooks,
                       NULL,
                       (uint64_t)ms_sim_listen(backend, &listener) << 32);
    return &s->controller.base;
}
