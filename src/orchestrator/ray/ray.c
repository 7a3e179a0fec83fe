#include "orchestrator/ray/ray.h"

#include "base/cleanup.h"
#include "base/name.h"
#include "orchestrator/ray/ray_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct ray *ray_of(struct ms_orchestrator *o)
{
    return (struct ray *)o;
}

/* ---- operations -------------------------------------------------------------------- */

static struct ms_orch_op *reserve(struct ms_orchestrator *o,
                                  const struct ms_reserve *r,
                                  ms_orch_done *done,
                                  void *arg)
{
    enum op_kind kind = r->is_more ? OP_GROW : OP_RESERVE;
    struct ms_orch_op *op = ms_ray_op_create(ray_of(o), kind, r->key, done, arg);

    if (!op)
        return NULL;
    op->deadline_ns = ms_deadline_ns(ms_now_ns(), r->timeout_ns);
    if (ms_reserve_check(o, r, &op->why) < 0) {
        op->state = OP_REFUSED;
        return op;
    }
    op->request = ms_ray_ask_pieces(r->is_more ? "grow" : "reserve", r, &op->why);
    if (!op->request)
        op->state = OP_REFUSED;
    return op;
}

/* An operation that was made, with its request, which is taken. */
static struct ms_orch_op *with_request(struct ms_orch_op *op, json_t *request)
{
    if (op && request) {
        op->request = request;
        return op;
    }
    json_decref(request);
    if (op)
        ms_ray_op_free(op);
    return NULL;
}

static struct ms_orch_op *release(struct ms_orchestrator *o,
                                  const char *key,
                                  const uint32_t *pieces,
                                  size_t count,
                                  ms_orch_done *done,
                                  void *arg)
{
    return with_request(ms_ray_op_create(ray_of(o), OP_RELEASE, key, done, arg),
                        ms_ray_ask_release(key, pieces, count));
}

static struct ms_orch_op *
list(struct ms_orchestrator *o, const char *key, ms_orch_done *done, void *arg)
{
    return with_request(ms_ray_op_create(ray_of(o), OP_LIST, key, done, arg),
                        json_pack("{s:s}", "verb", "list"));
}

static json_t *ask_avoid(const char *node, const char *reason)
{
    return json_pack(
        "{s:s, s:s, s:s}", "verb", "avoid", "node", node, "reason", reason);
}

/* The next bridge is to know it too. */
static bool remember(struct ray *r, const char *node, const char *reason)
{
    struct avoided *a = calloc(1, sizeof *a);

    if (!a)
        return false;
    a->node = strdup(node);
    a->reason = strdup(reason);
    ms_list_add_tail(&r->avoided, &a->link);
    return a->node && a->reason;
}

static struct ms_orch_op *avoid(struct ms_orchestrator *o,
                                const char *node,
                                const char *reason,
                                ms_orch_done *done,
                                void *arg)
{
    if (!remember(ray_of(o), node, reason))
        return NULL;
    return with_request(ms_ray_op_create(ray_of(o), OP_AVOID, NULL, done, arg),
                        ask_avoid(node, reason));
}

void ms_ray_avoid_again(struct ray *r)
{
    uint64_t id;

    ms_list_each (a, &r->avoided, struct avoided, link) {
        json_t *o = ask_avoid(a->node, a->reason);

        if (o)
            ms_ray_send(r, o, &id);
        json_decref(o);
    }
}

static void cancel(struct ms_orch_op *op)
{
    op->is_cancelled = true;
    ms_ray_turn_soon(op->ray);
}

/* ---- watches ----------------------------------------------------------------------- */

static struct ms_orch_watch *
watch(struct ms_orchestrator *o, uint64_t cursor, ms_orch_watched *watched, void *arg)
{
    return ms_watches_add(&ray_of(o)->watches, cursor, watched, arg);
}

const struct ms_ray_hello *ms_ray_hello(const struct ms_orchestrator *o)
{
    const struct ray *r = (const struct ray *)o;

    return r->hello_line ? &r->hello : NULL;
}

/* ---- life -------------------------------------------------------------------------- */

static void forget_avoided(struct ray *r)
{
    ms_list_each (a, &r->avoided, struct avoided, link) {
        ms_list_remove(&a->link);
        free(a->node);
        free(a->reason);
        free(a);
    }
}

/* Our copies of what the options point to. */
static const char **texts_of(struct ms_ray_options *o, size_t i)
{
    const char **all[] = {&o->site.address,
                          &o->site.token,
                          &o->site.muster,
                          &o->site.python_dir,
                          &o->site.cache_dir,
                          &o->name,
                          &o->listen,
                          &o->state_dir};

    return i < MS_COUNT(all) ? all[i] : NULL;
}

static void free_options(struct ms_ray_options *o)
{
    for (size_t i = 0; texts_of(o, i); i++)
        free((char *)(uintptr_t)*texts_of(o, i));
}

static bool copy_options(struct ms_ray_options *to, const struct ms_ray_options *from)
{
    bool good = true;

    *to = *from;
    for (size_t i = 0; texts_of(to, i); i++) {
        const char **at = texts_of(to, i);

        *at = *at ? strdup(*at) : NULL;
    }
    for (size_t i = 0; texts_of(to, i); i++)
        good = good &&
               (*texts_of(to, i) != NULL) ==
                   (*texts_of((struct ms_ray_options *)(uintptr_t)from, i) != NULL);
    return good;
}

static void end(struct ray *r, bool keep)
{
    ms_list_each (op, &r->ops, struct ms_orch_op, link)
        ms_ray_op_free(op);
    ms_ray_untie(r, keep);
    ms_watches_finish(&r->watches);
    ms_timer_finish(&r->turn);
    ms_timer_finish(&r->linger);
    ms_mirror_finish(&r->mirror);
    forget_avoided(r);
    free_options(&r->options);
    free(r);
}

static void destroy(struct ms_orchestrator *o)
{
    end(ray_of(o), o->ops->can & MS_ORCH_DURABLE);
}

void ms_ray_abandon(struct ms_orchestrator *o)
{
    end(ray_of(o), true);
}

#define RAY_OPS(more)                                                                  \
    {                                                                                  \
        .name = "ray",                                                                 \
        .can = MS_ORCH_BUNDLES | MS_ORCH_LABELS | MS_ORCH_SAME | MS_ORCH_AVOID |       \
               MS_ORCH_GROW | (more),                                                  \
        .reserve = reserve, .release = release, .list = list, .watch = watch,          \
        .unwatch = ms_watches_remove, .avoid = avoid, .cancel = cancel,                \
        .destroy = destroy,                                                            \
    }

static const struct ms_orchestrator_ops plain_ops = RAY_OPS(0),
                                        durable_ops = RAY_OPS(MS_ORCH_DURABLE);

static int check(const struct ms_ray_options *o, struct ms_error *err)
{
    if (!o->site.address || !o->site.address[0])
        return ms_error_set(
            err, -EINVAL, "which Ray? Give http://HEAD:8265, or `local`");
    if (ms_name_check(o->name, "session", err) < 0)
        return -EINVAL;
    if (o->grace_ns > 0 && !o->state_dir)
        return ms_error_set(err, -EINVAL, "a grace needs a state_dir");
    if (o->grace_ns > 0 && (strcmp(o->site.address, MS_RAY_INSIDE) == 0 ||
                            strcmp(o->site.address, MS_RAY_LOCAL) == 0))
        return ms_error_set(
            err, -EINVAL, "a Ray that ends with its controller can have no grace");
    return 0;
}

struct ms_orchestrator *ms_ray_create_on(const struct ms_ray_options *o,
                                         ms_carrier_open *open,
                                         struct ms_error *err)
{
    struct ray *r = check(o, err) == 0 ? calloc(1, sizeof *r) : NULL;

    if (!r) {
        if (err && !err->code)
            ms_error_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    r->base.ops = o->grace_ns > 0 ? &durable_ops : &plain_ops;
    r->open = open;
    r->late_ns = MS_RAY_LATE_NS;
    ms_list_init(&r->ops);
    ms_list_init(&r->avoided);
    ms_mirror_init(&r->mirror, (uint64_t)ms_now_ns()); /* after all of one before */
    if (ms_watches_init_on(&r->watches, &r->mirror, o->loop) == 0 &&
        copy_options(&r->options, o) &&
        ms_timer_init(&r->turn, o->loop, ms_ray_turn, r) == 0 &&
        ms_timer_init(&r->linger, o->loop, ms_ray_on_linger, r) == 0)
        return &r->base;
    ms_error_set(err, -ENOMEM, "out of memory");
    destroy(&r->base);
    return NULL;
}

struct ms_orchestrator *ms_ray_create(const struct ms_ray_options *o,
                                      struct ms_error *err)
{
    bool is_inside = o->site.address && strcmp(o->site.address, MS_RAY_INSIDE) == 0;

    return ms_ray_create_on(o, is_inside ? ms_near_open : ms_far_open, err);
}
