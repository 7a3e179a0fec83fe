/* peer_connect.c - making a peer's connection, again and again */
#include "base/clock.h"
#include "io/sock.h"
#include "wire/client/client_impl.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

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
    p->armed = false;
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
    char text[PROBLEM_MAX];

    snprintf(text,
             sizeof text,
             "cannot connect to it: %s%s",
             strerror(-rc),
             rc == -EMFILE ? " (raise the limit of open files: ulimit -n)" : "");
    ms_peer_give_up(p, text);
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
        rc = ms_peer_attach(p);
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
    char text[PROBLEM_MAX];

    snprintf(text,
             sizeof text,
             "the connection broke and could not be made again for %lld s%s%s",
             (long long)((now_ns - p->lost_ns) / MS_NS_PER_S),
             p->dial.last ? ": " : "",
             p->dial.last ? strerror(-p->dial.last) : "");
    ms_peer_give_up(p, text);
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
    int64_t next_ns = ms_calls_expire(p, now_ns), other_ns = MS_NEVER;

    if (p->state == PEER_LOST)
        other_ns = lost_on_time(p, now_ns);
    else if (p->state == PEER_SEEKING)
        other_ns = p->seek_ns > now_ns ? p->seek_ns : now_ns + MS_SEEK_NS;
    else if (p->state == PEER_UP && p->conn && p->is_network)
        other_ns = ms_peer_check_silence(p, now_ns);
    return other_ns < next_ns ? other_ns : next_ns;
}
