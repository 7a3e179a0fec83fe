/* link_dial.c - dialling a link: one attempt after the other, until one is proven or time is
 * up */
#include "base/clock.h"
#include "wire/link/link_impl.h"

#include <errno.h>
#include <string.h>

#define RETRY_FIRST_NS (10 * MS_NS_PER_MS)

struct dialing {
    struct ms_link *link;
    struct ms_dial dial;
    struct ms_net net;
    struct ms_watch watch;
    struct ms_timer timer; /* of the attempt, or until the next one */
    int64_t deadline_ns, began_ns;
    int64_t retry_ns;
    bool is_patient;
    struct ms_error last; /* why the last attempt failed */
};

static void try_next(struct dialing *d);

void ms_dialing_destroy(struct dialing *d)
{
    if (!d)
        return;
    ms_watch_finish(&d->watch);
    ms_timer_finish(&d->timer);
    ms_dial_finish(&d->dial);
    ms_net_finish(&d->net);
    free(d);
}

/* ---- the end of it ---------------------------------------------------------------- */

static void give_up(struct dialing *d, int code, const char *what)
{
    struct ms_error why = {0};

    ms_timer_cancel(&d->timer);
    if (d->last.code)
        ms_error_set(&why, code, "%s: %.300s", what, d->last.text);
    else
        ms_error_set(&why, code, "%s", what);
    ms_link_close_soon(d->link, &why);
}

/* Which failures no other attempt will heal. */
static bool is_final(int rc)
{
    return rc == -EACCES || rc == -EPERM || rc == -EPROTONOSUPPORT || rc == -ENOKEY;
}

static void proven(struct dialing *d)
{
    struct ms_link *l = d->link;
    struct ms_heartbeat *heartbeat = ms_heartbeat_create(l->loop);
    int rc;

    ms_watch_finish(&d->watch);
    ms_timer_finish(&d->timer);
    ms_conn_set_lazy(l->conn);
    rc = heartbeat ? ms_link_open(l, heartbeat) : -ENOMEM;
    ms_heartbeat_unref(heartbeat);
    l->dialing = NULL;
    if (rc < 0) {
        ms_error_sys(&d->last, rc, "cannot watch the link");
        ms_link_close_soon(l, &d->last);
    }
    ms_dialing_destroy(d);
    if (rc == 0 && l->ops->on_open)
        l->ops->on_open(l->arg);
}

/* ---- attempts --------------------------------------------------------------------- */

static void wait_ns(struct dialing *d, int64_t delay_ns)
{
    int64_t left_ns = d->deadline_ns - ms_now_ns();

    if (left_ns < 0)
        left_ns = 0;
    ms_timer_set(&d->timer, delay_ns < left_ns ? delay_ns : left_ns);
}

static void drop_attempt(struct dialing *d)
{
    ms_watch_finish(&d->watch);
    ms_conn_destroy(d->link->conn);
    d->link->conn = NULL;
}

/* This attempt came to nothing. */
static void attempt_failed(struct dialing *d, int rc)
{
    drop_attempt(d);
    ms_dial_failed(&d->dial, rc);
    if (is_final(rc))
        give_up(d, rc, "the head refuses this link");
    else
        try_next(d);
}

static int on_early(void *arg, struct ms_message *m)
{
    (void)arg;
    (void)m;
    return -EPROTO; /* who is dialled waits for the dialler's first words */
}

static void on_ready(void *arg, unsigned events)
{
    static const struct ms_conn_sink sink = {.on_message = on_early};
    struct dialing *d = arg;
    struct ms_conn *c = d->link->conn;
    struct ms_error err = {0};
    int rc = 0;

    if (events & MS_WRITE)
        ms_conn_flush(c); /* its failure is read as the end of file */
    rc = ms_conn_read(c, &sink, d, &err);
    if (rc >= 0 || rc == -EAGAIN) {
        if (ms_conn_is_ready(c))
            proven(d);
        else
            ms_watch_set(&d->watch, MS_READ | (ms_conn_wants_write(c) ? MS_WRITE : 0u));
        return;
    }
    if (!err.code)
        ms_error_sys(&err, rc, "cannot connect");
    d->last = err;
    attempt_failed(d, rc);
}

static int begin(struct dialing *d, struct ms_transport *t)
{
    struct ms_conn *c = ms_conn_dial(t, d->net.secret, NULL, MS_LANE_LINK, 0);

    if (!c)
        return -ENOMEM;
    d->link->conn = c;
    d->began_ns = ms_now_ns();
    ms_conn_flush(c);
    return ms_watch_init(&d->watch,
                         d->link->loop,
                         ms_conn_fd(c),
                         MS_READ | (ms_conn_wants_write(c) ? MS_WRITE : 0u),
                         on_ready,
                         d);
}

static void round_over(struct dialing *d)
{
    if (ms_dial_was_refused(&d->dial) && !d->is_patient) {
        give_up(d, d->dial.last, "nobody listens");
        return;
    }
    ms_dial_restart(&d->dial);
    wait_ns(d, d->retry_ns);
    if (d->retry_ns < 4 * MS_RETRY_MAX_NS)
        d->retry_ns *= 2;
}

static void try_next(struct dialing *d)
{
    struct ms_transport *t = NULL;
    int rc;

    for (;;) {
        struct ms_error err = {0};

        rc = ms_dial_next(&d->dial, &d->net, &t, &err);
        if (rc == 0)
            rc = begin(d, t);
        if (rc == 0) {
            wait_ns(d, MS_CONNECT_NS);
            return;
        }
        if (rc == -EINPROGRESS || rc == -ENODATA)
            break;
        if (d->link->conn)
            drop_attempt(d);
        if (!err.code)
            ms_error_sys(&err, rc, "cannot connect");
        d->last = err;
    }
    if (rc == -EINPROGRESS)
        wait_ns(d, MS_LOOKUP_NS);
    else
        round_over(d);
}

/* Connected, but the handshake is slow: it has more time than a SYN. */
static bool may_wait_longer(const struct dialing *d, int64_t now_ns)
{
    const struct ms_conn *c = d->link->conn;

    if (now_ns - d->began_ns >= MS_HANDSHAKE_NS)
        return false;
    return !ms_conn_is_network(c) || ms_tcp_connected(ms_conn_fd(c)) == 0;
}

static void on_time(void *arg)
{
    struct dialing *d = arg;
    int64_t now_ns = ms_now_ns();

    if (now_ns >= d->deadline_ns) {
        if (d->link->conn)
            drop_attempt(d);
        give_up(d, -ETIMEDOUT, "no connection in time");
    } else if (!d->link->conn) {
        try_next(d);
    } else if (may_wait_longer(d, now_ns)) {
        wait_ns(d, MS_CONNECT_NS);
    } else {
        ms_error_set(&d->last, -ETIMEDOUT, "no answer from it");
        attempt_failed(d, -ETIMEDOUT);
    }
}

struct ms_link *ms_link_dial(struct ms_loop *loop,
                             const struct ms_link_dial *o,
                             const struct ms_link_ops *ops,
                             void *arg,
                             struct ms_error *err)
{
    struct ms_link *l = ms_link_alloc(loop, ops, arg);
    struct dialing *d = l ? calloc(1, sizeof *d) : NULL;
    int rc;

    if (!d) {
        ms_link_destroy(l);
        ms_error_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    d->link = l;
    d->deadline_ns = o->deadline_ns;
    d->is_patient = o->is_patient;
    d->retry_ns = RETRY_FIRST_NS;
    l->dialing = d;
    ms_net_init(&d->net, o->secret, o->tls);
    rc = ms_dial_init(&d->dial, o->addresses, err);
    if (rc == 0) {
        rc = ms_timer_init(&d->timer, loop, on_time, d);
        if (rc == 0)
            rc = ms_timer_set(&d->timer, 0); /* nothing completes before we return */
        if (rc < 0)
            ms_error_sys(err, rc, "cannot dial");
    }
    if (rc < 0) {
        ms_link_destroy(l);
        return NULL;
    }
    return l;
}
