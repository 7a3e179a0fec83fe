#include "head/clusters/ending.h"
#include "base/cleanup.h"
#include "base/name.h"
#include "cluster/spec.h"
#include "head/head_impl.h"
#include "head/nodes/node.h"
#include "head/ops/op.h"
#include "wire/frame.h"

#include <errno.h>
#include <string.h>

/* Rank 0 has at least this part of the grace to itself. */
#define FIRST_SHARE 4

enum which { ALL, ALL_BUT_FIRST, ONLY_FIRST };

void ms_ending_finish(struct ms_ending *e)
{
    free(e->ranks);
    *e = (struct ms_ending){0};
}

static size_t count_of(const struct ms_head_op *op)
{
    return op->ending.ranks ? op->ending.count : op->cluster->count;
}

static struct ms_slot *slot_at(const struct ms_head_op *op, size_t i)
{
    return &op->cluster->slots[op->ending.ranks ? op->ending.ranks[i] : i];
}

size_t ms_ending_left(const struct ms_head_op *op)
{
    size_t n = 0;

    for (size_t i = 0; i < count_of(op); i++)
        n += ms_slot_is_live(slot_at(op, i));
    return n;
}

int ms_ending_late(const struct ms_head_op *op, struct ms_error *err)
{
    size_t i = 0;

    while (i + 1 < count_of(op) && !ms_slot_is_live(slot_at(op, i)))
        i++;
    return ms_error_set(err,
                        -ETIMEDOUT,
                        "%zu of %zu workers of cluster '%s' have not ended in time, "
                        "among them rank %u (pid %d on node %s)",
                        ms_ending_left(op),
                        count_of(op),
                        op->cluster->name,
                        slot_at(op, i)->rank,
                        (int)slot_at(op, i)->now.pid,
                        slot_at(op, i)->node);
}

static void finish(struct ms_head_op *op)
{
    ms_timer_finish(&op->deadline);
    op->on_answer = NULL;
    op->on_refused = NULL;
    op->ending.is_over = true;
    op->ending.done(op);
}

/* ---- asking ---------------------------------------------------------------------- */

/* What has a process that is known. */
static bool is_stoppable(const struct ms_slot *s, enum which which)
{
    return s->now.uid && s->now.address &&
           (which == ALL || (s->rank == 0) == (which == ONLY_FIRST));
}

static size_t
uids_on(const struct ms_head_op *op, enum which which, const char *node, uint64_t *out)
{
    size_t n = 0;

    for (size_t i = 0; i < count_of(op); i++) {
        const struct ms_slot *s = slot_at(op, i);

        if (is_stoppable(s, which) && strcmp(s->node, node) == 0)
            out[n++] = s->now.uid;
    }
    return n;
}

/* The number of nodes that were asked, or -ENOMEM. */
static int ask(struct ms_head_op *op, enum which which, int64_t grace_ns)
{
    MS_CLEANUP(ms_cleanup_free)
    uint64_t *uids = calloc(count_of(op) + 1, sizeof *uids);
    Muster__StopWorkers stop = MUSTER__STOP_WORKERS__INIT;
    Muster__HeadToAgent m = MUSTER__HEAD_TO_AGENT__INIT;
    int asked = 0;

    if (!uids)
        return -ENOMEM;
    stop.uids = uids;
    stop.grace_ns = grace_ns > 0 ? (uint64_t)grace_ns : 0;
    m.body_case = MUSTER__HEAD_TO_AGENT__BODY_STOP;
    m.stop = &stop;
    ms_list_each (n, &op->head->nodes, struct ms_node, link) {
        int rc;

        stop.n_uids = uids_on(op, which, n->name, uids);
        if (stop.n_uids == 0 || ms_node_check(n, NULL) < 0)
            continue;
        rc = ms_node_ask(n, op, &m, NULL);
        if (rc == -ENOMEM)
            return rc;
        asked += rc == 0;
    }
    return asked;
}

/* ---- in order -------------------------------------------------------------------- */

/* Nodes that are gone have ended their workers; others that live are seen. */
static void step(struct ms_head_op *op)
{
    if (ms_list_is_empty(&op->asks))
        finish(op);
}

static void on_late(void *arg)
{
    struct ms_head_op *op = arg;

    ms_list_each (a, &op->asks, struct ms_ask, link)
        ms_ask_destroy(a);
    finish(op);
}

/* What cannot be asked for want of memory is looked at when the time is up. */
static void stop(struct ms_head_op *op, enum which which, int64_t grace_ns)
{
    ms_head_op_gather(op, step);
    if (ask(op, which, grace_ns) == 0)
        step(op);
}

/* The others have ended: rank 0 has what they left of the grace. */
static void stop_first(struct ms_head_op *op)
{
    int64_t least_ns = op->ending.grace_ns / FIRST_SHARE;
    int64_t left_ns = op->ending.until_ns - ms_now_ns();

    stop(op, ONLY_FIRST, left_ns > least_ns ? left_ns : least_ns);
}

static void others_step(struct ms_head_op *op)
{
    if (ms_list_is_empty(&op->asks))
        stop_first(op);
}

/* Its engines clean up now, as those of the others do; nobody waits for the answer. */
static void clean_first(struct ms_head_op *op, const struct ms_slot *first)
{
    struct ms_node *n = ms_node_find(op->head, first->node);
    Muster__RunSteps run = MUSTER__RUN_STEPS__INIT;
    Muster__Step step = MUSTER__STEP__INIT, *steps[] = {&step};
    Muster__HeadToAgent m = MUSTER__HEAD_TO_AGENT__INIT;
    ProtobufCBinaryData null = {0, NULL}; /* in plain data */

    step.op = MS_OP_FINISH;
    step.codec = MS_CODEC_PLAIN;
    step.arguments = &null;
    step.n_arguments = 1;
    run.uid = first->now.uid;
    run.run = ms_random_id();
    run.steps = steps;
    run.n_steps = 1;
    m.body_case = MUSTER__HEAD_TO_AGENT__BODY_RUN_STEPS;
    m.run_steps = &run;
    if (n)
        ms_node_tell(n, &m);
}

/* Rank 0, if it lives and others of these have to end before it. */
static const struct ms_slot *first_of(const struct ms_head_op *op)
{
    const struct ms_slot *first = NULL;

    for (size_t i = 0; i < count_of(op); i++)
        if (slot_at(op, i)->rank == 0)
            first = slot_at(op, i);
    return first && count_of(op) > 1 && ms_slot_is_live(first) ? first : NULL;
}

static bool can_clean(const struct ms_cluster *c)
{
    return c->spec && c->spec->n_steps && !ms_cluster_spec_is_native(c->spec);
}

static int begin_in_order(struct ms_head_op *op, const struct ms_slot *first)
{
    int64_t grace_ns = op->ending.grace_ns;
    int asked;

    ms_head_op_gather(op, others_step);
    if (can_clean(op->cluster))
        clean_first(op, first);
    asked = ask(op, ALL_BUT_FIRST, grace_ns - grace_ns / FIRST_SHARE);
    if (asked == 0)
        stop_first(op);
    return asked < 0 ? asked : 0;
}

static int begin(struct ms_head_op *op)
{
    const struct ms_slot *first = op->ending.grace_ns > 0 ? first_of(op) : NULL;
    int asked;

    if (first)
        return begin_in_order(op, first);
    ms_head_op_gather(op, step);
    asked = ask(op, ALL, op->ending.grace_ns);
    if (asked == 0)
        finish(op);
    return asked < 0 ? asked : 0;
}

int ms_ending_begin(struct ms_head_op *op,
                    const uint32_t *ranks,
                    size_t count,
                    int64_t grace_ns,
                    void (*done)(struct ms_head_op *op))
{
    struct ms_ending *e = &op->ending;

    ms_ending_finish(e);
    if (ranks) {
        e->ranks = calloc(count + 1, sizeof *e->ranks);
        if (!e->ranks)
            return -ENOMEM;
        memcpy(e->ranks, ranks, count * sizeof *e->ranks);
        e->count = count;
    }
    e->grace_ns = grace_ns;
    e->until_ns = ms_deadline_ns(ms_now_ns(), grace_ns);
    e->done = done;
    ms_timer_finish(&op->deadline);
    if (ms_timer_init(&op->deadline, op->head->loop, on_late, op) < 0)
        return -ENOMEM;
    ms_timer_set(&op->deadline, ms_deadline_ns(MS_STOP_GRACE_NS, grace_ns));
    return begin(op);
}
