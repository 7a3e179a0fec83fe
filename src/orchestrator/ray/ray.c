/* ray.c - the orchestrator `ray`: operations (op.h) that a bridge on Ray carries out */
#include "orchestrator/ray/ray.h"

#include "base/cleanup.h"
#include "base/json.h"
#include "base/name.h"
#include "orchestrator/ray/ray_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define START_NS                                                                       \
    (300 * MS_NS_PER_S) /* from the first question until the bridge speaks */
#define LIST_NS    (5 * MS_NS_PER_S) /* an answer that needs no work */
#define RELEASE_NS (120 * MS_NS_PER_S)
#define LATE_NS    (15 * MS_NS_PER_S)
#define AGAIN_NS   (250 * MS_NS_PER_MS) /* between two looks at those that wait */
#define END_NS     (30 * MS_NS_PER_S)   /* the bridge's, when all is over */
#define LINGER_NS                                                                      \
    (5 * MS_NS_PER_S) /* for a bridge that is over to leave nothing behind */
#define LAUNCH_MAX_S                                                                   \
    (30.0 * 24 * 3600) /* what a bridge takes as a timeout; later ends here */

static struct ray *ray_of(const struct ms_orch_op *op)
{
    return (struct ray *)op->controller;
}

/* ---- sending ----------------------------------------------------------------------- */

int ms_ray_send(struct ray *r, json_t *request, uint64_t *id)
{
    MS_CLEANUP(ms_cleanup_free) char *line = NULL;
    int rc;

    if (json_object_set_new(request, "id", json_integer((json_int_t)r->next_id)) < 0 ||
        !(line = json_dumps(request, JSON_COMPACT)))
        return -ENOMEM;
    rc = r->transport->ops->send(r->transport, line, strlen(line));
    if (rc == 0)
        *id = r->next_id++;
    return rc;
}

/* A request whose answer nobody waits for; taken. */
static void post(struct ray *r, json_t *request)
{
    uint64_t id;

    if (request && r->transport)
        ms_ray_send(r, request, &id);
    json_decref(request);
}

/* The next bridge is to know what the one before was asked to avoid. */
static void post_avoided(struct ray *r)
{
    const char *node;
    json_t *reason;

    json_object_foreach(r->avoided, node, reason)
        post(r, ms_ray_avoid_request(node, json_string_value(reason)));
}

/* ---- answers ----------------------------------------------------------------------- */

/* What only asks has two answers beside its own: not allowed, and not now. */
static void fail_to_ask(struct ms_orch_op *op, const struct ms_error *why)
{
    struct ms_error said = *why;

    if (!ms_op_is_launch(op) && said.code != -EACCES && said.code != -ENOMEM)
        said.code = -EAGAIN;
    ms_op_fail(op, &said);
}

/* It is asked again when Ray answers. */
static void hold(struct ms_orch_op *op, const struct ms_error *why)
{
    op->state = MS_OP_HELD;
    op->give_up_ns = op->deadline_ns;
    op->why = *why;
}

void ms_ray_answered(
    struct ray *r, uint64_t id, int rc, uint32_t first, const char *why)
{
    struct ms_error said = {0};

    if (id == r->known_id && r->bridge == BRIDGE_STARTING) {
        r->bridge = BRIDGE_UP;
        post_avoided(r);
        ms_controller_wake(&r->controller);
        return;
    }
    ms_list_each (op, &r->controller.ops, struct ms_orch_op, link) {
        if (op->request != id || op->state != MS_OP_ASKED)
            continue;
        ms_error_set(&said, rc, "%s", why ? why : "the bridge does not say why");
        op->first = first;
        if (rc >= 0)
            ms_op_succeed(op);
        else if (rc == -EAGAIN && ms_op_is_launch(op) && !op->was_cancelled)
            hold(op, &said);
        else
            ms_op_fail(op, &said);
        return;
    }
}

/* ---- the bridge -------------------------------------------------------------------- */

static void drop(struct ms_bridge_transport **at, bool keep, int64_t within_ns)
{
    struct ms_bridge_transport *c = MS_TAKE(*at);

    if (c)
        c->ops->destroy(c, keep, ms_now_ns() + within_ns);
}

static void on_linger(void *arg)
{
    struct ray *r = arg;

    drop(&r->old, false, 0);
}

static void on_line(void *arg, const char *line, size_t len)
{
    ms_ray_heard(arg, line, len);
}

static void on_silent(void *arg, const struct ms_error *why)
{
    struct ray *r = arg;

    r->is_silent = why != NULL;
    if (why)
        ms_error_set(&r->silence, -EAGAIN, "%s", why->text);
    ms_controller_wake(&r->controller);
}

static void on_down(void *arg, const struct ms_error *why)
{
    struct ray *r = arg;
    bool was_up = r->bridge == BRIDGE_UP;
    struct ms_error said = *why;

    said.code = said.code ? said.code : -ECHILD;
    on_linger(r);
    r->old = MS_TAKE(r->transport);
    ms_timer_set(&r->linger, LINGER_NS);
    r->bridge = BRIDGE_DOWN;
    r->life++;
    r->is_silent = r->is_ray_silent = false;
    ms_ray_all_ended(r, &said);
    ms_list_each (op, &r->controller.ops, struct ms_orch_op, link) {
        if (op->state == MS_OP_REFUSED || (was_up && op->state == MS_OP_NEW))
            continue; /* of a bridge that comes after it */
        if (was_up && op->kind == MS_OP_RELEASE)
            ms_op_succeed(op); /* it has released everything */
        else
            fail_to_ask(op, &said);
    }
    ms_controller_wake(&r->controller);
}

/* Have a bridge; 0, or why not. */
static int start_bridge(struct ray *r, struct ms_error *err)
{
    static const struct ms_bridge_transport_events events = {
        on_line, on_silent, on_down};

    /* ids are below 2^53, and no two controllers use the same */
    r->next_id = (ms_random_id() >> 12) | 1;
    r->transport = r->open(&r->options, &events, r, err);
    if (!r->transport)
        return err->code ? err->code : -ENOMEM;
    r->bridge = BRIDGE_STARTING;
    return 0;
}

void ms_ray_leave_bridge(struct ray *r, bool keep)
{
    if (!keep &&
        r->bridge == BRIDGE_UP) /* nobody needs what it holds, whatever its grace */
        post(r, MS_JSON({"verb", json_string("end")}));
    drop(&r->transport, keep, END_NS);
    drop(&r->old, false, LINGER_NS);
}

/* ---- the backend -------------------------------------------------------------------- */

static bool is_silent(const struct ray *r)
{
    return r->is_silent || r->is_ray_silent;
}

/* How long it may take by the bridge's clock, and by ours. */
static double set_timeout(struct ms_orch_op *op)
{
    int64_t now_ns = ms_now_ns(), left_ns = op->deadline_ns - now_ns;
    double left_s = left_ns > 1 ? (double)left_ns / 1e9 : 1e-9;

    if (ms_op_is_launch(op))
        op->give_up_ns = ms_deadline_ns(op->deadline_ns, ray_of(op)->late_ns);
    else
        op->give_up_ns = now_ns + (op->kind == MS_OP_RELEASE ? RELEASE_NS : LIST_NS);
    return left_s < LAUNCH_MAX_S ? left_s : LAUNCH_MAX_S;
}

static void ask(struct ms_orch_op *op)
{
    struct ray *r = ray_of(op);
    struct ms_error why = {0};
    json_t *request;
    int rc;

    if (is_silent(r) && ms_op_is_launch(op)) {
        hold(op, &r->silence);
        return;
    }
    if (is_silent(r)) {
        fail_to_ask(op, &r->silence);
        return;
    }
    request = ms_ray_request(op, set_timeout(op), &why);
    rc = request ? ms_ray_send(r, request, &op->request) : -ENOMEM;
    json_decref(request);
    op->state = MS_OP_ASKED;
    if (rc < 0 && !why.code)
        ms_error_sys(&why, rc, "it cannot be asked of the bridge");
    if (rc < 0)
        ms_op_fail(op, &why);
}

/* Whatever it needs to be asked. */
static void begin(struct ms_orch_op *op)
{
    struct ray *r = ray_of(op);
    struct ms_error why = {0};
    bool is_durable = r->controller.base.ops->can & MS_ORCH_DURABLE;

    if (op->kind == MS_OP_AVOID &&
        json_object_set_new(r->avoided, op->node, ms_json_string(op->reason)) < 0)
        fail_to_ask(op, (ms_error_set(&why, -ENOMEM, "out of memory"), &why));
    else if (r->bridge == BRIDGE_UP)
        ask(op);
    else if (r->bridge == BRIDGE_DOWN && op->kind == MS_OP_RELEASE && !is_durable)
        ms_op_succeed(op); /* without a bridge there is nothing */
    else if (r->bridge == BRIDGE_DOWN && start_bridge(r, &why) < 0)
        fail_to_ask(op, &why);
}

static void look(struct ms_orch_op *op)
{
    struct ray *r = ray_of(op);

    if (op->state == MS_OP_ASKED && !ms_op_is_launch(op) && is_silent(r))
        fail_to_ask(op, &r->silence);
    else if (op->state == MS_OP_HELD && r->bridge == BRIDGE_UP && !is_silent(r) &&
             ms_now_ns() < op->give_up_ns)
        ask(op);
}

/* Cancelled: its own answer says how that went, for a while. Late: nobody hears of it any
 * more, and also what it has won meanwhile is undone. */
static void give_up(struct ms_orch_op *op, const struct ms_error *why)
{
    int64_t now_ns = ms_now_ns(),
            until_ns = ms_deadline_ns(now_ns, ray_of(op)->late_ns);
    bool is_late = now_ns >= op->give_up_ns;

    post(ray_of(op),
         MS_JSON({"verb", json_string("cancel")},
                 {"of", json_integer((json_int_t)op->request)},
                 {"undo", json_boolean(is_late)}));
    if (is_late)
        ms_op_fail(op, why);
    else if (until_ns < op->give_up_ns)
        op->give_up_ns = until_ns;
}

static const char *why_late(const struct ms_orch_op *op)
{
    return op->why.code                      ? op->why.text
           : ray_of(op)->bridge == BRIDGE_UP ? "the bridge does not answer"
                                             : "there is no bridge on Ray yet";
}

static const struct ms_backend backend = {
    .answer_ns = START_NS,
    .again_ns = AGAIN_NS,
    .begin = begin,
    .look = look,
    .give_up = give_up,
    .why_late = why_late,
};

/* ---- life -------------------------------------------------------------------------- */

/* Our copies of what the options point to. */
static const char **texts_of(struct ms_ray_options *o, size_t i)
{
    const char **all[] = {&o->site.address,
                          &o->site.muster,
                          &o->site.python_dir,
                          &o->site.cache_dir,
                          &o->name,
                          &o->state_dir};

    return i < MS_COUNT(all) ? all[i] : NULL;
}

static bool copy_options(struct ms_ray_options *to, const struct ms_ray_options *from)
{
    bool is_good = true;

    *to = *from;
    for (size_t i = 0; texts_of(to, i); i++) {
        const char **at = texts_of(to, i), *text = *at;

        *at = text ? strdup(text) : NULL;
        is_good = is_good && !text == !*at;
    }
    return is_good;
}

static ms_bridge_open *find_open(const struct ms_ray_options *o)
{
    if (strcmp(o->site.address, MS_RAY_INSIDE) != 0)
        return ms_bridge_open_job;
    return o->grace_ns > 0 ? ms_bridge_open_beside : ms_bridge_open_child;
}

static void end(struct ray *r, bool keep)
{
    ms_ray_leave_bridge(r, keep);
    ms_controller_finish(&r->controller);
    ms_timer_finish(&r->linger);
    json_decref(r->avoided);
    for (size_t i = 0; texts_of(&r->options, i); i++)
        free((char *)(uintptr_t)*texts_of(&r->options, i));
    free(r);
}

/* What is lent stays; a bridge that holds nothing ends. */
static void destroy(struct ms_orchestrator *o)
{
    struct ray *r = (struct ray *)o;

    end(r,
        (o->ops->can & MS_ORCH_DURABLE) &&
            (r->bridge != BRIDGE_UP ||
             !ms_list_is_empty(&r->controller.inventory.all)));
}

void ms_ray_abandon(struct ms_orchestrator *o)
{
    end((struct ray *)o, true);
}

#define RAY_OPS(more)                                                                  \
    {                                                                                  \
        .name = "ray",                                                                 \
        .can = MS_ORCH_BUNDLES | MS_ORCH_LABELS | MS_ORCH_SAME | MS_ORCH_AVOID |       \
               MS_ORCH_GROW | (more),                                                  \
        MS_CONTROLLER_OPS, .destroy = destroy,                                         \
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
    if (o->grace_ns > 0 && strcmp(o->site.address, MS_RAY_LOCAL) == 0)
        return ms_error_set(
            err, -EINVAL, "a Ray that ends with its controller can have no grace");
    return 0;
}

struct ms_orchestrator *ms_ray_create(const struct ms_ray_options *o,
                                      struct ms_error *err)
{
    struct ray *r = check(o, err) == 0 ? calloc(1, sizeof *r) : NULL;

    if (!r) {
        if (err && !err->code)
            ms_error_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    r->open = find_open(o);
    r->late_ns = LATE_NS;
    r->avoided = json_object();
    /* cursors are after all of a controller before */
    if (ms_controller_init(&r->controller,
                           o->grace_ns > 0 ? &durable_ops : &plain_ops,
                           &backend,
                           o->loop,
                           (uint64_t)ms_now_ns()) == 0 &&
        copy_options(&r->options, o) &&
        ms_timer_init(&r->linger, o->loop, on_linger, r) == 0)
        return &r->controller.base;
    ms_error_set(err, -ENOMEM, "out of memory");
    destroy(&r->controller.base);
    return NULL;
}
