#include "base/cleanup.h"
#include "orchestrator/launch.h"
#include "orchestrator/local/local_impl.h"
#include "resource/request_copy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_launch(const struct ms_orch_op *op)
{
    return op->kind == OP_RESERVE || op->kind == OP_GROW;
}

/* ---- the end ----------------------------------------------------------------------- */

void ms_local_op_free(struct ms_orch_op *op)
{
    ms_list_remove(&op->link);
    ms_request_finish(&op->pieces);
    ms_agent_start_finish(&op->start);
    free(op->numbers);
    free(op->node);
    free(op->reason);
    free(op);
}

static void fail(struct ms_orch_op *op, const struct ms_error *why)
{
    op->done(op->arg, why->code, why, NULL);
    ms_local_op_free(op);
}

static void succeed(struct ms_orch_op *op)
{
    static const struct ms_orch_answer nothing = {0};

    if (is_launch(op) || op->kind == OP_LIST)
        ms_told_answer(&op->local->mirror, op->key, op->done, op->arg);
    else
        op->done(op->arg, 0, NULL, &nothing);
    ms_local_op_free(op);
}

/* ---- releasing --------------------------------------------------------------------- */

/* Is this piece meant? */
static bool is_of(const struct ms_orch_op *op, const struct gang *g, size_t i)
{
    if (strcmp(op->key, g->key) != 0)
        return false;
    if (!op->numbers)
        return true;
    for (size_t k = 0; k < op->count; k++)
        if (op->numbers[k] == g->first + (uint32_t)i)
            return true;
    return false;
}

static bool is_clear(const struct ms_orch_op *op)
{
    ms_list_each (g, &op->local->gangs, struct gang, link)
        for (size_t i = 0; i < g->pieces.count; i++)
            if (is_of(op, g, i) && !ms_gang_is_clear(g, g->first + (uint32_t)i))
                return false;
    return true;
}

/* All agents of a gang without pieces have ended: is_clear said so. */
static bool has_living(const struct gang *g)
{
    ms_list_each (p, &g->parts, struct part, link)
        if (p->is_alive)
            return true;
    return false;
}

static void forget(struct ms_orch_op *op)
{
    ms_list_each (g, &op->local->gangs, struct gang, link)
        if (strcmp(g->key, op->key) == 0 && g->left == 0 && !has_living(g))
            ms_gang_destroy(g);
    ms_launch_forget(&op->local->mirror, op->key, op->numbers, op->count);
    ms_watches_wake(&op->local->watches);
    ms_local_turn_soon(op->local); /* who waits for the key */
}

static void begin_clearing(struct ms_orch_op *op)
{
    op->state = OP_CLEARING;
    op->deadline_ns = MS_NEVER; /* agents are killed after their grace */
    ms_list_each (g, &op->local->gangs, struct gang, link)
        for (size_t i = 0; i < g->pieces.count; i++)
            if (is_of(op, g, i))
                ms_gang_release(g, g->first + (uint32_t)i);
    ms_local_turn_soon(op->local);
}

static void clear(struct ms_orch_op *op)
{
    struct ms_error why = op->why;

    if (!is_clear(op))
        return;
    forget(op);
    if (why.code)
        fail(op, &why);
    else
        succeed(op);
}

/* ---- what has failed --------------------------------------------------------------- */

/* Another one wants the same pieces. */
static bool has_other(const struct ms_orch_op *op)
{
    ms_list_each (other, &op->local->ops, struct ms_orch_op, link)
        if (other != op && op->kind == OP_RESERVE && other->kind == OP_RESERVE &&
            other->state == OP_WAITING && strcmp(other->key, op->key) == 0)
            return true;
    return false;
}

/* Nothing of it may be left: of a grown reservation what is new. */
static void undo(struct ms_orch_op *op, const struct ms_error *because)
{
    struct ms_error why = *because;

    if (has_other(op)) {
        fail(op, &why);
        return;
    }
    op->why = why;
    if (op->kind == OP_GROW) { /* `numbers` was made for this in time */
        op->count = op->pieces.count;
        for (size_t i = 0; i < op->count; i++)
            op->numbers[i] = op->first + (uint32_t)i;
    }
    begin_clearing(op);
}

/* ---- launches ---------------------------------------------------------------------- */

static struct ms_launch launch_of(const struct ms_orch_op *op)
{
    return (struct ms_launch){.key = op->key,
                              .is_grow = op->kind == OP_GROW,
                              .mark = op->mark,
                              .count = op->pieces.count,
                              .first = op->first};
}

static void step(struct ms_orch_op *op)
{
    const struct gang *g = ms_gang_find(op->local, op->key, op->first);
    struct ms_launch launch = launch_of(op);
    struct ms_error why = {0};
    int at = ms_launch_progress(&op->local->mirror, &launch, &why);

    if (g && !g->is_placed && g->why.code == -EINVAL)
        undo(op, &g->why); /* it contradicts itself: no room will help */
    else if (at > 0)
        succeed(op);
    else if (at < 0)
        undo(op, &why);
}

/* NULL: out of memory. */
static struct gang *create_gang(const struct ms_orch_op *op, uint32_t first)
{
    const struct ms_agent_start start = {.head = op->start.head,
                                         .secret_file = op->start.secret_file,
                                         .env = (const char *const *)op->start.env};
    const struct ms_reserve request = {
        .key = op->key, .pieces = op->pieces, .agent = &start};

    return ms_gang_create(op->local, &request, first);
}

/* Its pieces are written down, and wait for room. */
static void launch(struct ms_orch_op *op)
{
    struct ms_launch launch = launch_of(op);
    struct ms_mirror *m = &op->local->mirror;
    struct ms_error why = {0};
    int rc = ms_launch_begin(m, &launch, &why);

    if (rc > 0 && !create_gang(op, launch.first)) {
        ms_launch_undo(m, &launch);
        rc = ms_error_set(&why, -ENOMEM, "reservation '%s': out of memory", op->key);
    }
    if (rc < 0) {
        fail(op, &why);
        return;
    }
    if (rc == 0 && !has_other(op) && ms_launch_is_held(m, &launch)) {
        succeed(op);
        return;
    }
    op->first = launch.first;
    op->state = OP_WAITING;
    ms_local_turn_soon(op->local);
}

/* What had this key is on its way out. */
static bool is_clearing(const struct ms_orch_op *op)
{
    ms_list_each (other, &op->local->ops, struct ms_orch_op, link)
        if (other->state == OP_CLEARING && !other->numbers &&
            strcmp(other->key, op->key) == 0)
            return true;
    return false;
}

/* ---- the others -------------------------------------------------------------------- */

static void avoid(struct ms_orch_op *op)
{
    struct local *l = op->local;
    struct ms_stock_node *n = ms_stock_find(&l->stock, op->node);
    struct ms_error why = {0};

    if (!n) {
        ms_error_set(&why, -ENOENT, "there is no node '%.64s'", op->node);
        fail(op, &why);
        return;
    }
    n->is_gone = true;
    free(l->avoided[n - l->stock.nodes]);
    l->avoided[n - l->stock.nodes] = MS_TAKE(op->reason);
    succeed(op);
}

static void begin(struct ms_orch_op *op)
{
    if (op->kind == OP_LIST)
        succeed(op);
    else if (op->kind == OP_AVOID)
        avoid(op);
    else if (op->kind == OP_RELEASE)
        begin_clearing(op);
    else if (!is_clearing(op))
        launch(op);
}

/* ---- time -------------------------------------------------------------------------- */

static void stop_early(struct ms_orch_op *op, int rc)
{
    const struct gang *g = ms_gang_find(op->local, op->key, op->first);
    bool waits = op->state == OP_WAITING && g && !g->is_placed && g->why.code;
    struct ms_error why = {0};

    if (rc == -ECANCELED)
        ms_error_set(&why, rc, "%s: cancelled", op->key);
    else
        ms_error_set(&why,
                     rc,
                     "%s: not lent in time: %.180s",
                     op->key,
                     waits ? g->why.text : "its agents have not all joined the head");
    if (op->state == OP_WAITING)
        undo(op, &why);
    else
        fail(op, &why);
}

static void turn_one(struct ms_orch_op *op)
{
    struct ms_error why = op->why;

    if (op->state == OP_CLEARING)
        clear(op);
    else if (op->state == OP_REFUSED)
        fail(op, &why);
    else if (op->is_cancelled)
        stop_early(op, -ECANCELED);
    else if (op->state == OP_NEW && op->deadline_ns > ms_now_ns())
        begin(op);
    else if (op->state == OP_WAITING)
        step(op);
}

/* When to look again. */
static int64_t expire(struct ms_orch_op *op, int64_t now_ns)
{
    if (!is_launch(op) || op->state == OP_CLEARING || op->state == OP_REFUSED)
        return MS_NEVER;
    if (now_ns < op->deadline_ns)
        return op->deadline_ns;
    stop_early(op, -ETIMEDOUT);
    return MS_NEVER;
}

void ms_local_turn(void *arg)
{
    struct local *l = arg;
    int64_t now_ns, next_ns = MS_NEVER;

    l->is_turn_due = false;
    ms_list_each (op, &l->ops, struct ms_orch_op, link)
        turn_one(op);
    ms_gangs_place(l);
    now_ns = ms_now_ns();
    ms_list_each (op, &l->ops, struct ms_orch_op, link) {
        int64_t at_ns = expire(op, now_ns);

        if (at_ns < next_ns)
            next_ns = at_ns;
    }
    if (l->is_turn_due)
        next_ns = now_ns;
    if (next_ns != MS_NEVER)
        ms_timer_set(&l->turn, next_ns > now_ns ? next_ns - now_ns : 0);
}

void ms_local_turn_soon(struct local *l)
{
    l->is_turn_due = true;
    ms_timer_set(&l->turn, 0);
}

struct ms_orch_op *ms_local_op_create(
    struct local *l, enum op_kind kind, const char *key, ms_orch_done *done, void *arg)
{
    struct ms_orch_op *op = calloc(1, sizeof *op);

    if (!op)
        return NULL;
    *op = (struct ms_orch_op){
        .local = l, .kind = kind, .done = done, .arg = arg, .deadline_ns = MS_NEVER};
    ms_launch_key(op->key, key);
    ms_list_add_tail(&l->ops, &op->link);
    ms_local_turn_soon(l);
    return op;
}
