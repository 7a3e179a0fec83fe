/* link.c - a link: reading, sending, silence, its end */
#include "wire/link/link.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/proto.h"
#include "io/sock.h"
#include "wire/link/link_impl.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

bool ms_link_has_ended(const struct ms_error *why)
{
    return why->code == -EPIPE;
}

void ms_link_close_soon(struct ms_link *l, const struct ms_error *why)
{
    if (l->closed)
        return;
    l->closed = true;
    l->why = *why;
    if (l->heartbeat)
        ms_heartbeat_remove(l->heartbeat, l);
    ms_watch_set(&l->watch, 0);
    ms_timer_set(&l->soon, 0);
}

/* ---- reading ---------------------------------------------------------------------- */

static void send_simple(struct ms_link *l, uint8_t kind, uint64_t id)
{
    struct ms_frame head = {.kind = kind, .call_id = id};

    if (!l->closed && !l->broken && ms_conn_send(l->conn, &head, NULL, 0) < 0)
        l->broken = true;
}

static int on_message(void *arg, struct ms_message *m)
{
    struct ms_link *l = arg;

    switch (m->head.kind) {
    case MS_KIND_CONTROL:
        l->ops->on_body(l->arg, m->body, m->len);
        break;
    case MS_KIND_PING:
        send_simple(l, MS_KIND_PONG, m->head.call_id);
        break;
    case MS_KIND_PONG:
        break;
    default:
        return -EPROTO;
    }
    return l->doomed ? -ECANCELED : 0;
}

static uint8_t *on_data(void *arg, const struct ms_frame *head)
{
    struct ms_link *l = arg;

    return l->doomed || !l->ops->on_data
               ? NULL
               : l->ops->on_data(l->arg, head->call_id, head->total);
}

static int on_part(void *arg, const struct ms_frame *head, size_t len, size_t rest)
{
    struct ms_link *l = arg;

    if (!l->ops->on_part)
        return -EPROTO; /* nobody has asked for it */
    l->ops->on_part(l->arg, head->call_id, len, rest);
    return l->doomed ? -ECANCELED : 0;
}

static const struct ms_conn_sink sink = {
    .on_message = on_message, .on_data = on_data, .on_part = on_part};

static void update(struct ms_link *l)
{
    bool writes = !l->broken && ms_conn_wants_write(l->conn);

    if (!l->closed && !l->held)
        ms_watch_set(&l->watch, MS_READ | (writes ? MS_WRITE : 0u));
}

/* After a read that ended with `rc`. */
static void after_read(struct ms_link *l, int rc, struct ms_error *why)
{
    if (rc < 0 && rc != -EAGAIN) {
        if (!why->code)
            ms_error_sys(why, rc, "control link");
        ms_link_close_soon(l, why);
        return;
    }
    update(l);
}

static void destroy(struct ms_link *l)
{
    if (l->heartbeat)
        ms_heartbeat_remove(l->heartbeat, l);
    ms_watch_finish(&l->watch);
    ms_timer_finish(&l->soon);
    if (l->reading) {
        l->doomed = true;
        return;
    }
    ms_heartbeat_unref(l->heartbeat);
    ms_dialing_destroy(l->dialing);
    ms_conn_destroy(l->conn);
    free(l);
}

/* A callback has destroyed us while we were reading: now we may go. */
static bool was_doomed(struct ms_link *l)
{
    bool doomed = l->doomed;

    l->reading = false;
    if (doomed)
        destroy(l);
    return doomed;
}

static void on_ready(void *arg, unsigned events)
{
    struct ms_link *l = arg;
    struct ms_error why = {0};
    int rc = 0;

    if ((events & MS_WRITE) && ms_conn_flush(l->conn) < 0)
        l->broken = true;
    l->reading = true;
    if (events & MS_READ)
        rc = ms_conn_read(l->conn, &sink, l, &why);
    if (rc > 0 && l->heartbeat && !l->doomed)
        ms_heartbeat_heard(l->heartbeat, l);
    if (!was_doomed(l))
        after_read(l, rc, &why);
}

/* What had come before we were the owner. */
static void give_held(struct ms_link *l)
{
    struct ms_error why = {0};
    int rc;

    l->held = false;
    l->reading = true;
    rc = ms_conn_release(l->conn, &sink, l, &why);
    if (!was_doomed(l))
        after_read(l, rc, &why);
}

static void on_soon(void *arg)
{
    struct ms_link *l = arg;

    if (l->closed)
        l->ops->on_closed(l->arg, &l->why);
    else if (l->held)
        give_held(l);
}

/* ---- silence ---------------------------------------------------------------------- */

void ms_link_send_beat(struct ms_link *l)
{
    if (ms_conn_queued(l->conn) == 0) /* what waits is as good */
        send_simple(l, MS_KIND_BEAT, 0);
    update(l);
}

void ms_link_set_suspect(struct ms_link *l, bool is_suspect)
{
    l->is_suspect = is_suspect;
    if (l->ops && l->ops->on_suspect)
        l->ops->on_suspect(l->arg, is_suspect);
}

/* ---- life ------------------------------------------------------------------------- */

struct ms_link *
ms_link_alloc(struct ms_loop *loop, const struct ms_link_ops *ops, void *arg)
{
    struct ms_link *l = calloc(1, sizeof *l);

    if (!l)
        return NULL;
    l->loop = loop;
    l->ops = ops;
    l->arg = arg;
    ms_list_init(&l->beat);
    if (ms_timer_init(&l->soon, loop, on_soon, l) < 0) {
        free(l);
        return NULL;
    }
    return l;
}

int ms_link_open(struct ms_link *l, struct ms_heartbeat *heartbeat)
{
    unsigned events = l->held ? 0 : MS_READ;
    int rc =
        ms_watch_init(&l->watch, l->loop, ms_conn_fd(l->conn), events, on_ready, l);

    if (rc < 0)
        return rc;
    l->is_open = true;
    if (heartbeat && ms_conn_is_network(l->conn)) {
        l->heartbeat = ms_heartbeat_ref(heartbeat);
        ms_heartbeat_add(heartbeat, l);
    }
    update(l);
    return 0;
}

struct ms_link *
ms_link_create(struct ms_loop *loop, int fd, const struct ms_link_ops *ops, void *arg)
{
    struct ms_link *l = ms_link_alloc(loop, ops, arg);
    struct ms_transport *t = l ? ms_transport_unix(fd) : NULL;

    if (!t) {
        close(fd);
        ms_link_destroy(l);
        return NULL;
    }
    l->conn = ms_conn_create(t, NULL);
    if (!l->conn || ms_link_open(l, NULL) < 0) {
        ms_link_destroy(l);
        return NULL;
    }
    return l;
}

struct ms_link *ms_link_from_conn(struct ms_loop *loop,
                                  struct ms_conn *conn,
                                  struct ms_heartbeat **heartbeat)
{
    struct ms_link *l = NULL;

    if (!*heartbeat)
        *heartbeat = ms_heartbeat_create(loop);
    if (*heartbeat)
        l = ms_link_alloc(loop, NULL, NULL);
    if (!l) {
        ms_conn_destroy(conn);
        return NULL;
    }
    l->conn = conn;
    l->held = true;
    ms_conn_set_lazy(conn);
    if (ms_link_open(l, *heartbeat) < 0) {
        ms_link_destroy(l);
        return NULL;
    }
    return l;
}

void ms_link_accept(struct ms_link *l, const struct ms_link_ops *ops, void *arg)
{
    assert(l->held);
    l->ops = ops;
    l->arg = arg;
    ms_timer_set(&l->soon, 0);
}

void ms_link_set_ops(struct ms_link *l, const struct ms_link_ops *ops, void *arg)
{
    l->ops = ops;
    l->arg = arg;
}

/* The end is said before the socket is closed: closing it with something unread (a beat that
 * has just come) says "reset", which the other side would take for the network's doing. */
static void say_the_end(struct ms_link *l)
{
    if (l->is_open && !l->closed && ms_conn_is_network(l->conn))
        shutdown(ms_conn_fd(l->conn), SHUT_WR);
}

/* A socket that is closed says so when the network is healed, as often as it takes; an
 * aborted one is silent, or resets. */
static void hide_the_end(struct ms_link *l)
{
    struct linger abort = {.l_onoff = 1, .l_linger = 0};

    if (l->conn && ms_conn_is_network(l->conn))
        setsockopt(ms_conn_fd(l->conn), SOL_SOCKET, SO_LINGER, &abort, sizeof abort);
}

void ms_link_destroy(struct ms_link *l)
{
    if (!l)
        return;
    if (l->closed && !ms_link_has_ended(&l->why))
        hide_the_end(l); /* we do not end: it may have been a short cut */
    say_the_end(l);
    destroy(l);
}

void ms_link_abandon(struct ms_link *l)
{
    if (!l)
        return;
    hide_the_end(l);
    destroy(l);
}

/* ---- sending ---------------------------------------------------------------------- */

static int check_open(const struct ms_link *l)
{
    if (l->closed || l->broken)
        return -EPIPE;
    return l->is_open ? 0 : -ENOTCONN;
}

int ms_link_send(struct ms_link *l, const ProtobufCMessage *m)
{
    MS_CLEANUP(ms_cleanup_free) uint8_t *body = NULL;
    size_t len;
    int rc = check_open(l);

    if (rc < 0)
        return rc;
    body = ms_proto_packed(m, &len);
    return body ? ms_link_send_packed(l, body, len) : -ENOMEM;
}

int ms_link_send_packed(struct ms_link *l, const uint8_t *body, size_t len)
{
    struct ms_frame head = {.kind = MS_KIND_CONTROL, .codec = MS_CODEC_PROTO};
    struct iovec iov = {(uint8_t *)(uintptr_t)body, len};
    int rc = check_open(l);

    if (rc < 0)
        return rc;
    head.call_id = ++l->sent;
    rc = ms_conn_send(l->conn, &head, &iov, 1);
    if (rc < 0 && rc != -ENOMEM && rc != -ENOBUFS && rc != -EMSGSIZE)
        l->broken = true; /* its last words may still be on their way to us */
    update(l);
    return rc;
}

int ms_link_send_data(struct ms_link *l, uint64_t id, const struct ms_loan *loan)
{
    struct ms_frame head = {.kind = MS_KIND_DATA, .call_id = id};
    int rc = check_open(l);

    if (rc < 0)
        return rc;
    rc = ms_conn_send_loan(l->conn, &head, loan);
    if (rc < 0 && rc != -ENOMEM && rc != -ENOBUFS) {
        l->broken = true;
        rc = 0; /* it is queued, and goes with the connection */
    }
    update(l);
    return rc;
}

int ms_link_fd(const struct ms_link *l)
{
    return l->conn ? ms_conn_fd(l->conn) : -1;
}

size_t ms_link_queued(const struct ms_link *l)
{
    return l->conn ? ms_conn_queued(l->conn) : 0;
}

bool ms_link_is_open(const struct ms_link *l)
{
    return l->is_open && !l->closed;
}

bool ms_link_is_suspect(const struct ms_link *l)
{
    return l->is_suspect;
}

int64_t ms_link_heard_ns(const struct ms_link *l)
{
    return l->conn ? ms_conn_heard_ns(l->conn) : 0;
}

void ms_link_peer(const struct ms_link *l, char *out, size_t room)
{
    struct sockaddr_storage sa = {0};
    socklen_t len = sizeof sa;

    if (l->conn)
        getpeername(ms_conn_fd(l->conn), (struct sockaddr *)&sa, &len);
    ms_sockaddr_format(&sa, out, room);
}

void ms_link_drain(struct ms_link *l, int64_t deadline_ns)
{
    while (ms_link_is_open(l) && !l->broken && ms_conn_wants_write(l->conn)) {
        struct pollfd p = {.fd = ms_conn_fd(l->conn), .events = POLLOUT};
        int rc = deadline_ns > ms_now_ns() ? ms_poll_until(&p, 1, deadline_ns) : 0;

        if (rc == 0 || (rc < 0 && rc != -EINTR) || ms_conn_flush(l->conn) < 0)
            return;
    }
}
