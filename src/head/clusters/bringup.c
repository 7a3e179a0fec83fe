/* bringup.c - starting ranks of a cluster: processes, helpers, steps */
#include "head/clusters/bringup.h"
#include "base/cleanup.h"
#include "base/name.h"
#include "base/proto.h"
#include "cluster/spec.h"
#include "head/clusters/clusters_impl.h"
#include "head/clusters/ending.h"
#include "head/head_impl.h"
#include "head/nodes/node.h"
#include "head/ops/op.h"
#include "head/ops/request.h"
#include "head/status.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

struct ms_head_op *ms_bringup_find(const struct ms_head *h, const struct ms_cluster *c)
{
    ms_list_each (op, &h->bringups, struct ms_head_op, bringup.link)
        if (op->cluster == c)
            return op;
    return NULL;
}

void ms_bringup_finish(struct ms_head_op *op)
{
    ms_list_remove(&op->bringup.link);
    muster__steps_done__free_unpacked(MS_TAKE(op->bringup.first), NULL);
}

/* ---- failures, as messages; NULL: out of memory ------------------------------------ */

static Muster__Failure *failure_create(Muster__Failure__Kind kind, const char *message)
{
    Muster__Failure f = MUSTER__FAILURE__INIT;

    f.kind = kind;
    f.message = ms_field_text(message);
    return (Muster__Failure *)ms_proto_copy(&f.base);
}

/* `exit` may be NULL. */
static Muster__Failure *died(const Muster__Exit *exit)
{
    const Muster__Exit none = MUSTER__EXIT__INIT;
    Muster__Failure *f = failure_create(MUSTER__FAILURE__KIND__WORKER_DIED, "");

    if (f)
        f->exit = (Muster__Exit *)ms_proto_copy(exit ? &exit->base : &none.base);
    return f;
}

static Muster__Failure *refused(const struct ms_error *why)
{
    return failure_create(MUSTER__FAILURE__KIND__REFUSED, why->text);
}

/* `stack`: where it was then, if it said so. */
static Muster__Failure *late(int64_t timeout_ns, const char *stack)
{
    struct ms_error text = {0};
    Muster__Failure *f;

    ms_error_set(
        &text,
        -ETIMEDOUT,
        "it was not made within %g s (start_timeout): its constructor was still "
        "running%s",
        (double)timeout_ns / (double)MS_NS_PER_S,
        stack[0] ? "" : ", and did not say where");
    f = failure_create(MUSTER__FAILURE__KIND__DEADLINE, text.text);
    if (f)
        ms_proto_set_text(&f->traceback, stack);
    return f;
}

/* One clause of it, for those who read no more. */
static void
set_why(struct ms_head_op *op, const char *where, const Muster__Failure *failure)
{
    const char *type = strrchr(failure->type, '.');
    bool is_dead = failure->kind == MUSTER__FAILURE__KIND__WORKER_DIED;

    ms_error_set(&op->error,
                 failure->kind == MUSTER__FAILURE__KIND__DEADLINE ? -ETIMEDOUT
                                                                  : -EREMOTEIO,
                 "%s: %s%s%.300s",
                 where,
                 type ? type + 1 : failure->type,
                 failure->type[0] ? ": " : "",
                 is_dead ? "it has ended" : failure->message);
}

/* Of this worker, among op->failure->workers; takes it (NULL: out of memory). The first one
 * is also the reason of the operation. */
static void
add_failure(struct ms_head_op *op, const struct ms_slot *slot, Muster__Failure *failure)
{
    char where[2 * MS_NAME_MAX + 32];

    snprintf(
        where, sizeof where, "%s/%u@%s", slot->cluster->name, slot->rank, slot->node);
    if (!op->failure)
        op->failure = failure_create(MUSTER__FAILURE__KIND__REFUSED, "");
    if (!failure || !op->failure || !ms_proto_set_text(&failure->where, where)) {
        if (!op->error.code)
            ms_error_set(&op->error, -ENOMEM, "%s: out of memory", where);
        muster__failure__free_unpacked(failure, NULL);
        return;
    }
    if (!op->error.code)
        set_why(op, where, failure);
    ms_proto_append(&op->failure->workers, &op->failure->n_workers, failure);
}

/* ---- the end, one way or the other ------------------------------------------------ */

static void finish(struct ms_head_op *op)
{
    ms_timer_finish(&op->deadline);
    op->on_answer = NULL;
    op->on_refused = NULL;
    ms_list_remove(&op->bringup.link);
    ms_helpers_settle(op->head, op->cluster);
    op->bringup.done(op);
}

/* All that is known of the failure has come: end what there is. */
static void fail(struct ms_head_op *op)
{
    assert(op->error.code < 0 && op->bringup.plan.phase == MS_BRINGUP_ENDING);
    ms_head_op_drop_asks(op);
    ms_cluster_end_unstarted(&op->head->registry, op->cluster, false, op->error.text);
    ms_helpers_end(op->head, op->cluster);
    if (ms_ending_begin(op, false, 0, finish) < 0)
        finish(op);
}

static void begin_helpers(struct ms_head_op *op);
static void begin_steps(struct ms_head_op *op);
static void begin_one(struct ms_head_op *op, struct ms_slot *s);
static void ask_stacks(struct ms_head_op *op);

/* What the plan says; `s` is the rank of which it was told. */
static void
carry_out(struct ms_head_op *op, struct ms_bringup_answer plan, struct ms_slot *s)
{
    if (plan.sets_timer)
        ms_timer_set(&op->deadline, plan.timer_ns);
    switch (plan.what) {
    case MS_BRINGUP_DO_NOTHING:
        break;
    case MS_BRINGUP_DO_HELPERS:
        begin_helpers(op);
        break;
    case MS_BRINGUP_DO_STEPS:
        begin_steps(op);
        break;
    case MS_BRINGUP_DO_MORE:
        assert(s); /* of it there is more to ask */
        begin_one(op, s);
        break;
    case MS_BRINGUP_DO_ASK_WHERE:
        ask_stacks(op);
        break;
    case MS_BRINGUP_DO_END:
        fail(op);
        break;
    case MS_BRINGUP_DO_DONE:
        finish(op);
        break;
    }
}

void ms_bringup_cancel(struct ms_head_op *op, const struct ms_error *why)
{
    struct ms_bringup_plan *plan = &op->bringup.plan;

    if (plan->phase != MS_BRINGUP_ENDING && !op->error.code)
        op->error = *why;
    carry_out(op, ms_bringup_plan_cancel(plan, !ms_list_is_empty(&op->asks)), NULL);
}

/* ---- steps ----------------------------------------------------------------------- */

/* Where are they? Those that do not say so in time have failed all the same. */
static void ask_stacks(struct ms_head_op *op)
{
    ms_changing_each (s, op->cluster) {
        struct ms_node *n = ms_node_find(op->head, s->node);
        Muster__RunSteps ask = MUSTER__RUN_STEPS__INIT;

        ask.uid = s->now.uid;
        ask.run = ms_random_id();
        ask.is_late = true;
        if (n && !s->has_answered)
            ms_node_ask(n, op, MUSTER__HEAD_TO_AGENT__BODY_RUN_STEPS, &ask, NULL);
    }
}

static void on_late(void *arg)
{
    struct ms_head_op *op = arg;
    struct ms_bringup_plan *plan = &op->bringup.plan;
    bool is_start = plan->phase < MS_BRINGUP_STEPS;

    for (struct ms_slot *s = NULL;
         plan->is_late && (s = ms_cluster_next_changing(op->cluster, s));)
        if (!s->has_answered)
            add_failure(op, s, late(plan->step_timeout_ns, ""));
    if (is_start && !op->error.code)
        ms_error_set(&op->error,
                     -ETIMEDOUT,
                     "the processes of cluster '%s' were not started within %.3g s",
                     op->cluster->name,
                     (double)ms_bringup_process_ns(plan->step_timeout_ns) /
                         (double)MS_NS_PER_S);
    carry_out(op, ms_bringup_plan_late(plan), NULL);
}

static void
one_failed(struct ms_head_op *op, struct ms_slot *s, Muster__Failure *failure)
{
    bool counts;
    struct ms_bringup_answer plan =
        ms_bringup_plan_rank_failed(&op->bringup.plan, s, &counts);

    if (counts)
        add_failure(op, s, failure);
    else
        muster__failure__free_unpacked(failure, NULL);
    carry_out(op, plan, s);
}

/* It said so, unless it has died meanwhile: that tells more. */
static void
one_refused(struct ms_head_op *op, struct ms_slot *s, Muster__Failure *failure)
{
    if (!ms_slot_is_live(s)) {
        muster__failure__free_unpacked(failure, NULL);
        failure = died(s->now.exit);
    }
    one_failed(op, s, failure);
}

/* The slot of this worker, if it is one of these; or NULL. */
static struct ms_slot *find(const struct ms_head_op *op, uint64_t uid)
{
    struct ms_slot *s = ms_registry_find_uid(&op->head->registry, uid);

    return s && s->cluster == op->cluster && s->is_changing ? s : NULL;
}

/* Those that travelled with its start are asked for by their number alone. */
static Muster__RunSteps *create_run(const struct ms_head_op *op, struct ms_slot *s)
{
    const Muster__ClusterSpec *spec = op->cluster->spec;
    uint64_t number = s->start_run ? s->start_run : ms_random_id();
    size_t first = s->start_run ? spec->n_steps : s->steps_sent;
    Muster__RunSteps *run =
        ms_cluster_spec_run(spec, s->rank, first, s->now.uid, number);

    if (run && first == 0 && ms_helpers_add_step(op->head, s, run) < 0) {
        muster__run_steps__free_unpacked(run, NULL);
        return NULL;
    }
    if (!s->start_run)
        s->steps_sent = spec->n_steps;
    s->start_run = 0;
    return run;
}

static int ask_steps(struct ms_head_op *op, struct ms_slot *s, struct ms_error *err)
{
    struct ms_node *n = ms_node_find(op->head, s->node);
    Muster__RunSteps *run = n ? create_run(op, s) : NULL;
    int rc;

    if (!n)
        return ms_error_set(err, -ENODEV, "node %s is gone", s->node);
    if (!run)
        return ms_error_set(err, -ENOMEM, "out of memory");
    rc = ms_node_ask(n, op, MUSTER__HEAD_TO_AGENT__BODY_RUN_STEPS, run, err);
    muster__run_steps__free_unpacked(run, NULL);
    return rc;
}

static void begin_one(struct ms_head_op *op, struct ms_slot *s)
{
    struct ms_error err = {0};

    if (!ms_slot_is_live(s))
        one_failed(op, s, died(s->now.exit));
    else if (ask_steps(op, s, &err) < 0)
        one_failed(op, s, refused(&err));
}

static void
steps_answered(struct ms_head_op *op, struct ms_node *n, Muster__AgentToHead *answer)
{
    struct ms_bringup *b = &op->bringup;
    Muster__StepsDone *d = answer->body_case == MUSTER__AGENT_TO_HEAD__BODY_STEPS_DONE
                               ? answer->steps_done
                               : NULL;
    struct ms_slot *s = d ? find(op, d->uid) : NULL;

    (void)n;
    if (!s || s->has_answered)
        return;
    if (b->plan.is_late &&
        (!d->failure || d->failure->kind == MUSTER__FAILURE__KIND__DEADLINE)) {
        one_refused(
            op,
            s,
            late(b->plan.step_timeout_ns, d->failure ? d->failure->traceback : ""));
        return;
    }
    if (d->failure) {
        one_refused(op, s, MS_TAKE(d->failure));
        return;
    }
    if (s->rank == 0 && !b->first)
        b->first = MS_TAKE(answer->steps_done);
    carry_out(op, ms_bringup_plan_rank_done(&b->plan, s), s);
}

/* The node is gone, or does not know such questions: all that it was asked. */
static void
steps_refused(struct ms_head_op *op, struct ms_node *n, const struct ms_error *why)
{
    ms_changing_each (s, op->cluster)
        if (!s->has_answered && strcmp(s->node, n->name) == 0)
            one_refused(op, s, refused(why));
}

static void begin_steps(struct ms_head_op *op)
{
    op->on_answer = steps_answered;
    op->on_refused = steps_refused;
    ms_changing_each (s, op->cluster)
        begin_one(op, s);
}

void ms_bringup_worker_ended(struct ms_head *h,
                             const struct ms_slot *slot,
                             const Muster__Exit *exit)
{
    struct ms_head_op *op = ms_bringup_find(h, slot->cluster);
    struct ms_slot *s = op ? find(op, slot->now.uid) : NULL;

    if (s && ms_bringup_plan_is_open(&op->bringup.plan))
        one_failed(op, s, died(exit));
}

void ms_bringups_lost(struct ms_head *h, const char *node)
{
    ms_list_each (op, &h->bringups, struct ms_head_op, bringup.link)
        ms_changing_each (s, op->cluster)
            if (ms_bringup_plan_is_open(&op->bringup.plan) && !s->has_answered &&
                strcmp(s->node, node) == 0)
                one_failed(op, s, died(s->now.exit));
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

/* The nodes have answered, one way or the other. */
static void step(struct ms_head_op *op)
{
    if (ms_list_is_empty(&op->asks))
        carry_out(op,
                  ms_bringup_plan_answered(&op->bringup.plan, op->cluster, &op->error),
                  NULL);
}

static void begin_helpers(struct ms_head_op *op)
{
    if (ms_helpers_begin(op) == -EBUSY)
        op->error.code = 0; /* those of the incarnation before have not ended */
    else
        step(op);
}

void ms_bringup_step(struct ms_head_op *op)
{
    if (op->bringup.plan.phase == MS_BRINGUP_HELPERS && ms_list_is_empty(&op->asks))
        begin_helpers(op);
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
    if (!op->error.code && rc == -ENOMEM)
        ms_error_set(&op->error,
                     rc,
                     "cannot create cluster '%s': out of memory",
                     op->cluster->name);
    ms_head_changed(op->head);
    step(op);
}

static void
start_refused(struct ms_head_op *op, struct ms_node *n, const struct ms_error *why)
{
    (void)n;
    add_reason(&op->error, why);
    step(op);
}

void ms_bringup_begin(struct ms_head_op *op,
                      int64_t step_timeout_ns,
                      void (*done)(struct ms_head_op *op))
{
    struct ms_bringup *b = &op->bringup;

    ms_bringup_finish(op);
    b->done = done;
    ms_bringup_plan_init(&b->plan, op->cluster, step_timeout_ns);
    if (ms_head_op_set_deadline(
            op, on_late, ms_bringup_process_ns(b->plan.step_timeout_ns)) < 0) {
        ms_error_set(
            &op->error, -ENOMEM, "cluster '%s': out of memory", op->cluster->name);
        ms_cluster_end_unstarted(
            &op->head->registry, op->cluster, false, op->error.text);
        done(op);
        return;
    }
    ms_list_add_tail(&op->head->bringups, &b->link);
    op->on_answer = start_answered;
    op->on_refused = start_refused;
    ms_start_ask(op);
    step(op);
}
