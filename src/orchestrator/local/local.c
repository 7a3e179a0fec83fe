/* local.c - the orchestrator `local`: gangs on this host, as the backend of op.h */
#include "orchestrator/local/local.h"

#include "base/cleanup.h"
#include "orchestrator/local/local_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct local *local_of(const struct ms_orch_op *op)
{
    return (struct local *)op->controller;
}

/* ---- releasing --------------------------------------------------------------------- */

/* Does it name this piece? */
static bool is_named(const struct ms_orch_op *op, const struct gang *g, size_t i)
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

static void stop(struct ms_orch_op *op)
{
    ms_list_each (g, &local_of(op)->gangs, struct gang, link)
        for (size_t i = 0; i < g->pieces.count; i++)
            if (is_named(op, g, i))
                ms_gang_release(g, g->first + (uint32_t)i);
    ms_gang_file_write(local_of(op), NULL);
    ms_controller_wake(op->controller);
}

static bool is_clear(const struct ms_orch_op *op)
{
    ms_list_each (g, &local_of(op)->gangs, struct gang, link)
        for (size_t i = 0; i < g->pieces.count; i++)
            if (is_named(op, g, i) && !ms_gang_is_clear(g, g->first + (uint32_t)i))
                return false;
    return true;
}

static bool has_living(const struct gang *g)
{
    ms_list_each (p, &g->parts, struct part, link)
        if (p->is_alive)
            return true;
    return false;
}

/* Gangs without pieces go. */
static void clear(struct ms_orch_op *op)
{
    ms_list_each (g, &local_of(op)->gangs, struct gang, link)
        if (strcmp(g->key, op->key) == 0 && g->left == 0 && !has_living(g))
            ms_gang_destroy(g);
    ms_gang_file_write(local_of(op), NULL);
    ms_controller_wake(op->controller); /* who waits for the key */
    ms_op_stopped(op);
}

/* What had this key is on its way out. */
static bool is_clearing(const struct ms_orch_op *op)
{
    ms_list_each (other, &op->controller->ops, struct ms_orch_op, link)
        if (other->state == MS_OP_UNDOING && !other->numbers &&
            strcmp(other->key, op->key) == 0)
            return true;
    return false;
}

/* ---- the others -------------------------------------------------------------------- */

static void avoid_node(struct ms_orch_op *op)
{
    struct local *l = local_of(op);
    struct ms_stock_node *n = ms_stock_find(&l->nodes.stock, op->node);
    struct ms_error why = {0};

    if (!n) {
        ms_error_set(&why, -ENOENT, "there is no node '%.64s'", op->node);
        ms_op_fail(op, &why);
        return;
    }
    n->is_gone = true;
    free(l->avoided[n - l->nodes.stock.nodes]);
    l->avoided[n - l->nodes.stock.nodes] = MS_TAKE(op->reason);
    ms_op_succeed(op);
}

/* What is lent and not written down would be lost with us: nothing is told or lent until
 * it can be written again. */
static bool is_kept(struct ms_orch_op *op)
{
    struct local *l = local_of(op);
    struct ms_error why = {0};

    if (!l->is_unkept || ms_gang_file_write(l, &why) == 0)
        return true;
    why.code = -EAGAIN;
    ms_op_fail(op, &why);
    return false;
}

static void begin(struct ms_orch_op *op)
{
    if ((op->kind == MS_OP_LIST || ms_op_is_launch(op)) && !is_kept(op))
        return;
    if (op->kind == MS_OP_LIST)
        ms_op_succeed(op);
    else if (op->kind == MS_OP_AVOID)
        avoid_node(op);
    else if (op->kind == MS_OP_RELEASE)
        ms_op_stop(op);
    else if (!is_clearing(op))
        ms_op_launch(op);
}

static int launch(struct ms_orch_op *op, bool is_new)
{
    ms_controller_wake(op->controller);
    return is_new ? ms_gang_create(local_of(op), op) : 0;
}

static void look(struct ms_orch_op *op)
{
    const struct gang *g = ms_gang_find(local_of(op), op->key, op->first);

    if (op->state == MS_OP_UNDOING && is_clear(op))
        clear(op);
    else if (op->state == MS_OP_ASKED && g && !g->is_placed && g->why.code == -EINVAL)
        ms_op_undo(op, &g->why); /* it contradicts itself: no room will help */
    else if (op->state == MS_OP_ASKED)
        ms_op_check_pieces(op);
}

static const char *why_late(const struct ms_orch_op *op)
{
    const struct gang *g = ms_gang_find(local_of(op), op->key, op->first);

    return op->state == MS_OP_ASKED && g && !g->is_placed && g->why.code
               ? g->why.text
               : "its agents have not all joined the head";
}

static void place_gangs(struct ms_controller *c)
{
    ms_gangs_place((struct local *)c);
}

static const struct ms_backend backend = {
    .answer_ns = MS_NEVER,
    .undo_ns = MS_NEVER, /* agents are killed after their grace */
    .begin = begin,
    .launch = launch,
    .stop = stop,
    .look = look,
    .why_late = why_late,
    .turned = place_gangs,
};

/* ---- life -------------------------------------------------------------------------- */

static void free_texts(char **texts, size_t count)
{
    for (size_t i = 0; texts && i < count; i++)
        free(texts[i]);
    free(texts);
}

static void free_prefix(char **prefix)
{
    size_t count = 0;

    while (prefix && prefix[count])
        count++;
    free_texts(prefix, count);
}

/* All agents end at the same time, or go on. */
static void stop_all(struct local *l)
{
    ms_list_each (g, &l->gangs, struct gang, link)
        ms_list_each (p, &g->parts, struct part, link)
            if (!l->state_path)
                ms_part_stop(p);
            else if (!p->is_stopping)
                ms_agent_process_leave(&p->agent);
    ms_list_each (g, &l->gangs, struct gang, link)
        ms_gang_destroy(g);
}

static void destroy(struct ms_orchestrator *o)
{
    struct local *l = (struct local *)o;

    stop_all(l);
    ms_controller_finish(&l->controller);
    for (size_t i = 0; l->prefixes && i < l->nodes.count; i++)
        free_prefix(l->prefixes[i]);
    free(l->prefixes);
    free_texts(l->avoided, l->nodes.count);
    ms_whole_nodes_finish(&l->nodes);
    free(l->agent_path);
    free(l->log_dir);
    free(l->agent_prefix);
    free(l->state_path);
    free(l);
}

static char **copy_prefix(const char *const *from)
{
    size_t count = 0;
    char **to;

    while (from[count])
        count++;
    to = calloc(count + 1, sizeof(char *));
    for (size_t i = 0; to && i < count; i++)
        if (!(to[i] = strdup(from[i]))) {
            free_prefix(to);
            return NULL;
        }
    return to;
}

static int copy_options(struct local *l, const struct ms_local_options *o)
{
    l->prefixes = calloc(l->nodes.count, sizeof *l->prefixes);
    l->avoided = calloc(l->nodes.count, sizeof *l->avoided);
    l->agent_path = strdup(o->agent_path);
    l->log_dir = o->log_dir ? strdup(o->log_dir) : NULL;
    l->agent_prefix = strdup(o->agent_prefix ? o->agent_prefix : "");
    if (!l->prefixes || !l->avoided || !l->agent_path || !l->agent_prefix ||
        (o->log_dir && !l->log_dir))
        return -ENOMEM;
    if (o->state_dir &&
        asprintf(&l->state_path, "%s/lent-%s", o->state_dir, l->agent_prefix) < 0) {
        l->state_path = NULL;
        return -ENOMEM;
    }
    for (size_t i = 0; o->prefixes && i < l->nodes.count; i++)
        if (o->prefixes[i] && !(l->prefixes[i] = copy_prefix(o->prefixes[i])))
            return -ENOMEM;
    l->end_with = o->state_dir ? 0 : o->end_with ? o->end_with : getpid();
    l->grace_ns = o->grace_ns > 0 ? o->grace_ns : MS_LOCAL_GRACE_NS;
    return 0;
}

#define LOCAL_OPS(more)                                                                \
    {                                                                                  \
        .name = "local",                                                               \
        .can = MS_ORCH_BUNDLES | MS_ORCH_LABELS | MS_ORCH_SAME | MS_ORCH_AVOID |       \
               MS_ORCH_GROW | (more),                                                  \
        MS_CONTROLLER_OPS, .destroy = destroy                                          \
    }

static int init(struct local *l, const struct ms_local_options *o, struct ms_error *err)
{
    static const struct ms_orchestrator_ops plain_ops = LOCAL_OPS(0),
                                            durable_ops = LOCAL_OPS(MS_ORCH_DURABLE);
    /* cursors are after all of a controller before */
    int rc = ms_controller_init(&l->controller,
                                o->state_dir ? &durable_ops : &plain_ops,
                                &backend,
                                o->loop,
                                (uint64_t)ms_now_ns());

    if (rc == 0) {
        rc = ms_whole_nodes_init(&l->nodes, o->nodes, o->node_count, true, err);
        if (rc < 0)
            return rc;
        rc = copy_options(l, o);
    }
    if (rc < 0)
        return ms_error_sys(err, rc, "cannot make the orchestrator");
    return l->state_path ? ms_gang_file_read(l, err) : 0;
}

struct ms_orchestrator *ms_orchestrator_local(const struct ms_local_options *o,
                                              struct ms_error *err)
{
    struct local *l = calloc(1, sizeof *l);

    if (!l) {
        ms_error_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    l->loop = o->loop;
    ms_list_init(&l->gangs);
    ms_cgroups_init(&l->cgroups, "");
    if (init(l, o, err) == 0)
        return &l->controller.base;
    destroy(&l->controller.base);
    return NULL;
}
