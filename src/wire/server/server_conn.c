/* server_conn.c - one connection of a server: its first byte, handshake, messages, end. A
 * unix socket is for our handshake alone; on TCP the first byte tells what it will be, and is
 * only peeked at: its protocol reads it. */
#include "base/name.h"
#include "io/tcp.h"
#include "wire/link/link.h"
#include "wire/server/server_impl.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

enum { TLS_HANDSHAKE = 0x16 }; /* the first byte of TLS */

/* ---- messages -------------------------------------------------------------------- */

static int on_begin(void *arg, const struct ms_frame *head)
{
    struct ms_server_conn *sc = arg;
    int rc;
    MS_LOCK(&sc->server->lock);

    rc = ms_ledger_attach(sc);
    return rc < 0 ? rc : ms_request_begin(sc->ledger, head);
}

static void on_acks(struct ms_ledger *l, const struct ms_message *m)
{
    for (size_t i = 0; i < m->len / sizeof(uint64_t); i++)
        ms_request_acked(l, ms_le64_at(m->body, i));
}

/* Of a call of an older connection, whose answer has not arrived: it is sent again, because
 * it may grant something that has to be given back. */
static void on_late_cancel(struct ms_server_conn *sc, uint64_t call_id)
{
    struct ms_request *r = ms_map_find(&sc->ledger->requests, call_id);

    if (!r) {
        ms_reply_failure(
            sc, call_id, MUSTER__FAILURE__KIND__LOST, "the call is not known any more");
        return;
    }
    ms_stream_attach(r);
    if (r->state == MS_SERVE_DONE)
        ms_reply_send(r);
    else
        ms_request_cancel(r);
}

static void on_cancel(struct ms_server_conn *sc, const struct ms_frame *head)
{
    struct ms_request *r = ms_map_find(&sc->ledger->requests, head->call_id);

    if (head->flags & MS_FRAME_RESEND)
        on_late_cancel(sc, head->call_id);
    else if (r)
        ms_request_cancel(r);
}

static int on_ping(struct ms_server_conn *sc, const struct ms_message *m)
{
    struct ms_frame pong = {.kind = MS_KIND_PONG, .call_id = m->head.call_id};

    return ms_server_conn_send(sc, &pong, NULL, 0);
}

static int take_message(struct ms_server_conn *sc, struct ms_message *m)
{
    struct ms_ledger *l = sc->ledger;

    if (m->head.ack)
        ms_request_acked(l, m->head.ack);
    switch (m->head.kind) {
    case MS_KIND_CALL:
        return ms_request_whole(sc, m);
    case MS_KIND_CANCEL:
        on_cancel(sc, &m->head);
        return 0;
    case MS_KIND_ACK:
        on_acks(l, m);
        return 0;
    case MS_KIND_CREDIT:
        return ms_stream_credit(l, m);
    case MS_KIND_METHOD:
        return ms_ledger_method(l, m);
    case MS_KIND_ATTACH:
        return ms_ledger_keep_only(l, m);
    case MS_KIND_LEAVE:
        ms_ledger_leave(l);
        return 0;
    case MS_KIND_PING:
        return on_ping(sc, m);
    default:
        return -EPROTO;
    }
}

/* Without the lock; the connection's reader. */
static int on_message(void *arg, struct ms_message *m)
{
    struct ms_server_conn *sc = arg;
    struct ms_server *s = sc->server;
    bool tell;
    int rc;

    pthread_mutex_lock(&s->lock);
    rc = ms_ledger_attach(sc);
    if (rc == 0)
        rc = take_message(sc, m);
    if (ms_server_on_loop(s))
        ms_server_deliver(s);
    tell = s->is_ready && s->is_async && s->o.ops->on_queued;
    if (s->is_ready)
        ms_engine_wake(s, sc);
    s->is_ready = false;
    pthread_mutex_unlock(&s->lock);
    if (tell)
        s->o.ops->on_queued(s->o.arg);
    return rc;
}

int ms_server_conn_read(struct ms_server_conn *sc, struct ms_error *err)
{
    static const struct ms_conn_sink sink = {.on_begin = on_begin,
                                             .on_message = on_message};

    return ms_conn_read(sc->conn, &sink, sc, err);
}

/* ---- sending --------------------------------------------------------------------- */

static void todo(struct ms_server_conn *sc)
{
    if (!ms_list_is_empty(&sc->todo_link))
        return;
    ms_list_add_tail(&sc->server->todo, &sc->todo_link);
    ms_server_wake_loop(sc->server);
}

void ms_server_conn_break(struct ms_server_conn *sc)
{
    shutdown(ms_conn_fd(sc->conn), SHUT_RDWR);
}

int ms_server_conn_send(struct ms_server_conn *sc,
                        const struct ms_frame *head,
                        const struct iovec *iov,
                        int count)
{
    int rc = ms_conn_send(sc->conn, head, iov, count);

    if (rc < 0)
        ms_server_conn_break(sc);
    else if (ms_conn_wants_write(sc->conn) && !(sc->watch.events & MS_WRITE))
        todo(sc);
    return rc;
}

/* ---- life ------------------------------------------------------------------------ */

void ms_server_conn_watch(struct ms_server_conn *sc)
{
    unsigned events = 0;

    if (sc->dead)
        return;
    if (!sc->in_lane)
        events |= MS_READ;
    if (ms_conn_wants_write(sc->conn))
        events |= MS_WRITE;
    ms_watch_set(&sc->watch, events);
}

void ms_server_conn_lost(struct ms_server_conn *sc)
{
    assert(!sc->reading);
    if (sc->dead)
        return;
    sc->dead = true;
    ms_lane_remove(sc);
    ms_ledger_detach(sc);
    todo(sc);
}

static void remove_unproven(struct ms_server_conn *sc)
{
    if (!sc->listener)
        return;
    ms_list_remove(&sc->unproven_link);
    sc->listener->unproven_count--;
    sc->listener = NULL;
}

void ms_server_conn_destroy(struct ms_server_conn *sc)
{
    struct ms_server *s = sc->server;

    ms_lane_remove(sc);
    ms_ledger_detach(sc);
    ms_map_remove(&s->by_id, sc->id);
    ms_list_remove(&sc->todo_link);
    ms_list_remove(&sc->link);
    s->conn_count--;
    remove_unproven(sc);
    ms_watch_finish(&sc->watch);
    ms_timer_finish(&sc->deadline);
    ms_conn_destroy(sc->conn);
    ms_fd_close(&sc->fd);
    free(sc->peer);
    free(sc);
}

/* ---- the handshake's end --------------------------------------------------------- */

/* Into the lane, or it stays with the loop. */
static int proven(struct ms_server_conn *sc)
{
    uint8_t lane = ms_conn_handshake(sc->conn)->lane;
    int rc;

    remove_unproven(sc);
    ms_timer_cancel(&sc->deadline);
    if (lane == MS_LANE_LINK)
        return sc->server->o.ops->on_link ? 0 : -EPROTO;
    rc = ms_ledger_attach(sc);
    if (rc == 0 && sc->server->o.has_engine && lane == MS_LANE_CALL)
        rc = ms_lane_add(sc);
    return rc;
}

/* It becomes a link, and is no longer the server's. Lock held; let go meanwhile. */
static void give_link(struct ms_server_conn *sc)
{
    struct ms_server *s = sc->server;
    struct ms_conn *conn = MS_TAKE(sc->conn);
    struct ms_link *l;

    ms_server_conn_destroy(sc);
    l = ms_link_from_conn(s->o.loop, conn, &s->heartbeat);
    if (!l)
        return;
    pthread_mutex_unlock(&s->lock);
    s->o.ops->on_link(s->o.arg, l);
    pthread_mutex_lock(&s->lock);
}

/* A person may want to know who was turned away, and why. Lock held; let go meanwhile. */
static void tell_refused(struct ms_server_conn *sc, const struct ms_error *why)
{
    struct ms_server *s = sc->server;

    if (!s->o.ops->on_refused || !why->code || why->code == -EPIPE)
        return;
    sc->reading = true; /* so that it stays */
    pthread_mutex_unlock(&s->lock);
    s->o.ops->on_refused(s->o.arg, sc->peer ? sc->peer : "unix", why);
    pthread_mutex_lock(&s->lock);
    sc->reading = false;
}

/* Loop's thread, lock held; let go meanwhile. False: it was given away. */
static bool read_here(struct ms_server_conn *sc)
{
    struct ms_server *s = sc->server;
    bool was_ready = ms_conn_is_ready(sc->conn);
    struct ms_error err = {0};
    int rc;

    sc->reading = true;
    pthread_mutex_unlock(&s->lock);
    rc = ms_server_conn_read(sc, &err);
    pthread_mutex_lock(&s->lock);
    sc->reading = false;
    pthread_cond_signal(&s->released);
    if (rc == -EAGAIN)
        rc = 0;
    if (rc >= 0 && !was_ready && ms_conn_is_ready(sc->conn)) {
        rc = proven(sc);
        if (rc == 0 && ms_conn_handshake(sc->conn)->lane == MS_LANE_LINK) {
            give_link(sc);
            return false;
        }
    }
    if (rc >= 0 && sc->attached && !sc->ledger)
        rc = -EPIPE; /* replaced */
    if (rc < 0 && !was_ready)
        tell_refused(sc, &err);
    if (rc < 0)
        ms_server_conn_lost(sc);
    return true;
}

void ms_server_conn_cut(struct ms_server_conn *sc)
{
    MS_LOCK(&sc->server->lock);

    remove_unproven(sc); /* it is buried a little later */
    if (!sc->reading)
        ms_server_conn_lost(sc);
}

static void on_handshake_deadline(void *arg)
{
    ms_server_conn_cut(arg);
}

/* ---- the beginning --------------------------------------------------------------- */

/* Takes its transport (NULL: out of memory), and begins the handshake. 0, or it is over. */
static int
shake_hands(struct ms_server_conn *sc, struct ms_transport *t, bool refuses_plain)
{
    struct ms_server *s = sc->server;
    struct ms_handshake h;
    uint8_t nonce[32];

    if (!t)
        return -ENOMEM;
    sc->fd = -1;
    if ((t->ops->check_peer && t->ops->check_peer(t, NULL) < 0) ||
        ms_random_bytes(nonce, sizeof nonce) < 0) {
        ms_transport_destroy(t);
        return -EPERM;
    }
    ms_handshake_init_server(&h, s->net.secret, nonce, s->o.identity);
    h.refuses_plain = refuses_plain;
    sc->conn = ms_conn_create(t, &h);
    ms_handshake_finish(&h);
    return sc->conn ? 0 : -ENOMEM;
}

static int shake_hands_tcp(struct ms_server_conn *sc,
                           bool is_tls,
                           const struct sockaddr_storage *peer)
{
    struct ms_server *s = sc->server;
    struct ms_tls *tls = is_tls ? ms_net_tls(&s->net) : NULL;
    char text[80];

    ms_sockaddr_format(peer, text, sizeof text);
    sc->peer = strdup(text);
    if (!is_tls)
        return shake_hands(
            sc, ms_transport_tcp(sc->fd), ms_tls_is_due(s->net.mode, peer));
    return shake_hands(sc, tls ? ms_transport_tls(sc->fd, tls, true) : NULL, false);
}

/* Lock held; let go meanwhile. */
static void give_http(struct ms_server_conn *sc, const struct sockaddr_storage *peer)
{
    struct ms_server *s = sc->server;
    int fd = s->o.ops->on_http ? MS_TAKE_FD(sc->fd) : -1;

    ms_server_conn_destroy(sc);
    if (fd < 0)
        return;
    pthread_mutex_unlock(&s->lock);
    s->o.ops->on_http(s->o.arg, fd, peer);
    pthread_mutex_lock(&s->lock);
}

/* TCP has said something. Lock held; let go meanwhile. */
static void on_first_byte(struct ms_server_conn *sc)
{
    struct sockaddr_storage peer = {0};
    socklen_t len = sizeof peer;
    unsigned char first;
    ssize_t n = recv(sc->fd, &first, 1, MSG_PEEK | MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n == 1 && getpeername(sc->fd, (struct sockaddr *)&peer, &len) < 0)
        n = -1;
    if (n == 1 && first != 'M' && first >= 'A' && first <= 'Z')
        give_http(sc, &peer);
    else if (n != 1 || (first != 'M' && first != TLS_HANDSHAKE) ||
             shake_hands_tcp(sc, first == TLS_HANDSHAKE, &peer) < 0)
        ms_server_conn_destroy(sc);
}

static void on_conn(void *arg, unsigned events)
{
    struct ms_server_conn *sc = arg;
    bool ours = true;
    MS_LOCK(&sc->server->lock);

    if (!sc->dead && !sc->conn) {
        on_first_byte(sc);
        return;
    }
    if (!sc->dead && (events & MS_WRITE) && ms_conn_flush(sc->conn) < 0) {
        ms_server_conn_break(sc);
        ms_watch_set(&sc->watch, sc->watch.events & ~(unsigned)MS_WRITE);
        return; /* its reader sees the end */
    }
    if (!sc->dead && (events & MS_READ) && !sc->in_lane)
        ours = read_here(sc);
    if (ours) {
        ms_server_conn_watch(sc);
        if (sc->dead)
            ms_watch_set(&sc->watch, 0);
    }
}

void ms_server_conn_create(struct listener *l, int fd)
{
    struct ms_server *s = l->server;
    struct ms_server_conn *sc = calloc(1, sizeof *sc);
    MS_LOCK(&s->lock);

    if (!sc) {
        close(fd);
        return;
    }
    sc->server = s;
    sc->fd = fd;
    sc->listener = l;
    ms_list_add_tail(&l->unproven, &sc->unproven_link);
    l->unproven_count++;
    ms_list_init(&sc->todo_link);
    sc->id = ++s->next_id;
    ms_list_add_tail(&s->conns, &sc->link);
    s->conn_count++;
    if (l->is_tcp)
        ms_tcp_keep_alive(fd);
    if ((!l->is_tcp && shake_hands(sc, ms_transport_unix(fd), false) < 0) ||
        ms_map_add(&s->by_id, sc->id, sc) < 0 ||
        ms_timer_init(&sc->deadline, s->o.loop, on_handshake_deadline, sc) < 0 ||
        ms_timer_set(&sc->deadline, s->o.handshake_ns) < 0 ||
        ms_watch_init(&sc->watch, s->o.loop, fd, MS_READ, on_conn, sc) < 0)
        ms_server_conn_destroy(sc);
}
