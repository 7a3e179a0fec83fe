#include "orchestrator/ray/bridge.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "io/tcp.h"
#include "orchestrator/ray/child.h"
#include "orchestrator/ray/offer.h"
#include "orchestrator/ray/wire.h"
#include "wire/server/server.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>

#define END_NS  (20 * MS_NS_PER_S) /* the child's time to release everything */
#define TERM_NS (2 * MS_NS_PER_S) /* the same when Ray stops the job: it kills at 3 s */

enum { HOSTS_MAX = 6 };

struct bridge {
    const struct ms_bridge_options *options;
    struct ms_loop *loop;
    struct ms_ray_child *child;
    struct ms_server *server;
    struct ms_list callers;  /* connections, not all of a controller that we know */
    struct caller *attached; /* the one of our controller; NULL: nobody is there */
    struct ms_relay relay;
    char *hello; /* the child's first line; each new controller hears it */
    struct ms_timer alone, force, redial;
    struct ms_watch signals;
    int signal_fd;
    uint8_t secret[MS_OFFER_KEY];
    struct ms_offer offer;
    bool is_dialling, is_ending;
    int code;
};

struct caller {
    struct ms_list link;
    struct bridge *bridge;
    struct ms_link *wire;
    bool is_dialled; /* and not open yet */
};

/* ---- the end ----------------------------------------------------------------------- */

/* The child's input ends: it releases everything. */
static void end(struct bridge *b, int64_t within_ns, const char *why)
{
    if (why && !b->is_ending)
        fprintf(b->options->out, "muster bridge: %s\n", why);
    fflush(b->options->out);
    b->is_ending = true;
    ms_ray_child_end(b->child);
    ms_timer_set(&b->force, within_ns);
}

static void on_force(void *arg)
{
    struct bridge *b = arg;

    b->code = 1;
    ms_loop_stop(b->loop);
}

static void on_signal(void *arg, unsigned events)
{
    struct bridge *b = arg;
    struct signalfd_siginfo info;

    (void)events;
    while (read(b->signal_fd, &info, sizeof info) == sizeof info)
        end(b, TERM_NS, "was told to end");
}

static void on_child_ended(void *arg, const struct ms_error *why)
{
    struct bridge *b = arg;

    if (!b->is_ending && why->code < 0) {
        fprintf(b->options->out, "muster bridge: %s\n", why->text);
        fflush(b->options->out);
        b->code = 1;
    }
    if (b->attached)
        ms_link_drain(b->attached->wire, ms_now_ns() + MS_NS_PER_S);
    ms_loop_stop(b->loop);
}

static void on_alone(void *arg)
{
    end(arg, END_NS, "its controller does not come (back): releasing everything");
}

/* ---- lines ------------------------------------------------------------------------- */

static void tell(struct bridge *b, const char *line, size_t len)
{
    const struct ms_relayed *one = ms_relay_add(&b->relay, line, len);

    if (!one)
        end(b, END_NS, "too much waits for a controller that does not read");
    else if (b->attached)
        ms_wire_send(b->attached->wire, &b->relay, one);
}

static void on_child_line(void *arg, const char *line, size_t len)
{
    struct bridge *b = arg;

    if (!b->hello)
        b->hello = strndup(line, len);
    if (b->relay.instance != 0)
        tell(b, line, len); /* before there is a controller: it will ask for all */
}

/* ---- connections ------------------------------------------------------------------- */

static void caller_free(struct caller *c)
{
    struct bridge *b = c->bridge;

    if (b->attached == c)
        b->attached = NULL;
    if (c->is_dialled)
        b->is_dialling = false;
    ms_list_remove(&c->link);
    ms_link_destroy(c->wire);
    free(c);
}

/* Our controller is gone, or only the way to it. */
static void lost(struct bridge *b, bool has_ended)
{
    int64_t wait_ns = b->options->grace_ns;

    if (b->is_ending)
        return;
    if (!has_ended && wait_ns < MS_BRIDGE_BROKEN_NS)
        wait_ns = MS_BRIDGE_BROKEN_NS;
    if (wait_ns == 0)
        end(b, END_NS, NULL);
    else
        ms_timer_set(&b->alone, wait_ns);
}

static void on_closed(void *arg, const struct ms_error *why)
{
    struct caller *c = arg;
    struct bridge *b = c->bridge;
    bool was_attached = b->attached == c, was_dialled = c->is_dialled,
         has_ended = ms_link_has_ended(why);

    caller_free(c); /* and with it `why` */
    if (was_attached)
        lost(b, has_ended);
    if (was_attached || was_dialled)
        ms_timer_set(&b->redial, was_attached ? MS_REDIAL_MIN_NS : MS_REDIAL_MAX_NS);
}

/* The controller has said who it is, on this connection: it is taken. */
static void attach(struct caller *c, const Muster__BridgeMessage *m)
{
    struct bridge *b = c->bridge;
    bool is_new = ms_relay_begin(&b->relay, m->instance);

    if (b->attached && b->attached != c)
        caller_free(b->attached);
    b->attached = c;
    ms_timer_cancel(&b->alone);
    ms_relay_acked(&b->relay, m->heard);
    ms_wire_greet(c->wire, &b->relay);
    if (!is_new)
        ms_wire_send_kept(c->wire, &b->relay);
    else if (b->hello)
        tell(b, b->hello, strlen(b->hello));
}

static void on_body(void *arg, const uint8_t *body, size_t len)
{
    struct caller *c = arg;
    struct bridge *b = c->bridge;
    Muster__BridgeMessage *m = muster__bridge_message__unpack(NULL, len, body);

    if (!m)
        return;
    if (m->instance != 0)
        attach(c, m);
    if (b->attached == c) {
        ms_relay_acked(&b->relay, m->heard);
        if (m->number != 0 && ms_relay_take(&b->relay, m->number))
            ms_ray_child_send(b->child, (char *)m->line.data, m->line.len);
        if (m->number != 0)
            ms_wire_ack(c->wire, &b->relay);
    }
    muster__bridge_message__free_unpacked(m, NULL);
}

static void on_suspect(void *arg, bool is_suspect)
{
    struct caller *c = arg;
    struct bridge *b = c->bridge;

    if (b->attached != c)
        return;
    if (!is_suspect) {
        ms_timer_cancel(&b->alone);
        return;
    }
    /* when the network is back the first new connection is taken, whoever makes it */
    lost(b, false);
    ms_timer_set(&b->redial, 0);
}

static void on_open(void *arg)
{
    struct caller *c = arg;

    c->is_dialled = c->bridge->is_dialling = false; /* as any other from now on */
}

static const struct ms_link_ops link_ops = {
    .on_body = on_body,
    .on_closed = on_closed,
    .on_open = on_open,
    .on_suspect = on_suspect,
};

static struct caller *caller_create(struct bridge *b)
{
    struct caller *c = calloc(1, sizeof *c);

    if (!c)
        return NULL;
    c->bridge = b;
    ms_list_add_tail(&b->callers, &c->link);
    return c;
}

static void on_link(void *arg, struct ms_link *wire)
{
    struct caller *c = caller_create(arg);

    if (!c) {
        ms_link_destroy(wire);
        return;
    }
    c->wire = wire;
    ms_link_accept(wire, &link_ops, c);
}

static void on_redial(void *arg)
{
    struct bridge *b = arg;
    struct caller *c;

    bool is_well = b->attached && !ms_link_is_suspect(b->attached->wire);

    if (!b->offer.addresses[0] || b->is_dialling || b->is_ending || is_well ||
        !(c = caller_create(b)))
        return;
    c->is_dialled = b->is_dialling = true;
    c->wire = ms_link_dial(
        b->loop,
        &(struct ms_link_dial){.addresses = b->offer.addresses,
                               .secret = b->secret,
                               .tls = MS_TLS_ON,
                               .deadline_ns = ms_now_ns() + MS_BRIDGE_FIRST_NS,
                               .is_patient = true},
        &link_ops,
        c,
        NULL);
    if (!c->wire)
        caller_free(c);
}

/* ---- life -------------------------------------------------------------------------- */

static const struct ms_server_ops server_ops = {.on_link = on_link};

/* Where we listen, as a list of addresses. */
static int listen_somewhere(struct bridge *b, struct ms_buf *addresses)
{
    char hosts[HOSTS_MAX][MS_HOST_MAX + 1];
    uint16_t port = 0;
    struct ms_error err = {0};
    int fd = ms_tcp_listen("*", &port, &err),
        count = ms_host_addresses(hosts, HOSTS_MAX);

    b->server = ms_server_create(&(struct ms_server_options){.loop = b->loop,
                                                             .secret = b->secret,
                                                             .tls = MS_TLS_ON,
                                                             .ops = &server_ops,
                                                             .arg = b});
    if (fd < 0 || !b->server || ms_server_listen(b->server, fd) < 0)
        return -EIO; /* the controller can still be dialled */
    if (count <= 0) {
        snprintf(hosts[0], sizeof hosts[0], "127.0.0.1");
        count = 1;
    }
    for (int i = 0; i < count; i++)
        if (ms_buf_printf(addresses,
                          strchr(hosts[i], ':') ? "%s[%s]:%u" : "%s%s:%u",
                          i ? "," : "",
                          hosts[i],
                          port) < 0)
            return -ENOMEM;
    return 0;
}

static int agree(struct bridge *b)
{
    struct ms_offer_keys keys;
    MS_CLEANUP(ms_buf_finish) struct ms_buf addresses = {0};
    MS_CLEANUP(ms_cleanup_free) char *answer = NULL;
    struct ms_error err = {0};

    if (ms_offer_parse(b->options->offer, &b->offer, &err) < 0 ||
        ms_offer_keys_make(&keys) < 0 ||
        ms_offer_secret(&keys, b->offer.public_key, b->secret) < 0) {
        fprintf(b->options->out,
                "muster bridge: there is no offer of a controller: %s\n",
                err.text);
        return -EINVAL;
    }
    listen_somewhere(b, &addresses);
    answer =
        ms_offer_print(keys.public_key, addresses.len ? ms_buf_str(&addresses) : "");
    ms_offer_keys_wipe(&keys);
    if (!answer)
        return -ENOMEM;
    fprintf(b->options->out, MS_OFFER_ANSWER " %s\n", answer);
    fflush(b->options->out);
    return 0;
}

static int watch_signals(struct bridge *b)
{
    sigset_t set;

    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    b->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return b->signal_fd < 0
               ? -errno
               : ms_watch_init(
                     &b->signals, b->loop, b->signal_fd, MS_READ, on_signal, b);
}

static int begin(struct bridge *b)
{
    static const struct ms_ray_child_events events = {on_child_line, on_child_ended};
    struct ms_error err = {0};
    int rc = agree(b);

    if (rc == 0)
        rc = watch_signals(b);
    if (rc == 0)
        rc = ms_timer_init(&b->alone, b->loop, on_alone, b);
    if (rc == 0)
        rc = ms_timer_init(&b->force, b->loop, on_force, b);
    if (rc == 0)
        rc = ms_timer_init(&b->redial, b->loop, on_redial, b);
    if (rc < 0)
        return rc;
    b->child = ms_ray_child_start(
        &(struct ms_ray_child_spec){.loop = b->loop,
                                    .python = b->options->python,
                                    .script = b->options->script,
                                    .name = b->options->name,
                                    .grace_ns = b->options->grace_ns},
        &events,
        b,
        &err);
    if (!b->child) {
        fprintf(b->options->out, "muster bridge: %s\n", err.text);
        return err.code;
    }
    ms_timer_set(&b->alone, MS_BRIDGE_FIRST_NS);
    on_redial(b);
    return 0;
}

static void finish(struct bridge *b)
{
    ms_list_each (c, &b->callers, struct caller, link)
        caller_free(c);
    ms_ray_child_destroy(b->child, ms_now_ns());
    if (b->server)
        ms_server_destroy(b->server);
    ms_timer_finish(&b->alone);
    ms_timer_finish(&b->force);
    ms_timer_finish(&b->redial);
    ms_watch_finish(&b->signals);
    ms_fd_close(&b->signal_fd);
    ms_relay_finish(&b->relay);
    free(b->hello);
    ms_loop_destroy(b->loop);
}

int ms_bridge_run(const struct ms_bridge_options *o)
{
    struct bridge b = {.options = o, .signal_fd = -1, .loop = ms_loop_create()};

    if (!b.loop)
        return 1;
    ms_list_init(&b.callers);
    ms_relay_init(&b.relay);
    if (begin(&b) < 0 || ms_loop_run(b.loop) < 0)
        b.code = 1;
    finish(&b);
    fflush(o->out);
    return b.code;
}

int ms_bridge_run_by_env(FILE *out)
{
    const char *offer = getenv(MS_OFFER_ENV), *name = getenv(MS_BRIDGE_NAME_ENV),
               *grace = getenv(MS_BRIDGE_GRACE_ENV);
    double grace_s = grace ? strtod(grace, NULL) : 0;

    if (!offer || !name || !(grace_s >= 0 && grace_s < 1e9))
        return -EINVAL;
    return ms_bridge_run(
        &(struct ms_bridge_options){.offer = offer,
                                    .name = name,
                                    .grace_ns = (int64_t)(grace_s * 1e9),
                                    .out = out});
}
