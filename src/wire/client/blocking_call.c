/* blocking_call.c - connect, call once, and wait for the reply */
#include "wire/client/blocking_call.h"
#include "base/clock.h"
#include "io/sock.h"
#include "proto/muster.pb-c.h"
#include "wire/conn.h"
#include "wire/dial.h"

#include <errno.h>
#include <poll.h>

struct exchange {
    uint16_t op;
    const void *body;
    size_t len;
    int64_t until_ns;

    bool is_connected; /* this attempt has reached a worker */
    bool done;
    int rc;
    uint8_t *reply;
    size_t reply_len;
    struct ms_error err; /* of this attempt */
};

static int take_failure(struct exchange *x, const struct ms_message *m)
{
    Muster__Failure *f = muster__failure__unpack(NULL, m->len, m->body);

    x->rc = -EREMOTEIO;
    ms_error_set(&x->err,
                 f && f->code < 0 ? f->code : x->rc,
                 "%s",
                 f ? f->message : "a failure that cannot be read");
    muster__failure__free_unpacked(f, NULL);
    return 0;
}

static int on_message(void *arg, struct ms_message *m)
{
    struct exchange *x = arg;

    x->done = true;
    if (m->head.kind == MS_KIND_ERROR)
        return take_failure(x, m);
    if (m->head.kind != MS_KIND_REPLY)
        return -EPROTO;
    x->reply_len = m->len;
    x->reply = ms_message_take(m);
    x->rc = x->reply ? 0 : -ENOMEM;
    return 0;
}

/* Write and read what can be written and read; wait for more until the deadline. */
static int step(struct ms_conn *c, struct exchange *x, int64_t until_ns)
{
    static const struct ms_conn_sink sink = {.on_message = on_message};
    struct pollfd p = {.fd = ms_conn_fd(c), .events = POLLIN};
    int rc = ms_conn_flush(c); /* its failure is read as the end of file */

    if (rc == 0 && ms_conn_wants_write(c))
        p.events |= POLLOUT;
    rc = until_ns > ms_now_ns() ? ms_poll_until(&p, 1, until_ns) : 0;
    if (rc == 0)
        return ms_error_set(&x->err, -ETIMEDOUT, "no answer in time");
    if (rc < 0 && rc != -EINTR)
        return ms_error_sys(&x->err, rc, "cannot wait");
    rc = ms_conn_read(c, &sink, x, &x->err);
    return rc == -EAGAIN || rc > 0 ? 0 : rc;
}

/* One address: the call, and its answer. A connection that is not proven in time leaves time
 * for the next one. */
static int ask(struct ms_conn *c, struct exchange *x)
{
    int64_t now_ns = ms_now_ns(), open_ns = now_ns + MS_CONNECT_NS;
    struct ms_frame head = {.kind = MS_KIND_CALL,
                            .codec = MS_CODEC_PROTO,
                            .op = x->op,
                            .call_id = 1,
                            .budget_ns = (uint64_t)(x->until_ns - now_ns)};
    struct iovec iov = {(void *)(uintptr_t)x->body, x->len};
    int rc = ms_conn_send(c, &head, &iov, 1);

    while (rc == 0 && !x->done) {
        bool shaking = ms_conn_is_network(c) && !ms_conn_is_ready(c);

        rc = step(c, x, shaking && open_ns < x->until_ns ? open_ns : x->until_ns);
    }
    return rc < 0 ? rc : x->rc;
}

/* The next address of the list; as ms_dial_next if there is none. */
static int ask_next(struct ms_dial *d, struct ms_net *net, struct exchange *x)
{
    struct ms_transport *t = NULL;
    struct ms_conn *c;
    int rc;

    x->err = (struct ms_error){0};
    x->is_connected = false;
    rc = ms_dial_next(d, net, &t, &x->err);
    if (rc < 0)
        return rc;
    x->is_connected = true;
    c = ms_conn_dial(t, net->secret, NULL, MS_LANE_CONTROL, 0);
    rc = c ? ask(c, x) : -ENOMEM;
    ms_conn_destroy(c);
    return rc;
}

/* An answer that no other address will change. */
static bool is_final(int rc, const struct exchange *x)
{
    return rc == 0 || x->done ||
           (x->is_connected && (rc == -EACCES || rc == -EPROTONOSUPPORT));
}

static int ask_all(struct ms_dial *d, struct ms_net *net, struct exchange *x)
{
    struct ms_error last = {0};
    int rc;

    do {
        rc = ask_next(d, net, x);
        if (is_final(rc, x))
            return rc;
        if (rc == -ENODATA) {
            rc = d->last;
            break;
        }
        if (rc == -EINPROGRESS) {
            poll(NULL, 0, (int)(MS_LOOKUP_NS / MS_NS_PER_MS));
            rc = -ETIMEDOUT;
            continue;
        }
        last = x->err;
        if (!last.code)
            ms_error_sys(&last, rc, "cannot talk to '%.200s'", d->text);
        d->last = rc;
    } while (ms_now_ns() < x->until_ns);
    x->err = last;
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
    struct exchange x = {.op = op,
                         .body = body,
                         .len = len,
                         .until_ns = ms_deadline_ns(ms_now_ns(), timeout_ns)};
    struct ms_dial d;
    struct ms_net net;
    int rc = ms_dial_init(&d, addresses, err);

    if (rc < 0)
        return rc;
    ms_net_init(&net, secret, MS_TLS_AUTO);
    rc = ask_all(&d, &net, &x);
    if (rc == -ENOKEY) { /* it wants TLS here too */
        net.mode = MS_TLS_ON;
        ms_dial_restart(&d);
        rc = ask_all(&d, &net, &x);
    }
    ms_net_finish(&net);
    ms_dial_finish(&d);
    if (rc < 0) {
        free(x.reply);
        if (!x.err.code)
            ms_error_sys(&x.err, rc, "cannot talk to '%.200s'", addresses);
        if (err)
            *err = x.err;
        return rc;
    }
    *reply = x.reply;
    *reply_len = x.reply_len;
    return 0;
}
