/* wire.c - the connection between a controller and its bridge, made by either of them */
#include "orchestrator/ray/bridge/wire.h"

#include "io/addr.h"
#include "proto/muster.pb-c.h"
#include "wire/link/link.h"
#include "wire/server/server.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A connection from which nothing has come for so long is given up for a new one. */
#define QUIET_NS (10 * MS_NS_PER_S)

enum { HOSTS_MAX = 6 };

struct conn {
    struct ms_list link;
    struct ms_wire *wire;
    struct ms_link *to;
    bool is_dialling;
};

/* ---- messages ---------------------------------------------------------------------- */

/* What we have heard, with a line or a greeting or alone. */
static int
send_message(struct conn *c, uint64_t instance, const struct ms_relayed *line)
{
    Muster__BridgeMessage m = MUSTER__BRIDGE_MESSAGE__INIT;

    m.instance = instance;
    m.heard = c->wire->relay.heard.watermark;
    if (line) {
        m.number = line->pending.number;
        m.line.data = (uint8_t *)(uintptr_t)line->line;
        m.line.len = line->len;
    }
    return ms_link_send(c->to, &m.base);
}

/* Everything that the other side has not acknowledged, again. */
static void send_kept(struct conn *c)
{
    ms_list_each (one, &c->wire->relay.sent.open, struct ms_relayed, pending.link)
        if (send_message(c, 0, one) < 0)
            return; /* it closes, and all begins again */
}

int ms_wire_send(struct ms_wire *w, const char *line, size_t len)
{
    const struct ms_relayed *one = ms_relay_add(&w->relay, line, len);

    if (one && w->attached)
        send_message(w->attached, 0, one);
    return one ? 0 : -ENOMEM;
}

/* ---- connections ------------------------------------------------------------------- */

static void conn_free(struct conn *c)
{
    if (c->wire->attached == c)
        c->wire->attached = NULL;
    ms_list_remove(&c->link);
    ms_link_destroy(c->to);
    free(c);
}

static bool is_well(const struct ms_wire *w)
{
    return w->attached && !ms_link_is_suspect(w->attached->to);
}

/* This is the one that is used. */
static void attach(struct conn *c)
{
    struct ms_wire *w = c->wire;

    if (w->attached && w->attached != c)
        conn_free(w->attached);
    w->attached = c;
    ms_timer_cancel(&w->quiet);
    send_message(c, w->relay.heard.asker, NULL);
}

static void on_open(void *arg)
{
    struct conn *c = arg;

    c->is_dialling = false;
    if (!c->wire->is_controller)
        return; /* until it has greeted */
    if (is_well(c->wire))
        conn_free(c);
    else
        attach(c);
}

/* The controller's makes the connection the one in use, the bridge's says that it is. */
static void on_greeting(struct conn *c, const Muster__BridgeMessage *m)
{
    struct ms_wire *w = c->wire;
    bool is_new = !w->is_controller && ms_relay_begin(&w->relay, m->instance);

    ms_relay_acked(&w->relay, m->heard);
    if (!w->is_controller)
        attach(c);
    send_kept(c);
    w->events->on_up(w->arg, is_new);
}

static void on_line(struct conn *c, const Muster__BridgeMessage *m)
{
    struct ms_wire *w = c->wire;
    bool is_next = ms_relay_take(&w->relay, m->number);
    char *line = is_next ? strndup((char *)m->line.data, m->line.len) : NULL;

    send_message(c, 0, NULL);
    if (line)
        w->events->on_line(w->arg, line, m->line.len);
    free(line);
}

static void on_body(void *arg, const uint8_t *body, size_t len)
{
    struct conn *c = arg;
    struct ms_wire *w = c->wire;
    Muster__BridgeMessage *m = muster__bridge_message__unpack(NULL, len, body);

    if (!m)
        return;
    if (m->instance != 0 && (w->attached == c || !w->is_controller))
        on_greeting(c, m);
    if (w->attached == c) {
        ms_relay_acked(&w->relay, m->heard);
        if (m->number != 0)
            on_line(c, m);
    }
    muster__bridge_message__free_unpacked(m, NULL);
}

static void on_closed(void *arg, const struct ms_error *why)
{
    struct conn *c = arg;
    struct ms_wire *w = c->wire;
    bool was_attached = w->attached == c, was_dialling = c->is_dialling,
         has_ended = ms_link_has_ended(why);
    struct ms_error said = *why;

    conn_free(c);
    if (was_attached || was_dialling)
        ms_timer_set(&w->redial, was_attached ? MS_REDIAL_MIN_NS : MS_REDIAL_MAX_NS);
    if (!was_attached)
        return;
    ms_timer_cancel(&w->quiet);
    ms_error_wrap(&said, "cannot be reached");
    w->events->on_lost(w->arg, has_ended, &said);
}

static void on_suspect(void *arg, bool is_suspect)
{
    struct conn *c = arg;
    struct ms_wire *w = c->wire;
    struct ms_error why = {0};

    if (w->attached != c)
        return;
    if (!is_suspect) {
        ms_timer_cancel(&w->quiet);
        w->events->on_up(w->arg, false);
        return;
    }
    /* when the network is back the first new connection is taken, whichever side makes it */
    if (w->is_controller)
        ms_timer_set(&w->quiet, QUIET_NS);
    ms_timer_set(&w->redial, 0);
    ms_error_set(&why, -EAGAIN, "is silent");
    w->events->on_lost(w->arg, false, &why);
}

static const struct ms_link_ops link_ops = {
    .on_body = on_body,
    .on_closed = on_closed,
    .on_open = on_open,
    .on_suspect = on_suspect,
};

static struct conn *conn_create(struct ms_wire *w)
{
    struct conn *c = calloc(1, sizeof *c);

    if (!c)
        return NULL;
    c->wire = w;
    ms_list_add_tail(&w->conns, &c->link);
    return c;
}

static void on_link(void *arg, struct ms_link *to)
{
    struct conn *c = conn_create(arg);

    if (!c) {
        ms_link_destroy(to);
        return;
    }
    c->to = to;
    ms_link_accept(to, &link_ops, c);
    on_open(c);
}

static bool is_dialling(const struct ms_wire *w)
{
    ms_list_each (c, &w->conns, struct conn, link)
        if (c->is_dialling)
            return true;
    return false;
}

static void on_redial(void *arg)
{
    struct ms_wire *w = arg;
    struct conn *c;

    if (!w->peer_at[0] || is_well(w) || is_dialling(w) || !(c = conn_create(w)))
        return;
    c->is_dialling = true;
    c->to = ms_link_dial(
        w->loop,
        &(struct ms_link_dial){.addresses = w->peer_at,
                               .secret = w->secret,
                               .tls = MS_TLS_ON,
                               .deadline_ns = ms_now_ns() + MS_BRIDGE_FIRST_NS,
                               .is_patient = true},
        &link_ops,
        c,
        NULL);
    if (!c->to)
        conn_free(c);
}

/* It was silent for too long. */
static void on_quiet(void *arg)
{
    struct ms_wire *w = arg;

    if (w->attached)
        conn_free(w->attached);
    ms_timer_set(&w->redial, 0);
}

void ms_wire_cut(struct ms_wire *w)
{
    if (w->attached)
        conn_free(w->attached);
    ms_timer_set(&w->redial, MS_REDIAL_MIN_NS);
}

/* ---- life -------------------------------------------------------------------------- */

int ms_wire_init(struct ms_wire *w,
                 struct ms_loop *loop,
                 const struct ms_wire_events *events,
                 void *arg)
{
    int rc;

    *w = (struct ms_wire){.loop = loop, .events = events, .arg = arg};
    ms_list_init(&w->conns);
    ms_relay_init(&w->relay);
    rc = ms_timer_init(&w->redial, loop, on_redial, w);
    return rc < 0 ? rc : ms_timer_init(&w->quiet, loop, on_quiet, w);
}

int ms_wire_connect(struct ms_wire *w, int listen_fd)
{
    static const struct ms_server_ops ops = {.on_link = on_link};
    int rc = 0;

    if (listen_fd >= 0) {
        w->server = ms_server_create(&(struct ms_server_options){.loop = w->loop,
                                                                 .secret = w->secret,
                                                                 .tls = MS_TLS_ON,
                                                                 .ops = &ops,
                                                                 .arg = w});
        rc = w->server ? ms_server_listen(w->server, listen_fd) : -ENOMEM;
    }
    ms_timer_set(&w->redial, 0);
    return rc;
}

void ms_wire_disconnect(struct ms_wire *w)
{
    ms_timer_cancel(&w->redial);
    ms_timer_cancel(&w->quiet);
    ms_list_each (c, &w->conns, struct conn, link)
        conn_free(c);
    ms_server_destroy(w->server);
    w->server = NULL;
}

void ms_wire_finish(struct ms_wire *w)
{
    if (!w->loop)
        return;
    if (w->attached)
        ms_link_drain(w->attached->to, ms_now_ns() + MS_NS_PER_S);
    ms_wire_disconnect(w);
    ms_timer_finish(&w->redial);
    ms_timer_finish(&w->quiet);
    ms_relay_finish(&w->relay);
    OPENSSL_cleanse(w->secret, sizeof w->secret);
}

void ms_wire_addresses(char out[MS_ADDR_LIST_MAX + 1], const char *first, uint16_t port)
{
    char hosts[HOSTS_MAX][MS_HOST_MAX + 1];
    int count = ms_host_addresses(hosts, HOSTS_MAX);
    size_t used = 0;

    for (int i = -1; i < count; i++) {
        const char *host = i < 0 ? first : hosts[i];

        if (host[0] && (i < 0 || strcmp(host, first) != 0))
            used += (size_t)snprintf(out + used,
                                     MS_ADDR_LIST_MAX + 1 - used,
                                     strchr(host, ':') ? "%s[%s]:%u" : "%s%s:%u",
                                     used ? "," : "",
                                     host,
                                     port);
    }
    if (used == 0)
        snprintf(out, MS_ADDR_LIST_MAX + 1, "127.0.0.1:%u", port);
}
