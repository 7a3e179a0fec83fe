#include "orchestrator/sim/sim.h"

#include "orchestrator/launch.h"
#include "orchestrator/sim/sim_impl.h"
#include "resource/request_copy.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct sim *sim_of(struct ms_orchestrator *o)
{
    return (struct sim *)o;
}

/* ---- watches ------------------------------------------------------------------------- */

static void pump(void *arg)
{
    struct sim *s = arg;

    ms_watches_pump(&s->watches);
}

static bool pump_soon(void *arg)
{
    struct sim *s = arg;

    return ms_sim_clock_add(ms_sim_clock(s->engine), 0, pump, s) != 0;
}

static struct ms_orch_watch *
watch(struct ms_orchestrator *o, uint64_t cursor, ms_orch_watched *watched, void *arg)
{
    struct ms_orch_watch *w = ms_watches_add(&sim_of(o)->watches, cursor, watched, arg);

    if (w)
        ms_sim_turn_soon(sim_of(o));
    return w;
}

/* ---- what is heard ------------------------------------------------------------------- */

static void step_all(struct sim *s)
{
    ms_watches_wake(&s->watches);
    ms_list_each (op, &s->ops, struct ms_orch_op, link)
        ms_sim_op_step(op);
    ms_sim_turn_soon(s);
}

static void on_news(void *arg, const char *key, const struct ms_lent_piece *piece)
{
    struct sim *s = arg;
    struct ms_mirrored *r = ms_mirror_find(&s->mirror, key);

    if (r && ms_mirror_tell(&s->mirror, r, piece) > 0)
        step_all(s);
}

/* One piece of the whole. What is not known here is of a controller before. */
static void compare_one(void *arg,
                        const char *key,
                        uint64_t mark,
                        const struct ms_lent_piece *piece)
{
    struct sim *s = arg;
    struct ms_mirrored *r = ms_mirror_find(&s->mirror, key);

    if (!r) {
        if (s->is_known || !(r = ms_mirror_add(&s->mirror, key)))
            return; /* it is being stopped, and its key forgotten */
        r->owner = (void *)(uintptr_t)mark;
    }
    /* numbers are never used again: those before it may be gone */
    if ((piece->number >= r->next || !s->is_known) &&
        ms_mirror_add_piece(r, piece->number) < 0)
        return;
    ms_mirror_tell(&s->mirror, r, piece);
}

void ms_sim_compare(struct sim *s)
{
    s->compare = ++s->asked;
    s->compared_ns = ms_sim_now_ns(s->engine);
    ms_sim_ask_all(s->engine, s->compare);
}

static void compared(struct sim *s)
{
    ms_sim_each(s->engine, compare_one, s);
    s->is_known = true;
    step_all(s);
}

static void on_reply(void *arg, uint64_t request, int rc, const struct ms_error *why)
{
    struct sim *s = arg;

    if (request == s->compare) {
        compared(s);
        return;
    }
    ms_list_each (op, &s->ops, struct ms_orch_op, link)
        if (op->request == request && op->state != MS_SIM_NEW) {
            if (op->kind == MS_SIM_LIST && rc == 0)
                compared(s);
            ms_sim_op_answered(op, rc, why);
            return;
        }
}

/* ---- the interface ------------------------------------------------------------------- */

static struct ms_orch_op *reserve(struct ms_orchestrator *o,
                                  const struct ms_reserve *r,
                                  ms_orch_done *done,
                                  void *arg)
{
    enum ms_sim_kind kind = r->is_more ? MS_SIM_GROW : MS_SIM_RESERVE;
    struct ms_orch_op *op = ms_sim_op_create(o, kind, r->key, done, arg);

    if (!op)
        return NULL;
    op->deadline_ns = ms_deadline_ns(ms_sim_now_ns(sim_of(o)->engine), r->timeout_ns);
    if (ms_reserve_check(o, r, &op->why) < 0) {
        op->state = MS_SIM_REFUSED;
    } else if (ms_request_copy(&op->pieces, &r->pieces) < 0) {
        ms_sim_op_free(op);
        return NULL;
    }
    op->mark = ms_reserve_mark(&op->pieces);
    return op;
}

static struct ms_orch_op *release(struct ms_orchestrator *o,
                                  const char *key,
                                  const uint32_t *pieces,
                                  size_t count,
                                  ms_orch_done *done,
                                  void *arg)
{
    struct ms_orch_op *op = ms_sim_op_create(o, MS_SIM_RELEASE, key, done, arg);

    if (op && ms_launch_numbers(&op->numbers, &op->count, pieces, count) < 0) {
        ms_sim_op_free(op);
        return NULL;
    }
    return op;
}

static struct ms_orch_op *
list(struct ms_orchestrator *o, const char *key, ms_orch_done *done, void *arg)
{
    return ms_sim_op_create(o, MS_SIM_LIST, key, done, arg);
}

static struct ms_orch_op *avoid(struct ms_orchestrator *o,
                                const char *node,
                                const char *reason,
                                ms_orch_done *done,
                                void *arg)
{
    (void)reason; /* a simulated engine has nobody who reads it */
    return ms_sim_op_create(o, MS_SIM_AVOID, node, done, arg);
}

static void cancel(struct ms_orch_op *op)
{
    op->is_cancelled = true;
    ms_sim_turn_soon(op->sim);
}

static void destroy(struct ms_orchestrator *o)
{
    struct sim *s = sim_of(o);

    ms_sim_listen(s->engine, NULL);
    ms_sim_clock_cancel(ms_sim_clock(s->engine), s);
    ms_list_each (op, &s->ops, struct ms_orch_op, link)
        ms_sim_op_free(op);
    ms_watches_finish(&s->watches);
    ms_mirror_finish(&s->mirror);
    free(s);
}

struct ms_orchestrator *ms_orchestrator_sim(struct ms_sim *engine)
{
    static const struct ms_orchestrator_ops ops = {
        .name = "sim",
        .can = MS_ORCH_BUNDLES | MS_ORCH_LABELS | MS_ORCH_SAME | MS_ORCH_AVOID |
               MS_ORCH_GROW | MS_ORCH_DURABLE,
        .reserve = reserve,
        .release = release,
        .list = list,
        .watch = watch,
        .unwatch = ms_watches_remove,
        .avoid = avoid,
        .cancel = cancel,
        .destroy = destroy,
    };
    struct sim *s = calloc(1, sizeof *s);
    const struct ms_sim_listener listener = {
        .on_reply = on_reply, .on_news = on_news, .arg = s};

    if (!s)
        return NULL;
    s->base.ops = &ops;
    s->engine = engine;
    ms_list_init(&s->ops);
    ms_watches_init(&s->watches, &s->mirror, pump_soon, s);
    /* cursors of a controller before are older than all of this one */
    ms_mirror_init(&s->mirror, (uint64_t)ms_sim_listen(engine, &listener) << 32);
    return &s->base;
}
