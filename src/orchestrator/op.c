/* op.c - the life of an operation, from the call to its completion */
#include "orchestrator/op.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool ms_op_is_launch(const struct ms_orch_op *op)
{
    return op->kind == MS_OP_RESERVE || op->kind == MS_OP_GROW;
}

static int64_t now_ns(const struct ms_controller *c)
{
    return c->backend->now_ns ? c->backend->now_ns(c) : ms_now_ns();
}

static int64_t op_now_ns(const struct ms_orch_op *op)
{
    return now_ns(op->controller);
}

/* ---- completing -------------------------------------------------------------------- */

static void op_free(struct ms_orch_op *op)
{
    ms_list_remove(&op->link);
    ms_place_request_finish(&op->pieces);
    ms_agent_start_finish(&op->agent);
    free(op->numbers);
    free(op->node);
    free(op->reason);
    free(op);
}

void ms_op_fail(struct ms_orch_op *op, const struct ms_error *why)
{
    struct ms_error said = *why;
    ms_orch_done *done = op->done;
    void *arg = op->arg;

    op_free(op);
    if (done)
        done(arg, said.code, &said, NULL);
}

/* What it names is no more: its numbers, or with NULL all, and the reservation itself if
 * it has no pieces left. */
static void forget(struct ms_orch_op *op)
{
    struct ms_inventory *m = &op->controller->inventory;
    struct ms_inventory_entry *r = ms_inventory_find(m, op->key);

    for (size_t i = 0; r && op->numbers && i < op->count; i++)
        ms_inventory_remove_piece(m, r, op->numbers[i]);
    if (r && (!op->numbers || r->count == 0))
        ms_inventory_remove(m, r);
    ms_controller_news(op->controller);
}

void ms_op_succeed(struct ms_orch_op *op)
{
    const struct ms_inventory *m = &op->controller->inventory;
    struct ms_orch_answer answer = {.cursor = m->cursor};
    struct ms_error why = {0};
    ms_orch_done *done = op->done;
    void *arg = op->arg;
    int rc = 0;

    if (op->kind == MS_OP_RELEASE)
        forget(op);
    else if (op->kind != MS_OP_AVOID)
        rc = ms_inventory_answer(m, op->key[0] ? op->key : NULL, &answer);
    answer.first = op->first;
    if (rc < 0)
        ms_error_set(&why,
                     rc,
                     rc == -ENOENT ? "there is no reservation '%s'"
                                   : "reservation '%s': out of memory",
                     op->key);
    op_free(op);
    if (done)
        done(arg, rc, rc < 0 ? &why : NULL, rc < 0 ? NULL : &answer);
    ms_inventory_answer_finish(&answer);
}

/* ---- undoing ----------------------------------------------------------------------- */

/* Another one wants the same pieces. */
static bool has_other(const struct ms_orch_op *op)
{
    ms_list_each (other, &op->controller->ops, struct ms_orch_op, link)
        if (other != op && op->kind == MS_OP_RESERVE && other->kind == MS_OP_RESERVE &&
            other->state == MS_OP_ASKED && strcmp(other->key, op->key) == 0)
            return true;
    return false;
}

void ms_op_stop(struct ms_orch_op *op)
{
    const struct ms_backend *e = op->controller->backend;

    op->state = MS_OP_UNDOING;
    op->give_up_ns = ms_deadline_ns(op_now_ns(op), e->undo_ns);
    e->stop(op);
}

void ms_op_undo(struct ms_orch_op *op, const struct ms_error *why)
{
    struct ms_error because = *why;

    if (has_other(op)) {
        ms_op_fail(op, &because);
        return;
    }
    op->why = because;
    if (op->kind == MS_OP_GROW) { /* there is room for them since its beginning */
        op->count = op->piece_count;
        for (size_t i = 0; i < op->count; i++)
            op->numbers[i] = op->first + (uint32_t)i;
    }
    ms_op_stop(op);
}

void ms_op_stopped(struct ms_orch_op *op)
{
    if (!op->why.code) {
        ms_op_succeed(op);
        return;
    }
    forget(op);
    ms_op_fail(op, &op->why);
}

/* ---- launching --------------------------------------------------------------------- */

static int
refuse(const struct ms_orch_op *op, int rc, const char *what, struct ms_error *why)
{
    return ms_error_set(why, rc, "reservation '%s': %s", op->key, what);
}

static int
add_pieces(struct ms_orch_op *op, struct ms_inventory_entry *r, struct ms_error *why)
{
    struct ms_inventory *m = &op->controller->inventory;
    int64_t first = ms_inventory_add_pieces(r, op->piece_count);

    if (first >= 0) {
        op->first = (uint32_t)first;
        return 1;
    }
    if (r->count == 0)
        ms_inventory_remove(m, r);
    return refuse(op, (int)first, "too many pieces, or no memory", why);
}

/* Its pieces are in the inventory: 1. 0: a reserve of what is there already. Or the reason. */
static int record(struct ms_orch_op *op, struct ms_error *why)
{
    struct ms_inventory *m = &op->controller->inventory;
    struct ms_inventory_entry *r = ms_inventory_find(m, op->key);

    if (op->kind == MS_OP_GROW)
        return r ? add_pieces(op, r, why) : refuse(op, -ENOENT, "there is none", why);
    if (r && (uint64_t)(uintptr_t)r->owner != op->mark)
        return refuse(op, -EEXIST, "another one has this key", why);
    if (r)
        return 0;
    r = ms_inventory_add(m, op->key);
    if (!r)
        return refuse(op, -ENOMEM, "out of memory", why);
    r->owner = (void *)(uintptr_t)op->mark;
    return add_pieces(op, r, why);
}

/* They came to nothing at once. */
static void unrecord(struct ms_orch_op *op)
{
    struct ms_inventory *m = &op->controller->inventory;
    struct ms_inventory_entry *r = ms_inventory_find(m, op->key);

    for (size_t i = 0; r && i < op->piece_count; i++)
        ms_inventory_remove_piece(m, r, op->first + (uint32_t)i);
    if (r && r->count == 0)
        ms_inventory_remove(m, r);
}

/* Nobody waits for it, and it has pieces that run and pieces that have ended: it was lent,
 * and to reserve the same again is to have it as it is. Others may just be added to it. */
static bool is_held(const struct ms_orch_op *op)
{
    const struct ms_inventory_entry *r =
        ms_inventory_find(&op->controller->inventory, op->key);

    return !has_other(op) && r && r->in_phase[MS_PHASE_RUNNING] > 0 &&
           r->in_phase[MS_PHASE_ENDED] > 0;
}

void ms_op_launch(struct ms_orch_op *op)
{
    const struct ms_backend *e = op->controller->backend;
    struct ms_error why = {0};
    int rc = record(op, &why);

    if (rc == 0 && is_held(op)) {
        ms_op_succeed(op);
        return;
    }
    op->state = MS_OP_ASKED;
    if (rc >= 0 && e->launch(op, rc > 0) < 0) {
        if (rc > 0)
            unrecord(op);
        rc = refuse(op, -ENOMEM, "out of memory", &why);
    }
    if (rc < 0)
        ms_op_fail(op, &why);
    else if (rc == 0) /* the same again: it ends as that one does */
        ms_op_check_pieces(op);
}

static int say_ended(const struct ms_orch_op *op,
                     const struct ms_lent_piece *p,
                     struct ms_error *why)
{
    return ms_error_set(why,
                        -ECHILD,
                        "%s: piece %u on %s ended (%s)%s%.150s",
                        op->key,
                        p ? p->number : op->first,
                        p && p->node ? p->node : "no node",
                        p ? ms_cause_name(p->cause) : "it was released",
                        p && p->detail ? ": " : "",
                        p && p->detail ? p->detail : "");
}

/* All run: 1; not all, so far: 0; one has ended or is gone: -ECHILD with the reason. */
static int progress(const struct ms_orch_op *op, struct ms_error *why)
{
    const struct ms_inventory_entry *r =
        ms_inventory_find(&op->controller->inventory, op->key);
    bool is_grow = op->kind == MS_OP_GROW, all = true;
    size_t count = is_grow || !r ? op->piece_count : r->count;

    if (!r)
        return say_ended(op, NULL, why);
    if (!is_grow && r->in_phase[MS_PHASE_ENDED] == 0)
        return r->in_phase[MS_PHASE_RUNNING] == r->count; /* without a look at each */
    for (size_t i = 0; i < count; i++) {
        const struct ms_lent_piece *p =
            is_grow ? ms_inventory_piece(r, op->first + (uint32_t)i)
                    : ms_inventory_piece_at(r, i);

        if (!p || p->phase == MS_PHASE_ENDED)
            return say_ended(op, p, why);
        all = all && p->phase == MS_PHASE_RUNNING;
    }
    return all;
}

void ms_op_check_pieces(struct ms_orch_op *op)
{
    struct ms_error why = {0};
    int rc = progress(op, &why);

    if (rc > 0)
        ms_op_succeed(op);
    else if (rc < 0)
        ms_op_undo(op, &why);
}

/* ---- time -------------------------------------------------------------------------- */

static void give_up(struct ms_orch_op *op, const struct ms_error *why)
{
    const struct ms_backend *e = op->controller->backend;

    if (op->state != MS_OP_ASKED || !ms_op_is_launch(op))
        ms_op_fail(op, why);
    else if (e->give_up)
        e->give_up(op, why);
    else
        ms_op_undo(op, why);
}

static void cancelled(struct ms_orch_op *op)
{
    struct ms_error why = {0};

    op->is_cancelled = false;
    op->was_cancelled = true;
    ms_error_set(&why, -ECANCELED, "%s%scancelled", op->key, op->key[0] ? ": " : "");
    give_up(op, &why);
}

/* It could not be undone yet: that goes on, but it completes. */
static void tell_undoing(struct ms_orch_op *op)
{
    ms_orch_done *done = op->done;

    op->done = NULL;
    op->give_up_ns = MS_NEVER;
    ms_error_wrap(&op->why, "it could not be undone yet");
    if (done)
        done(op->arg, op->why.code, &op->why, NULL);
}

static void late(struct ms_orch_op *op)
{
    const char *because = op->controller->backend->why_late(op);
    const char *colon = because[0] ? ": " : "";
    struct ms_error why = {0};

    if (op->was_cancelled)
        ms_error_set(&why, -ECANCELED, "cancelled; %.300s", because);
    else if (ms_op_is_launch(op))
        ms_error_set(
            &why, -ETIMEDOUT, "%s: not lent in time%s%.300s", op->key, colon, because);
    else
        ms_error_set(&why, -EAGAIN, "%s", because);
    give_up(op, &why);
}

static void advance(struct ms_orch_op *op)
{
    const struct ms_backend *e = op->controller->backend;

    if (op->state == MS_OP_REFUSED)
        ms_op_fail(op, &op->why);
    else if (op->is_cancelled && op->state != MS_OP_UNDOING)
        cancelled(op);
    else if (op->state != MS_OP_NEW && e->look)
        e->look(op);
    else if (op->state == MS_OP_NEW && op_now_ns(op) < op->give_up_ns)
        e->begin(op);
}

/* Those whose time is over fail; when the next one's is. */
static int64_t expire(struct ms_controller *c, int64_t at_ns)
{
    int64_t next_ns = MS_NEVER;

    /* the analyzer does not follow links. NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
    ms_list_each (op, &c->ops, struct ms_orch_op, link) {
        if (op->state == MS_OP_REFUSED)
            continue;
        if (at_ns < op->give_up_ns)
            next_ns = op->give_up_ns < next_ns ? op->give_up_ns : next_ns;
        else if (op->state == MS_OP_UNDOING)
            tell_undoing(op);
        else
            late(op);
    }
    return next_ns;
}

void ms_controller_turn(struct ms_controller *c)
{
    const struct ms_backend *e = c->backend;
    int64_t at_ns, next_ns;

    c->is_turn_due = false;
    ms_controller_tell_watches(c);
    ms_list_each (op, &c->ops, struct ms_orch_op, link)
        advance(op);
    if (e->turned)
        e->turned(c);
    at_ns = now_ns(c);
    next_ns = expire(c, at_ns);
    if (e->wake || c->is_turn_due)
        return; /* it is called again as the backend likes, or at once */
    if (e->again_ns > 0 && !ms_list_is_empty(&c->ops) && next_ns - at_ns > e->again_ns)
        next_ns = at_ns + e->again_ns;
    if (next_ns != MS_NEVER)
        ms_timer_set(&c->turn, next_ns - at_ns);
}

static void on_turn(void *arg)
{
    ms_controller_turn(arg);
}

void ms_controller_wake(struct ms_controller *c)
{
    if (c->backend->wake)
        c->backend->wake(c);
    else
        c->is_turn_due = ms_timer_set(&c->turn, 0) == 0;
}

void ms_op_cancel(struct ms_orch_op *op)
{
    op->is_cancelled = true;
    ms_controller_wake(op->controller);
}

/* ---- life -------------------------------------------------------------------------- */

int ms_controller_init(struct ms_controller *c,
                       const struct ms_orchestrator_ops *ops,
                       const struct ms_backend *backend,
                       struct ms_loop *loop,
                       uint64_t cursor)
{
    c->base.ops = ops;
    c->backend = backend;
    ms_list_init(&c->ops);
    ms_inventory_init(&c->inventory, cursor);
    ms_list_init(&c->watches);
    return loop ? ms_timer_init(&c->turn, loop, on_turn, c) : 0;
}

void ms_controller_finish(struct ms_controller *c)
{
    ms_list_each (op, &c->ops, struct ms_orch_op, link)
        op_free(op);
    ms_controller_drop_watches(c);
    ms_timer_finish(&c->turn);
    ms_inventory_finish(&c->inventory);
}

/* ---- what is asked ------------------------------------------------------------------ */

static struct ms_orch_op *op_create(struct ms_orchestrator *o,
                                    enum ms_op_kind kind,
                                    const char *key,
                                    ms_orch_done *done,
                                    void *arg)
{
    struct ms_controller *c = (struct ms_controller *)o;
    struct ms_orch_op *op = calloc(1, sizeof *op);
    bool fits = !key || strlen(key) <= MS_ORCH_KEY_MAX;

    if (!op)
        return NULL;
    *op = (struct ms_orch_op){.controller = c, .kind = kind, .done = done, .arg = arg};
    op->give_up_ns = ms_deadline_ns(now_ns(c), c->backend->answer_ns);
    /* a key that is too long is not cut: that might be another one's key */
    snprintf(op->key, sizeof op->key, "%s", !key ? "" : fits ? key : "?");
    ms_list_add_tail(&c->ops, &op->link);
    ms_controller_wake(c);
    return op;
}

/* An operation whose arguments were copied, or (false) not all of them: then NULL. */
static struct ms_orch_op *with_copies(struct ms_orch_op *op, bool is_good)
{
    if (is_good)
        return op;
    op_free(op);
    return NULL;
}

static bool copy_text(const char **to, const char *from)
{
    *to = from ? strdup(from) : NULL;
    return !from || *to;
}

static bool copy_agent(struct ms_agent_start *to, const struct ms_agent_start *from)
{
    size_t count = 0;
    const char **env;

    if (!from)
        return true;
    while (from->env && from->env[count])
        count++;
    to->env = env = calloc(count + 1, sizeof *env);
    if (!env || !copy_text(&to->head, from->head) ||
        !copy_text(&to->secret_file, from->secret_file))
        return false;
    for (size_t i = 0; i < count; i++)
        if (!copy_text(&env[i], from->env[i]))
            return false;
    return true;
}

void ms_agent_start_finish(struct ms_agent_start *s)
{
    for (size_t i = 0; s->env && s->env[i]; i++)
        free((char *)(uintptr_t)s->env[i]);
    free((void *)(uintptr_t)s->env);
    free((char *)(uintptr_t)s->head);
    free((char *)(uintptr_t)s->secret_file);
    *s = (struct ms_agent_start){0};
}

static bool copy_numbers(struct ms_orch_op *op, const uint32_t *numbers, size_t count)
{
    op->numbers = count ? calloc(count, sizeof *op->numbers) : NULL;
    if (op->numbers && numbers)
        memcpy(op->numbers, numbers, count * sizeof *numbers);
    return !count || op->numbers;
}

struct ms_orch_op *ms_controller_reserve(struct ms_orchestrator *o,
                                         const struct ms_reserve *r,
                                         ms_orch_done *done,
                                         void *arg)
{
    enum ms_op_kind kind = r->is_more ? MS_OP_GROW : MS_OP_RESERVE;
    struct ms_orch_op *op = op_create(o, kind, r->key, done, arg);
    struct ms_place_request pieces = r->pieces;

    if (!op)
        return NULL;
    op->deadline_ns = op->give_up_ns = ms_deadline_ns(op_now_ns(op), r->timeout_ns);
    if (ms_reserve_check(o, r, &op->why) < 0) {
        op->state = MS_OP_REFUSED;
        return op;
    }
    if (!pieces.name)
        pieces.name = r->key;
    op->piece_count = pieces.count;
    op->mark = ms_reserve_mark(&pieces);
    return with_copies(op,
                       copy_numbers(op, NULL, r->is_more ? pieces.count : 0) &&
                           ms_place_request_copy(&op->pieces, &pieces) == 0 &&
                           copy_agent(&op->agent, r->agent));
}

struct ms_orch_op *ms_controller_release(struct ms_orchestrator *o,
                                         const char *key,
                                         const uint32_t *pieces,
                                         size_t count,
                                         ms_orch_done *done,
                                         void *arg)
{
    struct ms_orch_op *op = op_create(o, MS_OP_RELEASE, key, done, arg);

    if (!op)
        return NULL;
    op->count = count;
    return with_copies(op, copy_numbers(op, pieces, count));
}

struct ms_orch_op *ms_controller_list(struct ms_orchestrator *o,
                                      const char *key,
                                      ms_orch_done *done,
                                      void *arg)
{
    return op_create(o, MS_OP_LIST, key, done, arg);
}

struct ms_orch_op *ms_controller_avoid(struct ms_orchestrator *o,
                                       const char *node,
                                       const char *reason,
                                       ms_orch_done *done,
                                       void *arg)
{
    struct ms_orch_op *op = op_create(o, MS_OP_AVOID, NULL, done, arg);

    if (!op)
        return NULL;
    op->node = strdup(node);
    op->reason = strdup(reason);
    return with_copies(op, op->node && op->reason);
}
