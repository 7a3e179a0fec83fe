/* peer_read.c - reading a peer's connection: who reads, and what comes */
#include "base/clock.h"
#include "io/sock.h"
#include "wire/client/client_impl.h"

#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>

/* ---- the loop or an inbox as the reader ------------------------------------------- */

/* By the loop: for these, once, and for room if that is missing. */
static void watch(struct ms_peer *p, unsigned events)
{
    struct epoll_event ev = {.events = events | EPOLLONESHOT, .data.u64 = p->id};

    if (ms_conn_wants_write(p->conn))
        ev.events |= EPOLLOUT;
    if (ev.events == p->watched)
        return;
    p->watched = ev.events;
    epoll_ctl(p->client->epoll_fd, EPOLL_CTL_MOD, ms_conn_fd(p->conn), &ev);
}

static void set_armed(struct ms_peer *p, enum peer_armed armed)
{
    enum peer_armed before = p->armed;

    p->armed = armed;
    if (before != armed && before == ARMED_INBOX)
        ms_inbox_watch(p, false);
    if (before != armed && armed == ARMED_INBOX)
        ms_inbox_watch(p, true);
    if (before != armed && armed == ARMED_LATER) {
        p->look_ns = ms_now_ns() + MS_BURST_NS;
        ms_client_wake_at(p->client, p->look_ns);
    }
    if ((before != armed && (before == ARMED_LOOP || armed == ARMED_LOOP)) ||
        ms_conn_wants_write(p->conn))
        watch(p, armed == ARMED_LOOP ? EPOLLIN | EPOLLRDHUP : 0);
}

static enum peer_armed who_reads(const struct ms_peer *p)
{
    if (p->reading)
        return NOT_ARMED;
    if (p->inbox_until_ns && ms_now_ns() < p->inbox_until_ns)
        return ARMED_INBOX;
    if (p->armed == NOT_ARMED && ms_conn_is_ready(p->conn) && !p->is_dying &&
        !p->is_broken && ms_now_ns() < p->burst_until_ns)
        return ARMED_LATER;
    return p->armed == ARMED_LATER ? ARMED_LATER : ARMED_LOOP;
}

void ms_peer_arm(struct ms_peer *p)
{
    if (p->conn)
        set_armed(p, who_reads(p));
}

void ms_peer_look(struct ms_peer *p)
{
    p->burst_until_ns = 0;
    if (p->conn && p->armed == ARMED_LATER)
        set_armed(p, ARMED_LOOP);
}

void ms_peer_ready(struct ms_peer *p, enum peer_armed where)
{
    MS_PEER_LOCK(p);

    if (p->armed == where)
        p->armed = NOT_ARMED;
    if (where == ARMED_LOOP)
        p->watched = 0;
    if (p->conn && ms_conn_wants_write(p->conn))
        ms_conn_flush(p->conn); /* its failure is read as the end of file */
    if (p->conn && !p->reading)
        ms_peer_read(p, NULL, 0);
    ms_peer_hand_over(p);
}

void ms_peer_hand_over(struct ms_peer *p)
{
    if (!p->conn)
        return;
    if (!p->reading && !ms_list_is_empty(&p->waiters)) {
        ms_list_each (w, &p->waiters, struct waiter, link)
            if (!atomic_load(&w->asleep))
                return; /* it is on its way */
        ms_waiter_wake(ms_list_first(&p->waiters, struct waiter, link));
        return;
    }
    if ((!p->reading && (p->calls.count || p->is_dying || p->is_broken)) ||
        ms_conn_wants_write(p->conn))
        ms_peer_arm(p);
}

/* ---- messages -------------------------------------------------------------------- */

static int send_acks(struct ms_peer *p)
{
    struct ms_frame head = {.kind = MS_KIND_ACK};
    uint64_t ids[ACKS_MAX];
    struct iovec iov = {ids, p->ack_count * sizeof(uint64_t)};

    for (unsigned i = 0; i < p->ack_count; i++)
        ids[i] = htole64(p->acks[i]);
    p->ack_count = 0;
    return ms_peer_send(p, &head, &iov, 1);
}

/* Told with a later call, or with many others; at once if much is kept for it. */
static void add_ack(struct ms_peer *p, uint64_t id, size_t len)
{
    p->acks[p->ack_count++] = id;
    if (p->ack_count == ACKS_MAX || len > MS_CHUNK_MAX)
        send_acks(p);
}

void ms_peer_leave(struct ms_peer *p)
{
    struct ms_frame head = {.kind = MS_KIND_LEAVE};

    if (!p->conn || !ms_conn_is_ready(p->conn) || p->calls.count == 0)
        return;
    if ((p->ack_count == 0 || send_acks(p) == 0) && p->conn)
        ms_peer_send(p, &head, NULL, 0);
}

/* Of an answer or item that is of no use: what it grants is given back. */
static void refuse(struct ms_peer *p, const struct ms_message *m)
{
    void *stored = ms_peer_take_stored(p, m->head.codec, m->body, m->len);

    if (stored)
        p->client->o.on_stored_drop(stored);
}

static int on_reply(struct ms_peer *p, struct ms_message *m)
{
    struct ms_call *c = ms_peer_take_call(p, m->head.call_id);
    uint8_t *body = NULL;

    p->worker_core = m->head.core;
    add_ack(p, m->head.call_id, m->len);
    if (!c)
        return 0;
    if (!c->given_up) {
        c->ends_stream = m->head.flags & MS_FRAME_STREAM;
        body = ms_message_take(m);
    }
    if (body)
        ms_call_complete(c, m->head.kind, m->head.codec, body, m->len);
    else if (m->head.kind == MS_KIND_REPLY)
        refuse(p, m);
    if (!c->done)
        ms_call_fail(c, MUSTER__FAILURE__KIND__NO_MEMORY, "no memory for the result");
    ms_peer_drop_call(p, c);
    return 0;
}

static int on_item(struct ms_peer *p, struct ms_message *m)
{
    struct ms_call *c = ms_map_find(&p->calls, m->head.call_id);

    if (c && !c->given_up)
        return ms_call_add_item(c, m);
    if (c) {
        c->arrived++;
        refuse(p, m);
    }
    return 0;
}

static int take_message(struct ms_peer *p, struct ms_message *m)
{
    if (!p->is_working) {
        p->is_working = true;
        ms_dial_worked(&p->dial);
    }
    switch (m->head.kind) {
    case MS_KIND_REPLY:
    case MS_KIND_ERROR:
        return on_reply(p, m);
    case MS_KIND_ITEM:
        return on_item(p, m);
    case MS_KIND_PONG:
        return 0;
    default:
        return -EPROTO;
    }
}

static int on_message(void *arg, struct ms_message *m)
{
    struct ms_peer *p = arg;

    if (p->locked_read)
        return take_message(p, m);
    MS_PEER_LOCK(p);
    return take_message(p, m);
}

static const struct ms_conn_sink sink = {.on_message = on_message};

enum { REST_READS_MAX = 16 };

/* ---- reading --------------------------------------------------------------------- */

/* Wait for the socket without the lock. */
static int wait_socket(int fd, short events, int64_t until_ns)
{
    struct pollfd pfd = {.fd = fd, .events = events};
    int n = until_ns > ms_now_ns() ? ms_poll_until(&pfd, 1, until_ns) : 0;

    return n < 0 ? n : n == 0 ? -ETIMEDOUT : 0;
}

/* Polls that find nothing are of no use: the answer takes longer, or the worker shares
 * our core. Each one in a row doubles the time until the next try. */
static void count_poll(struct ms_peer *p, bool found)
{
    if (found) {
        p->spin_misses = 0;
        return;
    }
    p->spin_again_ns = ms_now_ns() + ((2 * MS_SPIN_NS) << p->spin_misses);
    if (p->spin_misses < 10)
        p->spin_misses++;
}

/* `yields`: one of many calls: other threads run between two looks, and the core does not
 * fall asleep. */
static inline int __attribute__((always_inline))
read_polling(struct ms_peer *p, struct ms_conn *conn, bool yields, struct ms_error *err)
{
    int64_t until_ns = ms_now_ns() + MS_SPIN_NS;
    int rc = ms_conn_read(conn, &sink, p, err);

    while (rc == -EAGAIN && ms_now_ns() < until_ns) {
        if (yields)
            sched_yield();
        else
            ms_spin_relax();
        if (ms_conn_is_readable(conn))
            rc = ms_conn_read(conn, &sink, p, err);
    }
    return rc;
}

/* During the handshake reading and sending share state: read under the lock. */
static int read_handshake(struct ms_peer *p, struct ms_error *err)
{
    int rc;

    p->locked_read = true;
    rc = ms_conn_read(p->conn, &sink, p, err);
    p->locked_read = false;
    return rc;
}

/* The role is ours; lock held before and after. */
static int read_proven(struct ms_peer *p,
                       struct ms_call *c,
                       int64_t until_ns,
                       int *waited,
                       struct ms_error *err)
{
    struct ms_conn *conn = p->conn;
    bool spin = c && c->spin, yields = c && c->yields;
    /* one call alone cannot have been answered yet; of many, most have */
    bool sure = c && c->just_sent && !spin && atomic_load(&p->client->outstanding) == 1;
    short events = (short)(POLLIN | (ms_conn_wants_write(conn) ? POLLOUT : 0));
    int rc = -EAGAIN;

    if (c)
        c->spin = c->just_sent = c->yields = false;
    ms_peer_unlock(p);
    if (spin)
        rc = read_polling(p, conn, false, err);
    else if (yields)
        rc = read_polling(p, conn, true, err);
    else if (!sure)
        rc = ms_conn_read(conn, &sink, p, err);
    if (rc == -EAGAIN && until_ns != 0) {
        *waited = wait_socket(ms_conn_fd(conn), events, until_ns);
        if (*waited == 0)
            rc = ms_conn_read(conn, &sink, p, err);
    }
    pthread_mutex_lock(&p->lock);
    if (spin)
        count_poll(p, *waited == 1);
    return rc;
}

static int
read_unproven(struct ms_peer *p, int64_t until_ns, int *waited, struct ms_error *err)
{
    int fd = ms_conn_fd(p->conn), rc = read_handshake(p, err);
    short events = (short)(POLLIN | (ms_conn_wants_write(p->conn) ? POLLOUT : 0));

    if (rc != -EAGAIN || until_ns == 0)
        return rc;
    ms_peer_unlock(p);
    *waited = wait_socket(fd, events, until_ns);
    pthread_mutex_lock(&p->lock);
    return rc;
}

void ms_peer_read_rest(struct ms_peer *p)
{
    for (int i = 0; i < REST_READS_MAX && p->conn && !p->reading; i++)
        ms_peer_read(p, NULL, 0);
}

int ms_peer_read(struct ms_peer *p, struct ms_call *c, int64_t until_ns)
{
    struct ms_error err = {0};
    int rc, waited = 1; /* 1: there was no need to */

    if (p->armed != NOT_ARMED)
        set_armed(p, NOT_ARMED);
    p->reading = true;
    if (ms_conn_is_ready(p->conn))
        rc = read_proven(p, c, until_ns, &waited, &err);
    else
        rc = read_unproven(p, until_ns, &waited, &err);
    p->reading = false;
    if (rc < 0 && rc != -EAGAIN)
        ms_peer_lose(p, rc, &err);
    else if (ms_conn_wants_write(p->conn))
        ms_conn_flush(p->conn); /* its failure is read as the end of file */
    return waited < 0 ? waited : 0;
}
