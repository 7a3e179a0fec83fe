#include "head/clusters/bringup.h"
#include "base/cleanup.h"
#include "base/name.h"
#include "cluster/plan.h"
#include "cluster/spec.h"
#include "head/clusters/bringup_failure.h"
#include "head/clusters/ending.h"
#include "head/clusters/helpers.h"
#include "head/clusters/start.h"
#include "head/drivers/driver.h"
#include "head/head_impl.h"
#include "head/nodes/node.h"
#include "head/ops/op.h"
#include "head/status.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* After a failure, for those of other ranks. */
#define TOGETHER_NS (500 * MS_NS_PER_MS)

enum phase { START, HELPERS, STEPS, FAILING, ENDING };

struct ms_bringup {
    struct ms_head_op *op;
    struct ms_list link; /* head->bringups */
    uint32_t *ranks;
    size_t count;
    size_t *begun; /* of each: so many steps of the spec were sent to it */
    size_t open;   /* ranks whose steps are not done */
    bool *is_done; /* of each */
    enum phase phase;
    int64_t step_timeout_ns;
    struct ms_timer timer;
    Muster__StepsDone *first;
    void (*done)(struct ms_head_op *op);
};

static void fail(struct ms_bringup *l);
static void on_timer(void *arg);

static struct ms_slot *slot_at(const struct ms_bringup *l, size_t i)
{
    return &l->op->cluster->slots[l->ranks[i]];
}

/* ---- life ------------------------------------------------------------------------ */

const Muster__StepsDone *ms_bringup_first(const struct ms_bringup *l)
{
    return l ? l->first : NULL;
}

/* Others may work on the cluster again. */
static void let_go(struct ms_bringup *l)
{
    if (ms_list_is_empty(&l->link))
        return;
    ms_list_remove(&l->link);
    for (size_t i = 0; i < l->count; i++)
        if (l->ranks[i] < l->op->cluster->count)
            slot_at(l, i)->is_changing = false;
    l->op->cluster->is_busy = false;
}

void ms_bringup_destroy(struct ms_bringup *l)
{
    if (!l)
        return;
    let_go(l);
    ms_timer_finish(&l->timer);
    muster__steps_done__free_unpacked(l->first, NULL);
    free(l->ranks);
    free(l->begun);
    free(l->is_done);
    free(l);
}

static struct ms_bringup *create(struct ms_head_op *op,
                                 const struct ms_bringup_options *o)
{
    struct ms_bringup *l = calloc(1, sizeof *l);

    if (!l)
        return NULL;
    ms_list_init(&l->link);
    l->op = op;
    l->count = o->count;
    l->done = o->done;
    l->step_timeout_ns = o->step_timeout_ns > 0 ? o->step_timeout_ns
                         : op->cluster->spec->step_timeout_ns
                             ? (int64_t)op->cluster->spec->step_timeout_ns
                             : MS_CALL_TIMEOUT_NS;
    l->ranks = calloc(o->count + 1, sizeof *l->ranks);
    l->begun = calloc(o->count + 1, sizeof *l->begun);
    l->is_done = calloc(o->count + 1, sizeof *l->is_done);
    if (!l->ranks || !l->begun || !l->is_done ||
        ms_timer_init(&l->timer, op->head->loop, on_timer, l) < 0) {
        ms_bringup_destroy(l);
        return NULL;
    }
    memcpy(l->ranks, o->ranks, o->count * sizeof *l->ranks);
    return l;
}

int64_t ms_bringup_start_ns(int64_t step_timeout_ns)
{
    return step_timeout_ns < MS_START_NS - MS_START_SLACK_NS
               ? step_timeout_ns + MS_START_SLACK_NS
               : MS_START_NS;
}

struct ms_head_op *ms_bringup_find(const struct ms_head *h, const struct ms_cluster *c)
{
    ms_list_each (l, &h->bringups, struct ms_bringup, link)
        if (l->op->cluster == c)
            return l->op;
    return NULL;
}

/* ---- the end, one way or the other ------------------------------------------------ */

static void finish(struct ms_bringup *l)
{
    ms_timer_cancel(&l->timer);
    l->op->on_answer = NULL;
    l->op->on_refused = NULL;
    let_go(l);
    ms_helpers_settle(l->op->head, l->op->cluster);
    ms_head_changed(l->op->head);
    l->done(l->op);
}

static void ended(struct ms_head_op *op)
{
    finish(op->bringup);
}

/* One of which nobody has said that it was started has no process. */
static void mark_unstarted(struct ms_bringup *l)
{
    Muster__Exit exit = MUSTER__EXIT__INIT;

    exit.code = -1;
    exit.detail = l->op->why.text;
    for (size_t i = 0; i < l->count; i++) {
        const struct ms_slot *s = slot_at(l, i);

        exit.node = (char *)(uintptr_t)s->node;
        if (ms_slot_is_live(s) && !s->now.address)
            ms_registry_exited(&l->op->head->registry, s->now.uid, &exit, ms_now_ns());
    }
}

/* All that is known of the failure has come: end what there is. */
static void fail(struct ms_bringup *l)
{
    struct ms_head_op *op = l->op;

    assert(op->why.code < 0);
    l->phase = ENDING;
    ms_timer_cancel(&l->timer);
    ms_list_each (a, &op->asks, struct ms_ask, link)
        ms_ask_destroy(a);
    mark_unstarted(l);
    ms_helpers_end(op->head, op->cluster, l->ranks, l->count);
    if (ms_ending_begin(op, l->ranks, l->count, 0, ended) < 0)
        finish(l);
}

void ms_bringup_cancel(struct ms_head_op *op, const struct ms_error *why)
{
    struct ms_bringup *l = op->bringup;

    if (l->phase == ENDING)
        return;
    if (!op->why.code)
        op->why = *why;
    if (l->open == 0 && !ms_list_is_empty(&op->asks)) /* no steps have begun */
        l->phase = FAILING; /* when the nodes have answered what they were asked */
    else
        fail(l);
}

/* ---- steps ----------------------------------------------------------------------- */

/* Let others that fail for the same reason say so. Never from inside: whoever tells of a
 * failure may look at the launch afterwards. */
static void begin_failing(struct ms_bringup *l)
{
    if (l->phase == STEPS || l->open == 0)
        ms_timer_set(&l->timer, l->open ? TOGETHER_NS : 0);
    l->phase = FAILING;
}

static void one_failed(struct ms_bringup *l, size_t i, Muster__Failure *failure)
{
    if (l->is_done[i]) {
        muster__failure__free_unpacked(failure, NULL);
        return;
    }
    l->is_done[i] = true;
    l->open--;
    ms_bringup_add_failure(l->op, slot_at(l, i), failure);
    begin_failing(l);
}

static void on_timer(void *arg)
{
    struct ms_bringup *l = arg;

    for (size_t i = 0; l->phase == STEPS && i < l->count; i++)
        if (!l->is_done[i])
            ms_bringup_add_failure(
                l->op, slot_at(l, i), ms_bringup_late(l->op, l->step_timeout_ns));
    if ((l->phase == START || l->phase == HELPERS) && !l->op->why.code)
        ms_error_set(&l->op->why,
                     -ETIMEDOUT,
                     "the processes of cluster '%s' were not started within %.3g s",
                     l->op->cluster->name,
                     (double)ms_bringup_start_ns(l->step_timeout_ns) /
                         (double)MS_NS_PER_S);
    fail(l);
}

/* Index of the worker with this uid; l->count: it is none of ours. */
static size_t find(const struct ms_bringup *l, uint64_t uid)
{
    size_t i = 0;

    while (i < l->count && slot_at(l, i)->now.uid != uid)
        i++;
    return i;
}

static int ask_steps(struct ms_bringup *l, size_t i, struct ms_error *err)
{
    const struct ms_slot *s = slot_at(l, i);
    const Muster__ClusterSpec *spec = l->op->cluster->spec;
    struct ms_node *n = ms_node_find(l->op->head, s->node);
    Muster__HeadToAgent m = MUSTER__HEAD_TO_AGENT__INIT;
    int rc = -ENOMEM;

    if (!n)
        return ms_error_set(err, -ENODEV, "node %s is gone", s->node);
    m.body_case = MUSTER__HEAD_TO_AGENT__BODY_RUN_STEPS;
    m.run_steps =
        ms_cluster_spec_run(spec, s->rank, l->begun[i], s->now.uid, ms_random_id());
    if (m.run_steps &&
        (l->begun[i] > 0 || ms_helpers_add_step(l->op->head, s, m.run_steps) == 0))
        rc = ms_node_ask(n, l->op, &m, err);
    else
        ms_error_set(err, rc, "out of memory");
    l->begun[i] = spec->n_steps;
    muster__run_steps__free_unpacked(m.run_steps, NULL);
    return rc;
}

static void begin_one(struct ms_bringup *l, size_t i)
{
    const struct ms_slot *s = slot_at(l, i);
    struct ms_error err = {0};

    if (!ms_slot_is_live(s))
        one_failed(l, i, ms_bringup_died(s->now.exit));
    else if (ask_steps(l, i, &err) < 0)
        one_failed(l, i, ms_bringup_refused(&err));
}

static void
steps_answered(struct ms_head_op *op, struct ms_node *n, Muster__AgentToHead *answer)
{
    struct ms_bringup *l = op->bringup;
    Muster__StepsDone *d = answer->body_case == MUSTER__AGENT_TO_HEAD__BODY_STEPS_DONE
                               ? answer->steps_done
                               : NULL;
    size_t i = d ? find(l, d->uid) : l->count;

    (void)n;
    if (i == l->count || l->is_done[i])
        return;
    if (d->failure) {
        one_failed(l,
                   i,
                   ms_slot_is_live(slot_at(l, i))
                       ? MS_TAKE(d->failure)
                       : ms_bringup_died(slot_at(l, i)->now.exit));
        return;
    }
    if (slot_at(l, i)->rank == 0 && !l->first)
        l->first = MS_TAKE(answer->steps_done);
    if (l->phase == STEPS && l->begun[i] < op->cluster->spec->n_steps) {
        begin_one(l, i); /* more was done to all others meanwhile */
        return;
    }
    l->is_done[i] = true;
    l->open--;
    if (l->phase == FAILING)
        begin_failing(l);
    else if (l->open == 0)
        finish(l);
}

/* The node is gone, or does not know such questions: all that it was asked. */
static void
steps_refused(struct ms_head_op *op, struct ms_node *n, const struct ms_error *why)
{
    struct ms_bringup *l = op->bringup;

    for (size_t i = 0; i < l->count; i++)
        if (!l->is_done[i] && strcmp(slot_at(l, i)->node, n->name) == 0)
            one_failed(l,
                       i,
                       ms_slot_is_live(slot_at(l, i))
                           ? ms_bringup_refused(why)
                           : ms_bringup_died(slot_at(l, i)->now.exit));
}

static void begin_steps(struct ms_bringup *l)
{
    struct ms_head_op *op = l->op;

    l->phase = STEPS;
    ms_timer_cancel(&l->timer);
    if (op->cluster->spec->n_steps == 0) {
        finish(l);
        return;
    }
    op->on_answer = steps_answered;
    op->on_refused = steps_refused;
    l->open = l->count;
    ms_timer_set(
        &l->timer,
        ms_deadline_ns(0, l->step_timeout_ns * (int64_t)op->cluster->spec->n_steps));
    for (size_t i = 0; i < l->count; i++)
        begin_one(l, i);
}

void ms_bringup_worker_ended(struct ms_head *h,
                             const struct ms_slot *slot,
                             const Muster__Exit *exit)
{
    struct ms_head_op *op = ms_bringup_find(h, slot->cluster);
    struct ms_bringup *l = op ? op->bringup : NULL;
    size_t i = l ? find(l, slot->now.uid) : 0;

    if (!l || i == l->count)
        return;
    if (l->phase == STEPS || (l->phase == FAILING && l->open > 0))
        one_failed(l, i, ms_bringup_died(exit));
}

void ms_bringups_lost(struct ms_head *h, const char *node)
{
    ms_list_each (l, &h->bringups, struct ms_bringup, link)
        for (size_t i = 0; i < l->count; i++)
            if ((l->phase == STEPS || (l->phase == FAILING && l->open > 0)) &&
                !l->is_done[i] && strcmp(slot_at(l, i)->node, node) == 0)
                one_failed(l, i, ms_bringup_died(slot_at(l, i)->now.exit));
}

/* ---- start ----------------------------------------------------------------------- */

/* All reasons, as far as there is room, each once. */
static void add_reason(struct ms_error *all, const struct ms_error *why)
{
    struct ms_error before = *all;

    if (!before.code)
        *all = *why;
    else if (!strstr(before.text, why->text))
        ms_error_set(all, before.code, "%s; and %s", before.text, why->text);
}

static void check_started(struct ms_bringup *l)
{
    for (size_t i = 0; !l->op->why.code && i < l->count; i++)
        if (!slot_at(l, i)->now.address)
            ms_error_set(
                &l->op->why,
                -EPROTO,
                "cannot create cluster '%s': an agent did not answer for every worker",
                l->op->cluster->name);
}

/* The nodes have answered, one way or the other. */
static void step(struct ms_bringup *l)
{
    if (!ms_list_is_empty(&l->op->asks))
        return;
    check_started(l);
    if (l->op->why.code) {
        fail(l);
    } else if (l->phase == START) {
        l->phase = HELPERS;
        ms_bringup_step(l->op);
    } else {
        begin_steps(l);
    }
}

void ms_bringup_step(struct ms_head_op *op)
{
    struct ms_bringup *l = op->bringup;
    int rc;

    if (l->phase != HELPERS || !ms_list_is_empty(&op->asks))
        return;
    rc = ms_helpers_begin(op, l->ranks, l->count, &op->why);
    if (rc == -EBUSY) { /* those of the incarnation before have not ended */
        op->why.code = 0;
        return;
    }
    step(l);
}

static void
start_answered(struct ms_head_op *op, struct ms_node *n, Muster__AgentToHead *answer)
{
    Muster__WorkersStarted *s = answer->body_case == MUSTER__AGENT_TO_HEAD__BODY_STARTED
                                    ? answer->started
                                    : NULL;
    int rc = 0;

    (void)n;
    for (size_t i = 0; s && i < s->n_workers && rc != -ENOMEM; i++)
        rc = ms_registry_started(&op->head->registry, s->workers[i], ms_now_ns());
    if (!op->why.code && rc == -ENOMEM)
        ms_error_set(&op->why,
                     rc,
                     "cannot create cluster '%s': out of memory",
                     op->cluster->name);
    ms_head_changed(op->head);
    step(op->bringup);
}

static void
start_refused(struct ms_head_op *op, struct ms_node *n, const struct ms_error *why)
{
    (void)n;
    add_reason(&op->why, why);
    step(op->bringup);
}

static void begin_start(struct ms_bringup *l)
{
    struct ms_head_op *op = l->op;

    l->phase = START;
    ms_timer_set(&l->timer, ms_bringup_start_ns(l->step_timeout_ns));
    op->on_answer = start_answered;
    op->on_refused = start_refused;
    ms_start_ask(op, l->ranks, l->count, &op->why);
    step(l);
}

void ms_bringup_begin(struct ms_head_op *op, const struct ms_bringup_options *o)
{
    struct ms_bringup *l = create(op, o);

    ms_bringup_destroy(op->bringup);
    op->bringup = l;
    if (!l) {
        ms_error_set(
            &op->why, -ENOMEM, "cluster '%s': out of memory", op->cluster->name);
        o->done(op);
        return;
    }
    ms_list_add_tail(&op->head->bringups, &l->link);
    op->cluster->is_busy = true;
    for (size_t i = 0; i < l->count; i++)
        slot_at(l, i)->is_changing = true;
    begin_start(l);
}
