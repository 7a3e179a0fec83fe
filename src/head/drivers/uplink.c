/* uplink.c - the link of a head that has joined another one: dialling, welcome, loss */
#include "base/cleanup.h"
#include "base/name.h"
#include "base/proto.h"
#include "head/drivers/uplink_impl.h"
#include "head/head_impl.h"
#include "head/nodes/local_nodes.h"
#include "head/ops/op.h"
#include "head/ops/request.h"
#include "head/place/kept_groups.h"
#include "head/version.h"
#include "io/addr.h"
#include "wire/frame.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the end of it --------------------------------------------------------------- */

static void end_start(struct ms_uplink *u, const struct ms_error *why)
{
    struct ms_head_op *op = MS_TAKE(u->start_op);

    if (op && why)
        ms_head_op_fail_with(op, why);
    else if (op)
        ms_head_op_succeed(op, NULL);
}

void ms_uplink_lose(struct ms_uplink *u, const struct ms_error *why)
{
    struct ms_head *h = u->head;
    bool had_started = !u->start_op;

    if (u->state == MS_UPLINK_LOST)
        return;
    u->state = MS_UPLINK_LOST;
    end_start(u, why);
    ms_error_set(&u->why, -EPIPE, "%s", why->text);
    ms_redial_close(&u->redial); /* and perhaps `why` with it */
    ms_uplink_fail_open(u, &u->why);
    ms_uplink_lose_workers(u, u->why.text);
    if (had_started && !h->stop_op && h->on_agent_lost)
        h->on_agent_lost(h->arg, u->why.text);
    if (h->stop_op)
        ms_head_op_succeed(MS_TAKE(h->stop_op), NULL);
}

static void on_refused(struct ms_uplink *u, const Muster__Failure *f)
{
    struct ms_error why = {0};

    ms_error_set(&why,
                 f->code < 0 ? f->code : -EPERM,
                 "the head at %.200s does not take us: %s",
                 u->addresses,
                 f->message);
    ms_uplink_lose(u, &why);
}

/* ---- the link -------------------------------------------------------------------- */

/* How long it may take until there is a link that is up. */
static int64_t give_up_ns(const struct ms_uplink *u)
{
    return ms_deadline_ns(ms_now_ns(), u->head->head_grace_ns);
}

static bool is_patient(const struct ms_uplink *u)
{
    return u->is_patient || (u->head_id != 0 && !u->is_tool);
}

/* There will be no link any more. */
static void give_up(struct ms_uplink *u, const struct ms_error *why)
{
    struct ms_error text = {0};

    if (u->is_tool)
        ms_error_set(&text, u->head_id ? -EPIPE : why->code, "%s", why->text);
    else if (u->head_id)
        ms_error_set(&text,
                     -EPIPE,
                     "the head at %.200s did not come back within %.3g s: %.200s",
                     u->addresses,
                     (double)u->head->head_grace_ns / (double)MS_NS_PER_S,
                     why->text);
    else
        ms_error_set(
            &text, why->code, "cannot join %.200s: %s", u->addresses, why->text);
    ms_uplink_lose(u, &text);
}

static int on_open(void *arg, struct ms_link *link)
{
    struct ms_uplink *u = arg;

    return ms_link_send(link, &u->hello->base);
}

static bool on_lost(void *arg, int64_t since_ns, const struct ms_error *why)
{
    struct ms_uplink *u = arg;

    (void)since_ns;
    if (!ms_redial_link(&u->redial) && !is_patient(u)) {
        give_up(u, why);
        return false;
    }
    if (u->state == MS_UPLINK_READY)
        u->redial.dial.deadline_ns = give_up_ns(u);
    u->state = MS_UPLINK_AWAY;
    return true;
}

static void on_back(void *arg)
{
    struct ms_uplink *u = arg;

    u->state = MS_UPLINK_READY;
}

/* Failures that no other attempt heals. */
static bool is_final(int code)
{
    return code == -EACCES || code == -EPERM || code == -EPROTONOSUPPORT ||
           code == -ENOKEY || code == -EINVAL || code == -ENOMEM;
}

static bool on_failed(void *arg, const struct ms_error *why)
{
    struct ms_uplink *u = arg;
    /* silence is no refusal: the limit of the start is for that */
    bool is_worth_it = is_patient(u) || why->code == -ETIMEDOUT;

    if (is_worth_it && !is_final(why->code) && ms_now_ns() < u->redial.dial.deadline_ns)
        return true;
    give_up(u, why);
    return false;
}

static int start_run(struct ms_head_op *op)
{
    struct ms_uplink *u = op->head->uplink;

    u->start_op = op;
    u->redial.dial.deadline_ns = give_up_ns(u);
    ms_redial_start(&u->redial);
    return 0;
}

/* The node of this machine, whose folder we share with its workers. */
static void find_folder(struct ms_head *h, const Muster__LinkWelcome *w)
{
    for (size_t i = 0; i < w->n_nodes; i++)
        if (w->nodes[i]->host_id[0] &&
            strcmp(w->nodes[i]->host_id, ms_host_id()) == 0 &&
            strlen(w->nodes[i]->session_dir) < sizeof h->session.dir)
            strcpy(h->session.dir, w->nodes[i]->session_dir);
}

static void on_welcome(struct ms_uplink *u, const Muster__LinkWelcome *w)
{
    struct ms_head *h = u->head;
    bool is_new = u->head_id && u->head_id != w->head;

    u->state = MS_UPLINK_READY;
    u->head_id = w->head;
    h->link_grace_ns = ms_head_grace(w->link_grace_ns);
    h->head_grace_ns = ms_head_grace(w->head_grace_ns);
    if (u->start_op) {
        snprintf(h->session.name, sizeof h->session.name, "%s", w->session);
        find_folder(h, w);
    }
    ms_uplink_resend(u, is_new);
    end_start(u, NULL);
}

static void
on_greeting(void *arg, struct ms_redial_line *line, const uint8_t *body, size_t len)
{
    struct ms_uplink *u = arg;
    Muster__HeadToDriver *m = muster__head_to_driver__unpack(NULL, len, body);

    if (m && m->body_case == MUSTER__HEAD_TO_DRIVER__BODY_WELCOME) {
        ms_redial_welcome(line);
        on_welcome(u, m->welcome);
    } else if (m && m->body_case == MUSTER__HEAD_TO_DRIVER__BODY_FAILURE) {
        on_refused(u, m->failure);
    } else {
        ms_uplink_read(u, body, len);
    }
    muster__head_to_driver__free_unpacked(m, NULL);
}

static const struct ms_redial_ops redial_ops = {.on_open = on_open,
                                                .on_greeting = on_greeting,
                                                .on_body = ms_uplink_read,
                                                .on_lost = on_lost,
                                                .on_back = on_back,
                                                .on_failed = on_failed};

/* ---- the start ------------------------------------------------------------------- */

/* As a copy of our own. */
static Muster__DriverToHead *hello_message(const struct ms_head_options *o)
{
    Muster__DriverContext context = MUSTER__DRIVER_CONTEXT__INIT;
    Muster__DriverHello driver = MUSTER__DRIVER_HELLO__INIT;
    Muster__LinkHello hello = MUSTER__LINK_HELLO__INIT;
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;
    char host[MS_NAME_MAX + 1] = "", version[] = MS_VERSION;

    ms_local_nodes_context(&context, o);
    gethostname(host, sizeof host - 1);
    driver.driver = context.driver = ms_random_id();
    driver.pid = getpid();
    driver.host = host;
    driver.host_id = ms_field_text(ms_host_id());
    driver.script = ms_field_text(o->script);
    driver.worker = o->worker;
    driver.tool = o->tool;
    driver.context = &context;
    hello.version = version;
    hello.protocol = MS_FRAME_VERSION;
    hello.who_case = MUSTER__LINK_HELLO__WHO_DRIVER;
    hello.driver = &driver;
    m.request = 1;
    m.body_case = MUSTER__DRIVER_TO_HEAD__BODY_HELLO;
    m.hello = &hello;
    return (Muster__DriverToHead *)ms_proto_copy(&m.base);
}

static void on_stop_timer(void *arg)
{
    struct ms_uplink *u = arg;
    struct ms_head_op *op = MS_TAKE(u->head->stop_op);

    if (!op)
        return;
    ms_requests_remove(&u->requests, &op->pending);
    ms_head_op_succeed(op, NULL);
}

static int uplink_init(struct ms_head *h,
                       const struct ms_head_options *o,
                       const struct ms_head_address *a,
                       struct ms_error *err)
{
    struct ms_uplink *u = calloc(1, sizeof *u);

    h->uplink = u;
    if (!u)
        return ms_error_sys(err, -ENOMEM, "cannot join");
    u->head = h;
    u->is_tool = o->tool;
    /* that of a job is started again when it is killed */
    u->is_patient = o->is_patient || getenv("MUSTER_JOB"); /* in the caller's thread */
    u->addresses = strdup(a->addresses);
    u->hello = hello_message(o);
    ms_requests_init(&u->requests);
    u->requests.last = 1; /* the hello */
    ms_map_init(&u->workers);
    ms_list_init(&u->groups);
    if (!u->addresses || !u->hello ||
        ms_redial_init(&u->redial,
                       h->loop,
                       &(struct ms_link_dial){.addresses = u->addresses,
                                              .secret = h->session.secret,
                                              .tls = a->tls},
                       &redial_ops,
                       u) < 0 ||
        ms_timer_init(&u->stop_timer, h->loop, on_stop_timer, u) < 0)
        return ms_error_sys(err, -ENOMEM, "cannot join");
    return 0;
}

void ms_uplink_destroy(struct ms_uplink *u)
{
    if (!u)
        return;
    ms_redial_finish(&u->redial);
    ms_timer_finish(&u->stop_timer);
    ms_requests_finish(&u->requests);
    ms_map_finish(&u->workers);
    ms_kept_groups_finish(&u->groups);
    muster__driver_to_head__free_unpacked(u->hello, NULL);
    free(u->addresses);
    free(u);
}

/* Our clusters end with us; the answer says that they have. A tool has none. */
int ms_uplink_stop_run(struct ms_head_op *op)
{
    struct ms_head *h = op->head;
    struct ms_uplink *u = h->uplink;
    Muster__Goodbye goodbye = MUSTER__GOODBYE__INIT;
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;

    h->stop_op = op;
    m.body_case = MUSTER__DRIVER_TO_HEAD__BODY_GOODBYE;
    m.goodbye = &goodbye;
    goodbye.grace_ns = (uint64_t)op->grace_ns;
    if (u->state == MS_UPLINK_READY && !u->is_tool &&
        ms_requests_add(&u->requests, &op->pending) == 0)
        m.request = op->pending.number;
    if (!m.request || ms_link_send(ms_redial_link(&u->redial), &m.base) < 0) {
        ms_requests_remove(&u->requests, &op->pending);
        h->stop_op = NULL;
        ms_head_op_succeed(op, NULL);
        return 0;
    }
    ms_timer_set(&u->stop_timer, ms_deadline_ns(MS_STOP_GRACE_NS, op->grace_ns));
    return 0;
}

static int
start(struct ms_head *h, const struct ms_head_options *o, struct ms_error *err)
{
    int64_t timeout_ns = o->timeout_ns > 0 ? o->timeout_ns : MS_AGENT_START_NS;
    struct ms_error why = {0};
    int rc =
        ms_head_op_call(h, start_run, ms_deadline_ns(ms_now_ns(), timeout_ns), &why);

    if (rc < 0 && !why.code)
        ms_error_set(&why,
                     rc,
                     "the head at %.200s has not answered within %.3g s",
                     h->uplink->addresses,
                     (double)timeout_ns / (double)MS_NS_PER_S);
    return rc < 0 ? ms_error_set(err, rc, "%s", why.text) : 0;
}

struct ms_head *ms_head_join(const struct ms_head_options *o,
                             const struct ms_head_address *a,
                             struct ms_error *err)
{
    struct ms_head *h = ms_head_create(o, err);
    int rc;

    if (!h)
        return NULL;
    memcpy(h->session.secret, a->secret, sizeof h->session.secret);
    h->tls = a->tls;
    rc = ms_head_build(h, err);
    if (rc == 0)
        rc = uplink_init(h, o, a, err);
    if (rc == 0)
        rc = ms_head_start_thread(h, err);
    if (rc == 0)
        rc = start(h, o, err);
    if (rc == 0)
        return h;
    ms_head_stop(h, 0);
    return NULL;
}

bool ms_head_is_away(const struct ms_head *h)
{
    return h->uplink && h->uplink->state != MS_UPLINK_READY;
}

const char *ms_head_op_delay(const struct ms_head_op *op)
{
    return ms_head_is_away(op->head) ? "the head is away, and has not come back in time"
                                     : "there was no answer in time";
}
