/* asks.c - requests that nodes answer: zygotes, logs, objects */
#include "agent/logs/piece.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/proto.h"
#include "head/drivers/driver.h"
#include "head/head_impl.h"
#include "head/nodes/node.h"
#include "head/ops/op.h"
#include "io/session/node_dir.h"

#include <errno.h>
#include <unistd.h>

/* ---- zygotes --------------------------------------------------------------------- */

static void
not_prepared(struct ms_head_op *op, struct ms_node *n, const struct ms_error *why)
{
    (void)n;
    op->error = *why;
    ms_head_op_gather_end(op);
}

/* Completes when every node has answered, with the last failure if there was one. A node
 * that cannot prepare says so again when it has to start something. */
int ms_head_prepare_run(struct ms_head_op *op)
{
    Muster__Prepare *prepare = op->request->prepare;

    ms_head_op_gather(op, ms_head_op_done);
    op->on_refused = not_prepared;
    prepare->driver = ms_driver_id(op->driver);
    ms_list_each (n, &op->head->nodes, struct ms_node, link)
        if (ms_driver_introduce(op->driver, n, &op->error) == 0)
            ms_node_ask(
                n, op, MUSTER__HEAD_TO_AGENT__BODY_PREPARE, prepare, &op->error);
    ms_head_op_gather_end(op);
    return 0;
}

/* ---- logs ------------------------------------------------------------------------ */

static void
log_read(struct ms_head_op *op, struct ms_node *n, Muster__AgentToHead *answer)
{
    (void)n;
    if (answer->body_case == MUSTER__AGENT_TO_HEAD__BODY_PIECE)
        ms_head_op_succeed(op, &MS_TAKE(answer->piece)->base);
    else
        ms_head_op_fail(op, -EPROTO, "the node gave another answer than was asked for");
}

/* An agent that has ended has left its logs in its folder, if that is on this machine. */
static int read_left(struct ms_head_op *op, const Muster__ReadLog *want)
{
    Muster__LogPiece piece = MUSTER__LOG_PIECE__INIT;
    ProtobufCMessage *answer = NULL;
    char dir[MS_SESSION_DIR_MAX];
    int rc = ms_node_dir_path(op->head->session.name, want->node, dir, &op->error);

    piece.time_ns = (uint64_t)ms_wall_ns();
    if (rc == 0)
        rc = ms_log_piece_read(dir, want, &piece, &op->error);
    if (rc == 0 && !piece.file && access(dir, F_OK) < 0)
        rc = ms_error_set(&op->error,
                          -ENODEV,
                          "node %.64s is gone, and its logs with it",
                          want->node);
    if (rc == 0 && !(answer = ms_proto_copy(&piece.base)))
        rc = -ENOMEM;
    free(piece.data.data);
    if (answer)
        ms_head_op_succeed(op, answer);
    return rc;
}

int ms_head_read_log_run(struct ms_head_op *op)
{
    Muster__ReadLog *want = op->request->read_log;
    struct ms_node *n = ms_node_find(op->head, want->node);

    op->on_answer = log_read;
    if (!n)
        return read_left(op, want);
    return ms_node_ask(n, op, MUSTER__HEAD_TO_AGENT__BODY_READ_LOG, want, &op->error);
}

/* ---- objects --------------------------------------------------------------------- */

/* What was found until now; it is not read before the operation has completed. */
static Muster__Objects *found(struct ms_head_op *op)
{
    return (Muster__Objects *)op->message;
}

static void all_listed(struct ms_head_op *op)
{
    ms_head_op_succeed(op, MS_TAKE(op->message));
}

/* Takes it; without memory for it the node is left out. */
static void add(struct ms_head_op *op, Muster__StoreStats *stats)
{
    ms_proto_append(&found(op)->nodes, &found(op)->n_nodes, stats);
}

static void add_why(struct ms_head_op *op, const char *node, const char *why)
{
    Muster__StoreStats stats = MUSTER__STORE_STATS__INIT;

    stats.node_name = ms_field_text(node);
    stats.why = ms_field_text(why);
    add(op, (Muster__StoreStats *)ms_proto_copy(&stats.base));
}

static void
listed(struct ms_head_op *op, struct ms_node *n, Muster__AgentToHead *answer)
{
    if (answer->body_case == MUSTER__AGENT_TO_HEAD__BODY_STORE)
        add(op, MS_TAKE(answer->store));
    else
        add_why(op, n->name, "it gave another answer than was asked for");
    ms_head_op_gather_end(op);
}

static void
not_listed(struct ms_head_op *op, struct ms_node *n, const struct ms_error *why)
{
    add_why(op, n->name, why->text);
    ms_head_op_gather_end(op);
}

static void on_late(void *arg)
{
    struct ms_head_op *op = arg;

    ms_list_each (a, &op->asks, struct ms_ask, link)
        add_why(op, a->node->name, "it does not answer");
    all_listed(op);
}

static void forget_list(struct ms_head_op *op)
{
    protobuf_c_message_free_unpacked(MS_TAKE(op->message), NULL);
}

/* Nodes that do not answer in MS_STORE_SHOW_NS say why not. */
int ms_head_objects_run(struct ms_head_op *op)
{
    uint32_t most = op->request->objects->most;
    Muster__ListObjects want = MUSTER__LIST_OBJECTS__INIT;

    op->message = ms_proto_create(&muster__objects__descriptor);
    op->on_failed = forget_list;
    if (!op->message || ms_head_op_set_deadline(op, on_late, MS_STORE_SHOW_NS) < 0)
        return -ENOMEM;
    ms_head_op_gather(op, all_listed);
    op->on_answer = listed;
    op->on_refused = not_listed;
    want.most = most && most < MS_STORE_SHOWN_MAX ? most : MS_STORE_SHOWN_MAX;
    ms_list_each (n, &op->head->nodes, struct ms_node, link) {
        struct ms_error err = {0};

        if (n->state != MS_NODE_GONE &&
            ms_node_ask(n, op, MUSTER__HEAD_TO_AGENT__BODY_LIST_OBJECTS, &want, &err) <
                0)
            add_why(op, n->name, err.text);
    }
    ms_head_op_gather_end(op);
    return 0;
}
