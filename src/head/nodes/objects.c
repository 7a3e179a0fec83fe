#include "base/cleanup.h"
#include "base/limits.h"
#include "head/head_impl.h"
#include "head/nodes/ask.h"
#include "head/nodes/node.h"
#include "head/ops/op.h"

#include <errno.h>
#include <string.h>

/* What was found until now; it is not read before the operation has completed. */
static Muster__Objects *found(struct ms_head_op *op)
{
    return (Muster__Objects *)op->message;
}

static void finish(struct ms_head_op *op)
{
    ms_head_op_succeed(op, MS_TAKE(op->message));
}

/* Takes it; NULL: out of memory, and the node is left out. */
static void add(struct ms_head_op *op, Muster__StoreStats *stats)
{
    Muster__Objects *all = found(op);
    Muster__StoreStats **more =
        stats ? realloc(all->nodes, (all->n_nodes + 1) * sizeof(*more)) : NULL;

    if (!more) {
        muster__store_stats__free_unpacked(stats, NULL);
        return;
    }
    all->nodes = more;
    all->nodes[all->n_nodes++] = stats;
}

static void add_why(struct ms_head_op *op, const char *node, const char *why)
{
    Muster__StoreStats *stats = malloc(sizeof *stats);

    if (!stats)
        return;
    muster__store_stats__init(stats);
    stats->node_name = strdup(node);
    stats->why = strdup(why);
    if (stats->node_name && stats->why) {
        add(op, stats);
        return; /* taken over. NOLINT(clang-analyzer-unix.Malloc) */
    }
    free(stats->node_name);
    free(stats->why);
    free(stats);
}

static void
answered(struct ms_head_op *op, struct ms_node *n, Muster__AgentToHead *answer)
{
    if (answer->body_case == MUSTER__AGENT_TO_HEAD__BODY_STORE)
        add(op, MS_TAKE(answer->store));
    else
        add_why(op, n->name, "it gave another answer than was asked for");
    if (ms_list_is_empty(&op->asks))
        finish(op);
}

static void
refused(struct ms_head_op *op, struct ms_node *n, const struct ms_error *why)
{
    add_why(op, n->name, why->text);
    if (ms_list_is_empty(&op->asks))
        finish(op);
}

static void on_late(void *arg)
{
    struct ms_head_op *op = arg;

    ms_list_each (a, &op->asks, struct ms_ask, link)
        add_why(op, a->node->name, "it does not answer");
    finish(op);
}

static void forget(struct ms_head_op *op)
{
    protobuf_c_message_free_unpacked(MS_TAKE(op->message), NULL);
}

void ms_head_objects_run(struct ms_head_op *op)
{
    uint32_t most = op->wanted->objects->most;
    Muster__HeadToAgent m = MUSTER__HEAD_TO_AGENT__INIT;
    Muster__ListObjects want = MUSTER__LIST_OBJECTS__INIT;
    Muster__Objects *all = malloc(sizeof *all);

    if (!all || ms_timer_init(&op->deadline, op->head->loop, on_late, op) < 0) {
        free(all);
        ms_head_op_fail(op, -ENOMEM, "out of memory");
        return;
    }
    muster__objects__init(all);
    op->message = &all->base;
    op->on_answer = answered;
    op->on_refused = refused;
    op->on_failed = forget;
    want.most = most && most < MS_STORE_SHOWN_MAX ? most : MS_STORE_SHOWN_MAX;
    m.body_case = MUSTER__HEAD_TO_AGENT__BODY_LIST_OBJECTS;
    m.list_objects = &want;
    ms_list_each (n, &op->head->nodes, struct ms_node, link) {
        struct ms_error err = {0};

        if (n->state != MS_NODE_GONE && ms_node_ask(n, op, &m, &err) < 0)
            add_why(op, n->name, err.text);
    }
    if (ms_list_is_empty(&op->asks))
        finish(op);
    else
        ms_timer_set(&op->deadline, MS_STORE_SHOW_NS);
}
