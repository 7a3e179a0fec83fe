/* peer_connect.c - making a peer's connection, again and again: over a new one open calls are
 * attached or sent again */
#include "base/clock.h"
#include "wire/client/client_impl.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

/* ---- what is open goes on ---------------------------------------------------------- */

enum { ATTACH_IDS = 4096 }; /* in one message */

static int compare_ids(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* The ids of the calls whose ends have not come, in order; NULL: out of memory. */
static uint64_t *call_ids(struct ms_peer *p)
{
    uint64_t *ids = malloc((p->calls.count + 1) * sizeof *ids);
    size_t at = 0, n = 0;
    struct ms_call *c;

    if (!ids)
        return NULL;
    while ((c = ms_map_next(&p->calls, &at)))
        ids[n++] = c->id;
    qsort(ids, n, sizeof *ids, compare_ids);
    return ids;
}

/* Tell which calls we still wait for: what else the worker remembers is of no use. */
static int send_attach(struct ms_peer *p, const uint64_t *ids, size_t count)
{
    uint64_t body[ATTACH_IDS + 1], after = 0;
    size_t at = 0;
    int rc = 0;

    do {
        size_t n = count - at < ATTACH_IDS ? count - at : ATTACH_IDS;
        bool is_last = at + n == count;
        struct ms_frame head = {.kind = MS_KIND_ATTACH,
                                .call_id = is_last ? p->next_call : ids[at + n - 1]};
        struct iovec iov = {body, (n + 1) * sizeof *body};

        body[0] = htole64(after);
        for (size_t i = 0; i < n; i++)
            body[i + 1] = htole64(ids[at + i]);
        rc = ms_peer_send(p, &head, &iov, 1);
        after = head.call_id;
        at += n;
    } while (rc == 0 && p->conn && at < count);
    return rc;
}

/* How many items of its stream have arrived, and how many of them were taken: the worker
 * sends what is missing. Of a call that was given up, all that have arrived. */
static int send_resume(struct ms_peer *p, struct ms_call *c)
{
    struct ms_frame head = {
        .kind = MS_KIND_CREDIT, .flags = MS_FRAME_RESEND, .call_id = c->id};
    uint64_t body[2] = {htole64(c->arrived),
                        htole64(c->given_up ? c->arrived : c->taken)};
    struct iovec iov = {body, sizeof body};

    c->consumed = 0;
    return ms_peer_send(p, &head, &iov, 1);
}

/* Of a call that was given up: let the worker send what has not arrived. */
static int send_cancel_again(struct ms_peer *p, struct ms_call *c)
{
    struct ms_frame head = {
        .kind = MS_KIND_CANCEL, .flags = MS_FRAME_RESEND, .call_id = c->id};
    int rc = c->flags & MS_FRAME_STREAM ? send_resume(p, c) : 0;

    return rc < 0 || !p->conn ? rc : ms_peer_send(p, &head, NULL, 0);
}

static int send_again(struct ms_peer *p, struct ms_call *c, int64_t now_ns)
{
    struct ms_frame head = ms_call_frame(c, now_ns);
    struct iovec iov = {c->request, c->request_len};
    int rc;

    if (c->sent && c->flags & MS_FRAME_STREAM) {
        rc = send_resume(p, c);
        if (rc < 0 || !p->conn)
            return rc;
    }
    if (c->sent)
        head.flags |= MS_FRAME_RESEND;
    if (!c->request)
        head.flags |= MS_FRAME_RESEND | MS_FRAME_BARE;
    rc = ms_peer_send(p, &head, &iov, c->request ? 1 : 0);
    if (rc != -EMSGSIZE)
        return rc;
    ms_peer_drop_call(p, ms_peer_take_call(p, c->id));
    ms_call_fail(
        c, MUSTER__FAILURE__KIND__REFUSED, "the arguments are too big to be sent");
    return 0;
}

/* What we wait for, methods, then every open call; the worker knows which it has. */
static int attach(struct ms_peer *p)
{
    int64_t now_ns = ms_now_ns();
    size_t count = p->calls.count;
    uint64_t *ids = call_ids(p);
    int rc = 0;

    if (!ids)
        return -ENOMEM;
    p->ack_count = 0; /* what is not in `ids` needs no other word */
    if (p->was_known)
        rc = send_attach(p, ids, count);
    for (size_t i = 0; i < p->method_count && p->conn && rc == 0; i++)
        rc = ms_peer_send_method(p, i);
    for (size_t i = 0; i < count && p->conn && rc == 0; i++) {
        struct ms_call *c = ms_map_find(&p->calls, ids[i]);

        if (c)
            rc = c->given_up ? send_cancel_again(p, c) : send_again(p, c, now_ns);
    }
    free(ids);
    return rc;
}

/* ---- connecting ------------------------------------------------------------------- */

static int conn_begin(struct ms_peer *p, struct ms_transport *t)
{
    struct epoll_event ev = {.events = EPOLLONESHOT, .data.u64 = p->id};
    int fd = t->fd, rc;

    p->conn = ms_conn_dial(t, p->client->net.secret, p->session, MS_LANE_CALL, p->uid);
    if (!p->conn)
        return -ENOMEM;
    if (epoll_ctl(p->client->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0) {
        rc = -errno;
        ms_peer_drop_conn(p);
        return rc;
    }
    p->armed = NOT_ARMED;
    p->is_network = ms_conn_is_network(p->conn);
    p->is_remote = p->is_network && !ms_tcp_is_same_host(fd);
    p->opened_ns = p->expect_ns = ms_now_ns();
    if (p->is_network)
        ms_client_wake_at(p->client, p->opened_ns + MS_PING_NS);
    ms_conn_flush(p->conn); /* its failure is read as the end of file */
    return 0;
}

/* Failures of one address, after which the next one may still be reached. */
static bool is_of_address(int rc)
{
    static const int codes[] = {ECONNREFUSED,
                                ENOENT,
                                EAGAIN,
                                ETIMEDOUT,
                                ECONNRESET,
                                EPIPE,
                                ENOTCONN,
                                ENETUNREACH,
                                EHOSTUNREACH,
                                EHOSTDOWN,
                                ENETDOWN,
                                EADDRNOTAVAIL,
                                EAFNOSUPPORT,
                                ENXIO,
                                EPROTO};

    for (size_t i = 0; i < MS_COUNT(codes); i++)
        if (rc == -codes[i])
            return true;
    return false;
}

/* 0: there is a connection, at least a beginning; -EINPROGRESS: a name is being looked up;
 * -ENODATA: the round is over; or a failure that other addresses do not heal. */
static int conn_open(struct ms_peer *p)
{
    struct ms_transport *t = NULL;
    int rc;

    do {
        rc = ms_dial_next(&p->dial, &p->client->net, &t, NULL);
        if (rc == 0)
            return conn_begin(p, t);
    } while (is_of_address(rc));
    return rc;
}

static void give_up_for(struct ms_peer *p, int rc)
{
    ms_peer_give_up(p,
                    "cannot connect to it: %s%s",
                    strerror(-rc),
                    rc == -EMFILE ? " (raise the limit of open files: ulimit -n)" : "");
}

/* All addresses have been tried. */
static void round_over(struct ms_peer *p, int64_t now_ns)
{
    int last = p->dial.last;
    bool refused = ms_dial_was_refused(&p->dial);

    ms_dial_restart(&p->dial);
    if (refused)
        ms_peer_await_exit(p, now_ns);
    else if (last == -ENXIO && !p->was_known)
        give_up_for(p, last); /* a name that never meant anything */
    else
        ms_peer_retry_later(p, now_ns);
}

void ms_peer_connect(struct ms_peer *p)
{
    int64_t now_ns = ms_now_ns();
    int rc;

    assert(!p->conn);
    ms_peer_set_lost(p, now_ns);
    rc = conn_open(p);
    if (rc == 0) {
        p->state = PEER_UP;
        rc = attach(p);
        if (rc < 0 && p->conn)
            ms_peer_lose(p, rc, NULL);
        ms_peer_hand_over(p);
    } else if (rc == -EINPROGRESS) {
        p->retry_ns = now_ns + MS_LOOKUP_NS;
        ms_client_wake_at(p->client, p->retry_ns);
    } else if (rc == -ENODATA) {
        round_over(p, now_ns);
    } else {
        ms_dial_restart(&p->dial);
        give_up_for(p, rc);
    }
}

static void give_up_lost(struct ms_peer *p, int64_t now_ns)
{
    ms_peer_give_up(p,
                    "the connection broke and could not be made again for %lld s%s%s",
                    (long long)((now_ns - p->lost_ns) / MS_NS_PER_S),
                    p->dial.last ? ": " : "",
                    p->dial.last ? strerror(-p->dial.last) : "");
}

/* Lost: an exit that is not told, the grace, the next attempt; the next time to look. */
static int64_t lost_on_time(struct ms_peer *p, int64_t now_ns)
{
    if (p->is_network && p->open_count && now_ns - p->lost_ns >= MS_SUSPECT_NS)
        p->is_suspect = true;
    if (p->exit_due_ns <= now_ns) {
        ms_peer_give_up(p,
                        "nobody answers for it at its address, and nobody knows why");
    } else if (p->exit_due_ns != MS_NEVER) {
        return p->exit_due_ns;
    } else if (now_ns - p->lost_ns > p->client->o.grace_ns) {
        give_up_lost(p, now_ns);
    } else if (p->retry_ns <= now_ns) {
        ms_peer_connect(p); /* sets the timer itself */
    } else {
        return p->retry_ns;
    }
    return MS_NEVER;
}

int64_t ms_peer_on_time(struct ms_peer *p, int64_t now_ns)
{
    int64_t next_ns, other_ns = MS_NEVER;

    if (p->expire_ns <= now_ns)
        p->expire_ns = ms_calls_expire(p, now_ns);
    next_ns = p->expire_ns;
    if (p->state == PEER_LOST)
        other_ns = lost_on_time(p, now_ns);
    else if (p->state == PEER_SEEKING)
        other_ns = p->seek_ns > now_ns ? p->seek_ns : now_ns + MS_SEEK_NS;
    else if (p->state == PEER_UP && p->conn && p->is_network && !p->is_broken)
        other_ns = ms_peer_check_silence(p, now_ns);
    if (p->armed == ARMED_INBOX) {
        ms_peer_arm(p); /* at the loop, if the inbox has had its time */
        if (p->armed == ARMED_INBOX && p->inbox_until_ns < next_ns)
            next_ns = p->inbox_until_ns;
    }
    if (p->armed == ARMED_LATER) {
        if (p->look_ns <= now_ns)
            ms_peer_look(p);
        else if (p->look_ns < next_ns)
            next_ns = p->look_ns;
    }
    return other_ns < next_ns ? other_ns : next_ns;
}
