/* hello.c - links of peers that have not yet said who they are, and their welcome */
#include "base/cleanup.h"
#include "base/proto.h"
#include "head/daemon/control.h"
#include "head/drivers/driver.h"
#include "head/head_impl.h"
#include "head/nodes/dialled.h"
#include "head/nodes/node.h"
#include "head/ops/answer.h"
#include "head/status.h"
#include "wire/frame.h"

#include <errno.h>

/* A link whose peer has proven the secret and not yet said who it is. */
struct handshake {
    struct ms_list link; /* head->handshakes */
    struct ms_head *head;
    struct ms_link *wire;
    struct ms_timer patience;
};

static void handshake_destroy(struct handshake *g)
{
    ms_list_remove(&g->link);
    ms_timer_finish(&g->patience);
    ms_link_destroy(g->wire);
    free(g);
}

void ms_handshakes_finish(struct ms_head *h)
{
    ms_list_each (g, &h->handshakes, struct handshake, link)
        handshake_destroy(g);
}

/* ---- what they are told ---------------------------------------------------------- */

static void welcome_init(Muster__LinkWelcome *w, const struct ms_head *h)
{
    muster__link_welcome__init(w);
    w->session = ms_field_text(h->session.name);
    w->head = h->id;
    w->link_grace_ns = (uint64_t)h->link_grace_ns;
    w->head_grace_ns = (uint64_t)h->head_grace_ns;
}

/* All nodes work for an embedded head's driver: what its workers are started with comes along.
 * The secret does not travel, and each node listens in its own places. */
void ms_hello_welcome_agent(struct ms_head *h, struct ms_node *n)
{
    const Muster__AgentConfig no_config = MUSTER__AGENT_CONFIG__INIT;
    Muster__LinkWelcome welcome;
    Muster__AgentConfig config = h->config ? *h->config->config : no_config;
    Muster__DriverContext context = MUSTER__DRIVER_CONTEXT__INIT;

    welcome_init(&welcome, h);
    config.secret = (ProtobufCBinaryData){0};
    config.session_dir = ms_field_text(NULL);
    config.n_bind = 0;
    config.shape = NULL;
    config.nodes_here = 0;
    config.session = h->session.name;
    config.node_name = n->name;
    if (config.context)
        context = *config.context;
    context.wants_logs |= h->is_daemon;
    config.context = &context;
    config.driver_pid = 0;
    config.protocol_version = MS_FRAME_VERSION;
    config.tls = (Muster__TlsMode)h->tls;
    welcome.config = &config;
    ms_node_tell(n, MUSTER__HEAD_TO_AGENT__BODY_WELCOME, &welcome);
}

static void welcome_driver(struct ms_driver *d, uint64_t request)
{
    Muster__LinkWelcome welcome;

    welcome_init(&welcome, d->head);
    if (ms_nodes_add_status(d->head, &welcome.nodes, &welcome.n_nodes))
        ms_driver_tell(d, request, MUSTER__HEAD_TO_DRIVER__BODY_WELCOME, &welcome);
    for (size_t i = 0; i < welcome.n_nodes; i++)
        muster__node_status__free_unpacked(welcome.nodes[i], NULL);
    free(welcome.nodes);
}

/* The last word; then the link ends. */
static void
refuse(struct handshake *g, bool is_agent, uint64_t request, const struct ms_error *why)
{
    Muster__Failure failure;
    Muster__HeadToAgent to_agent = MUSTER__HEAD_TO_AGENT__INIT;
    Muster__HeadToDriver to_driver = MUSTER__HEAD_TO_DRIVER__INIT;

    ms_head_failure(&failure, why);
    to_agent.body_case = MUSTER__HEAD_TO_AGENT__BODY_FAILURE;
    to_agent.failure = to_driver.failure = &failure;
    to_driver.body_case = MUSTER__HEAD_TO_DRIVER__BODY_FAILURE;
    to_driver.request = request;
    ms_link_send(g->wire, is_agent ? &to_agent.base : &to_driver.base);
    handshake_destroy(g);
}

/* ---- who they are ---------------------------------------------------------------- */

static int check_hello(const struct ms_head *h,
                       const Muster__LinkHello *hello,
                       struct ms_error *err)
{
    if (h->stop_op)
        return ms_error_set(err, -ESHUTDOWN, "the head is ending");
    if (hello->protocol != MS_FRAME_VERSION)
        return ms_error_set(err,
                            -EPROTONOSUPPORT,
                            "it speaks protocol %u (muster %.40s), this head %d: use "
                            "the same version on both sides",
                            hello->protocol,
                            hello->version,
                            MS_FRAME_VERSION);
    return 0;
}

static void accept_agent(struct handshake *g, Muster__LinkHello *hello)
{
    struct ms_error why = {0};
    int rc = check_hello(g->head, hello, &why);

    if (rc == 0)
        rc = ms_dialled_attach(g->head, g->wire, hello->agent, &why);
    if (rc < 0) {
        refuse(g, true, 0, &why);
        return;
    }
    g->wire = NULL;
    handshake_destroy(g);
}

/* A head that was started again hears of workers from their agents, perhaps later. */
static bool is_learning(const struct ms_head *h)
{
    return h->session.was_left && ms_now_ns() < h->started_ns + h->link_grace_ns;
}

/* A worker may make clusters too, for as long as it lives, and a tool may ask; others join
 * daemons alone. */
static int check_driver(const struct ms_head *h,
                        const Muster__DriverHello *hello,
                        struct ms_error *err)
{
    const struct ms_slot *slot =
        hello->worker ? ms_registry_find_uid(&h->registry, hello->worker) : NULL;

    if (hello->worker && !slot && is_learning(h))
        return 0;
    if (hello->worker)
        return slot && ms_slot_is_live(slot)
                   ? 0
                   : ms_error_set(err, -ESRCH, "that worker has ended");
    if (h->is_daemon || hello->tool)
        return 0;
    return ms_error_set(err,
                        -EPERM,
                        "this head is part of another driver (process %d), which is "
                        "its only one: start `muster head` for several",
                        (int)h->session.driver_pid);
}

static void
accept_driver(struct handshake *g, uint64_t request, Muster__LinkHello *hello)
{
    struct ms_head *h = g->head;
    struct ms_driver *d;
    struct ms_error why = {0};
    int rc = check_hello(h, hello, &why);
    uint64_t id = hello->driver->driver;

    if (rc == 0)
        rc = check_driver(h, hello->driver, &why);
    if (rc == 0)
        rc = ms_driver_attach(h, g->wire, &hello->driver, &why);
    if (rc < 0) {
        refuse(g, false, request, &why);
        return;
    }
    g->wire = NULL;
    handshake_destroy(g);
    d = ms_driver_find(h, id);
    welcome_driver(d, request);
    ms_driver_repeat_exits(d);
}

static bool try_agent(struct handshake *g, const uint8_t *body, size_t len)
{
    Muster__AgentToHead *m = muster__agent_to_head__unpack(NULL, len, body);
    bool is = m && m->body_case == MUSTER__AGENT_TO_HEAD__BODY_HELLO &&
              m->hello->who_case == MUSTER__LINK_HELLO__WHO_AGENT;

    if (is)
        accept_agent(g, m->hello);
    muster__agent_to_head__free_unpacked(m, NULL);
    return is;
}

static bool try_driver(struct handshake *g, const uint8_t *body, size_t len)
{
    Muster__DriverToHead *m = muster__driver_to_head__unpack(NULL, len, body);
    bool is = m && m->body_case == MUSTER__DRIVER_TO_HEAD__BODY_HELLO &&
              m->hello->who_case == MUSTER__LINK_HELLO__WHO_DRIVER;

    if (is)
        accept_driver(g, m->request, m->hello);
    muster__driver_to_head__free_unpacked(m, NULL);
    return is;
}

static void on_body(void *arg, const uint8_t *body, size_t len)
{
    struct handshake *g = arg;

    if (!try_agent(g, body, len) && !try_driver(g, body, len))
        handshake_destroy(g);
}

static void on_closed(void *arg, const struct ms_error *why)
{
    (void)why;
    handshake_destroy(arg);
}

static void on_impatient(void *arg)
{
    handshake_destroy(arg);
}

void ms_head_on_link(void *arg, struct ms_link *wire)
{
    static const struct ms_link_ops ops = {.on_body = on_body, .on_closed = on_closed};
    struct ms_head *h = arg;
    struct handshake *g = calloc(1, sizeof *g);

    if (!g) {
        ms_link_destroy(wire);
        return;
    }
    g->head = h;
    g->wire = wire;
    ms_list_add_tail(&h->handshakes, &g->link);
    if (ms_timer_init(&g->patience, h->loop, on_impatient, g) < 0) {
        handshake_destroy(g);
        return;
    }
    ms_timer_set(&g->patience, MS_HANDSHAKE_NS);
    ms_link_accept(wire, &ops, g);
}
