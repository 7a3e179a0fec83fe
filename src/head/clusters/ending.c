/* ending.c - ending ranks of a cluster in order, rank 0 last */
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

/* The next one that ends; NULL comes before the first and after the last. */
static struct ms_slot *next(const struct ms_head_op *op, const struct ms_slot *after)
{
    size_t i = after ? after->rank + (size_t)1 : 0;

    if (!op->ending.is_all)
        return ms_cluster_next_changing(op->cluster, after);
    return i < op->cluster->count ? &op->cluster->slots[i] : NULL;
}

static size_t count_of(const struct ms_head_op *op)
{
    size_t n = 0;

    for (const struct ms_slot *s = NULL; (s = next(op, s));)
        n++;
    return n;
}

size_t ms_ending_left(const struct ms_head_op *op)
{
    size_t n = 0;

    for (const struct ms_slot *s = NULL; (s = next(op, s));)
        n += ms_slot_is_live(s);
    return n;
}

void ms_ending_late(struct ms_head_op *op)
{
    const struct ms_slot *s = next(op, NULL), *more;

    while (!ms_slot_is_live(s) && (more = next(op, s)))
        s = more;
    ms_error_set(&op->error,
                 -ETIMEDOUT,
                 "%zu of %zu workers of cluster '%s' have not ended in time, "
                 "among them rank %u (pid %d on node %s)",
                 ms_ending_left(op),
                 count_of(op),
                 op->cluster->name,
                 s->rank,
                 (int)s->now.pid,
                 s->node);
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

    for (const struct ms_slot *s = NULL; (s = next(op, s));)
        if (is_stoppable(s, which) && strcmp(s->node, node) == 0)
            out[n++] = s->now.uid;
    return n;
}

/* The number of nodes that were asked, or -ENOMEM. */
static int ask(struct ms_head_op *op, enum which which, int64_t grace_ns)
{
    MS_CLEANUP(ms_cleanup_free)
    uint64_t *uids = calloc(op->cluster->count + 1, sizeof *uids);
    Muster__StopWorkers stop = MUSTER__STOP_WORKERS__INIT;
    int asked = 0;

    if (!uids)
        return -ENOMEM;
    stop.uids = uids;
    stop.grace_ns = grace_ns > 0 ? (uint64_t)grace_ns : 0;
    ms_list_each (n, &op->head->nodes, struct ms_node, link) {
        int rc = -EPIPE;

        stop.n_uids = uids_on(op, which, n->name, uids);
        if (stop.n_uids)
            rc = ms_node_ask(n, op, MUSTER__HEAD_TO_AGENT__BODY_STOP, &stop, NULL);
        if (rc == -ENOMEM)
            return rc;
        asked += rc == 0;
    }
    return asked;
}

/* ---- in order -------------------------------------------------------------------- */

static void on_late(void *arg)
{
    struct ms_head_op *op = arg;

    ms_head_op_drop_asks(op);
    finish(op);
}

/* Stop them and go on with `then`. Nodes that are gone have ended their workers; others that
 * live are seen. What cannot be asked for want of memory is looked at when the time is up. */
static void stop(struct ms_head_op *op,
                 enum which which,
                 int64_t grace_ns,
                 void (*then)(struct ms_head_op *op))
{
    ms_head_op_gather(op, then);
    if (ask(op, which, grace_ns) == 0)
        then(op);
}

/* The others have ended: rank 0 has what they left of the grace. */
static void stop_first(struct ms_head_op *op)
{
    int64_t least_ns = op->ending.grace_ns / FIRST_SHARE;
    int64_t left_ns = op->ending.until_ns - ms_now_ns();

    stop(op, ONLY_FIRST, left_ns > least_ns ? left_ns : least_ns, finish);
}

/* Its engines clean up now, as those of the others do; nobody waits for the answer. */
static void clean_first(struct ms_head_op *op, const struct ms_slot *first)
{
    struct ms_node *n = ms_node_find(op->head, first->node);
    Muster__RunSteps run = MUSTER__RUN_STEPS__INIT;
    Muster__Step step = MUSTER__STEP__INIT, *steps[] = {&step};
    ProtobufCBinaryData null = {0, NULL}; /* in plain data */

    step.op = MS_OP_FINISH;
    step.codec = MS_CODEC_PLAIN;
    step.arguments = &null;
    step.n_arguments = 1;
    run.uid = first->now.uid;
    run.run = ms_random_id();
    run.steps = steps;
    run.n_steps = 1;
    if (n)
        ms_node_tell(n, MUSTER__HEAD_TO_AGENT__BODY_RUN_STEPS, &run);
}

/* Rank 0, if it lives and others of these have to end before it. */
static const struct ms_slot *first_of(const struct ms_head_op *op)
{
    const struct ms_slot *first = next(op, NULL);

    return first && first->rank == 0 && next(op, first) && ms_slot_is_live(first)
               ? first
               : NULL;
}

static bool can_clean(const struct ms_cluster *c)
{
    return c->spec && c->spec->n_steps && !ms_cluster_spec_is_native(c->spec);
}

int ms_ending_begin(struct ms_head_op *op,
                    bool is_all,
                    int64_t grace_ns,
                    void (*done)(struct ms_head_op *op))
{
    const struct ms_slot *first;

    op->ending = (struct ms_ending){.is_all = is_all,
                                    .grace_ns = grace_ns,
                                    .until_ns = ms_deadline_ns(ms_now_ns(), grace_ns),
                                    .done = done};
    if (ms_head_op_set_deadline(
            op, on_late, ms_deadline_ns(MS_STOP_GRACE_NS, grace_ns)) < 0)
        return -ENOMEM;
    first = grace_ns > 0 ? first_of(op) : NULL;
    if (first && can_clean(op->cluster))
        clean_first(op, first);
    if (first)
        stop(op, ALL_BUT_FIRST, grace_ns - grace_ns / FIRST_SHARE, stop_first);
    else
        stop(op, ALL, grace_ns, finish);
    return 0;
}
