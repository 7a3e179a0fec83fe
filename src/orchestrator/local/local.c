#include "orchestrator/local/local.h"

#include "base/cleanup.h"
#include "orchestrator/launch.h"
#include "orchestrator/local/local_impl.h"
#include "resource/request_copy.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct local *local_of(struct ms_orchestrator *o)
{
    return (struct local *)o;
}

/* ---- operations -------------------------------------------------------------------- */

static struct ms_orch_op *reserve(struct ms_orchestrator *o,
                                  const struct ms_reserve *r,
                                  ms_orch_done *done,
                                  void *arg)
{
    enum op_kind kind = r->is_more ? OP_GROW : OP_RESERVE;
    struct ms_orch_op *op = ms_local_op_create(local_of(o), kind, r->key, done, arg);

    if (!op)
        return NULL;
    op->deadline_ns = ms_deadline_ns(ms_now_ns(), r->timeout_ns);
    if (ms_reserve_check(o, r, &op->why) < 0) {
        op->state = OP_REFUSED;
        return op;
    }
    if (kind == OP_GROW)
        op->numbers = calloc(r->pieces.count, sizeof *op->numbers);
    if ((kind == OP_GROW && !op->numbers) ||
        ms_request_copy(&op->pieces, &r->pieces) < 0 ||
        ms_agent_start_copy(&op->start, r->agent) < 0) {
        ms_local_op_free(op);
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
    struct ms_orch_op *op = ms_local_op_create(local_of(o), OP_RELEASE, key, done, arg);

    if (op && ms_launch_numbers(&op->numbers, &op->count, pieces, count) < 0) {
        ms_local_op_free(op);
        return NULL;
    }
    return op;
}

static struct ms_orch_op *
list(struct ms_orchestrator *o, const char *key, ms_orch_done *done, void *arg)
{
    return ms_local_op_create(local_of(o), OP_LIST, key, done, arg);
}

static struct ms_orch_op *avoid(struct ms_orchestrator *o,
                                const char *node,
                                const char *reason,
                                ms_orch_done *done,
                                void *arg)
{
    struct ms_orch_op *op = ms_local_op_create(local_of(o), OP_AVOID, NULL, done, arg);

    if (!op)
        return NULL;
    op->node = strdup(node);
    op->reason = strdup(reason);
    if (op->node && op->reason)
        return op;
    ms_local_op_free(op);
    return NULL;
}

static void cancel(struct ms_orch_op *op)
{
    op->is_cancelled = true;
    ms_local_turn_soon(op->local);
}

/* ---- watches ----------------------------------------------------------------------- */

static struct ms_orch_watch *
watch(struct ms_orchestrator *o, uint64_t cursor, ms_orch_watched *watched, void *arg)
{
    return ms_watches_add(&local_of(o)->watches, cursor, watched, arg);
}

/* ---- what is there ----------------------------------------------------------------- */

pid_t ms_local_agent_pid(const struct ms_orchestrator *o,
                         const char *key,
                         uint32_t number)
{
    const struct local *l = (const struct local *)o;
    const struct gang *g = ms_gang_find(l, key, number);

    if (!g || !g->is_placed)
        return 0;
    ms_list_each (p, &g->parts, struct part, link)
        if (p->node == g->placement.nodes[number - g->first] && p->is_alive)
            return p->lent.process.pid;
    return 0;
}

/* Of a part that has ended nothing is held. */
static size_t held_of(const struct gang *g)
{
    size_t held = 0;

    if (!g->is_placed)
        return g->left;
    ms_list_each (p, &g->parts, struct part, link)
        held += p->is_alive ? p->left : 0;
    return held;
}

size_t ms_local_held(const struct ms_orchestrator *o)
{
    const struct local *l = (const struct local *)o;
    size_t held = 0;

    ms_list_each (g, &l->gangs, struct gang, link)
        held += held_of(g);
    return held;
}

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

/* All agents end at the same time. */
static void stop_all(struct local *l)
{
    ms_list_each (g, &l->gangs, struct gang, link)
        ms_list_each (p, &g->parts, struct part, link)
            ms_part_stop(p);
    ms_list_each (g, &l->gangs, struct gang, link)
        ms_gang_destroy(g);
}

static void destroy(struct ms_orchestrator *o)
{
    struct local *l = local_of(o);

    ms_list_each (op, &l->ops, struct ms_orch_op, link)
        ms_local_op_free(op);
    stop_all(l);
    ms_watches_finish(&l->watches);
    ms_timer_finish(&l->turn);
    ms_mirror_finish(&l->mirror);
    for (size_t i = 0; l->prefixes && i < l->offers.count; i++)
        free_prefix(l->prefixes[i]);
    free(l->prefixes);
    free_texts(l->avoided, l->offers.count);
    ms_offers_finish(&l->offers);
    ms_stock_finish(&l->stock);
    free(l->agent_path);
    free(l->log_dir);
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
    l->prefixes = calloc(l->offers.count, sizeof *l->prefixes);
    l->avoided = calloc(l->offers.count, sizeof *l->avoided);
    l->agent_path = strdup(o->agent_path);
    l->log_dir = o->log_dir ? strdup(o->log_dir) : NULL;
    if (!l->prefixes || !l->avoided || !l->agent_path || (o->log_dir && !l->log_dir))
        return -ENOMEM;
    for (size_t i = 0; o->prefixes && i < l->offers.count; i++)
        if (o->prefixes[i] && !(l->prefixes[i] = copy_prefix(o->prefixes[i])))
            return -ENOMEM;
    l->end_with = o->end_with ? o->end_with : getpid();
    l->grace_ns = o->grace_ns > 0 ? o->grace_ns : MS_LOCAL_GRACE_NS;
    return 0;
}

static int init(struct local *l, const struct ms_local_options *o, struct ms_error *err)
{
    int rc = ms_watches_init_on(&l->watches, &l->mirror, o->loop);

    if (rc == 0)
        rc = ms_timer_init(&l->turn, o->loop, ms_local_turn, l);
    if (rc == 0) {
        rc = ms_offers_init(&l->offers, o->nodes, o->node_count, &l->stock, err);
        if (rc < 0)
            return rc;
        rc = copy_options(l, o);
    }
    return rc < 0 ? ms_error_sys(err, rc, "cannot make the orchestrator") : 0;
}

struct ms_orchestrator *ms_orchestrator_local(const struct ms_local_options *o,
                                              struct ms_error *err)
{
    static const struct ms_orchestrator_ops ops = {
        .name = "local",
        .can = MS_ORCH_BUNDLES | MS_ORCH_LABELS | MS_ORCH_SAME | MS_ORCH_AVOID |
               MS_ORCH_GROW,
        .reserve = reserve,
        .release = release,
        .list = list,
        .watch = watch,
        .unwatch = ms_watches_remove,
        .avoid = avoid,
        .cancel = cancel,
        .destroy = destroy,
    };
    struct local *l = calloc(1, sizeof *l);

    if (!l) {
        ms_error_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    l->base.ops = &ops;
    l->loop = o->loop;
    ms_list_init(&l->ops);
    ms_list_init(&l->gangs);
    ms_stock_init(&l->stock);
    ms_mirror_init(&l->mirror, (uint64_t)ms_now_ns()); /* after all of one before */
    ms_cgroups_init(&l->cgroups, "");
    if (init(l, o, err) == 0)
        return &l->base;
    destroy(&l->base);
    return NULL;
}
