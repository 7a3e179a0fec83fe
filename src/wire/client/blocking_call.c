/* blocking_call.c - connect, call once, and wait for the reply */
#include "wire/client/blocking_call.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "proto/muster.pb-c.h"
#include "wire/conn.h"
#include "wire/dial.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>

struct answer {
    bool done;
    int rc;
    uint8_t *body;
    size_t len;
    struct ms_error *err;
};

struct question {
    uint16_t op;
    const void *body;
    size_t len;
    int64_t until_ns;
};

static void conn_cleanup(struct ms_conn **c)
{
    ms_conn_destroy(*c);
}

static int take_failure(struct answer *a, const struct ms_message *m)
{
    Muster__Failure *f = muster__failure__unpack(NULL, m->len, m->body);

    a->rc = ms_error_set(
        a->err, -EREMOTEIO, "%s", f ? f->message : "a failure that cannot be read");
    if (f)
        muster__failure__free_unpacked(f, NULL);
    return 0;
}

static int on_message(void *arg, struct ms_message *m)
{
    struct answer *a = arg;

    a->done = true;
    if (m->head.kind == MS_KIND_ERROR)
        return take_failure(a, m);
    if (m->head.kind != MS_KIND_REPLY)
        return -EPROTO;
    a->len = m->len;
    a->body = ms_message_take(m);
    a->rc = a->body ? 0 : -ENOMEM;
    return 0;
}

/* Write and read what can be written and read; wait for more until the deadline. */
static int
step(struct ms_conn *c, struct answer *a, int64_t until_ns, struct ms_error *err)
{
    static const struct ms_conn_sink sink = {.on_message = on_message};
    struct pollfd p = {.fd = ms_conn_fd(c), .events = POLLIN};
    int64_t left_ms = (until_ns - ms_now_ns()) / MS_NS_PER_MS;
    int rc = ms_conn_flush(c); /* its failure is read as the end of file */

    if (rc == 0 && ms_conn_wants_write(c))
        p.events |= POLLOUT;
    if (left_ms <= 0)
        return ms_error_set(err, -ETIMEDOUT, "no answer in time");
    if (poll(&p, 1, left_ms < INT_MAX ? (int)left_ms : INT_MAX) < 0 && errno != EINTR)
        return ms_error_sys(err, -errno, "cannot wait");
    rc = ms_conn_read(c, &sink, a, err);
    return rc == -EAGAIN || rc > 0 ? 0 : rc;
}

/* One address: the call, and its answer. A connection that is not proven in time leaves time
 * for the next one. */
static int
ask(struct ms_conn *c, const struct question *q, struct answer *a, struct ms_error *err)
{
    int64_t until_ns = q->until_ns;
    struct ms_frame head = {.kind = MS_KIND_CALL,
                            .codec = MS_CODEC_PROTO,
                            .op = q->op,
                            .call_id = 1,
                            .budget_ns = (uint64_t)(until_ns - ms_now_ns())};
    struct iovec iov = {(void *)(uintptr_t)q->body, q->len};
    int64_t open_ns = ms_now_ns() + MS_CONNECT_NS;
    int rc = ms_conn_send(c, &head, &iov, 1);

    while (rc == 0 && !a->done) {
        bool shaking = ms_conn_is_network(c) && !ms_conn_is_ready(c);

        rc = step(c, a, shaking && open_ns < until_ns ? open_ns : until_ns, err);
    }
    return rc < 0 ? rc : a->rc;
}

/* An answer that no other address will change. */
static bool is_final(int rc, const struct answer *a)
{
    return rc == 0 || a->done || rc == -EACCES || rc == -EPROTONOSUPPORT;
}

static int ask_all(const char *addresses,
                   struct ms_net *net,
                   const struct question *q,
                   struct answer *a,
                   struct ms_error *err)
{
    struct ms_dial d;
    int rc = ms_dial_init(&d, addresses, err);

    while (rc == 0) {
        struct ms_error here = {0};
        struct ms_transport *t = NULL;

        rc = ms_dial_next(&d, net, &t, &here);
        if (rc == -EINPROGRESS) {
            poll(NULL, 0, (int)(MS_LOOKUP_NS / MS_NS_PER_MS));
            rc = ms_now_ns() < q->until_ns ? 0 : -ETIMEDOUT;
            continue;
        }
        if (rc == 0) {
            MS_CLEANUP(conn_cleanup)
            struct ms_conn *c = ms_conn_dial(t, net->secret, NULL, MS_LANE_CONTROL, 0);

            rc = c ? ask(c, q, a, &here) : -ENOMEM;
            if (is_final(rc, a)) {
                if (rc < 0 && !a->done)
                    *err = here;
                break;
            }
        }
        if (rc == -ENODATA) {
            rc = d.last;
            break;
        }
        *err = here;
        if (!err->code)
            ms_error_sys(err, rc, "cannot talk to '%.200s'", addresses);
        d.last = rc;
        rc = ms_now_ns() < q->until_ns ? 0 : rc;
    }
    ms_dial_finish(&d);
    return rc;
}

int ms_blocking_call(const char *addresses,
                     const uint8_t secret[32],
                     uint16_t op,
                     const void *body,
                     size_t len,
                     int64_t timeout_ns,
                     uint8_t **reply,
                     size_t *reply_len,
                     struct ms_error *err)
{
    struct ms_error here = {0};
    struct answer a = {.err = &here};
    struct question q = {.op = op,
                         .body = body,
                         .len = len,
                         .until_ns = ms_deadline_ns(ms_now_ns(), timeout_ns)};
    struct ms_net net;
    int rc;

    ms_net_init(&net, secret, MS_TLS_AUTO);
    rc = ask_all(addresses, &net, &q, &a, &here);
    if (rc == -ENOKEY) { /* it wants TLS here too */
        net.mode = MS_TLS_ON;
        rc = ask_all(addresses, &net, &q, &a, &here);
    }
    ms_net_finish(&net);
    if (rc < 0) {
        free(a.body);
        if (!here.code)
            ms_error_sys(&here, rc, "cannot talk to '%.200s'", addresses);
        if (err)
            *err = here;
        return rc;
    }
    *reply = a.body;
    *reply_len = a.len;
    return 0;
}
