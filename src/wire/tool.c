#include "wire/tool.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/name.h"
#include "io/sock.h"
#include "proto/muster.pb-c.h"
#include "wire/conn.h"

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

static struct ms_conn *
open_conn(const char *path, const uint8_t secret[32], struct ms_error *err)
{
    uint8_t nonce[32], session[MS_SESSION_SIZE];
    struct ms_handshake h;
    struct ms_transport *t;
    struct ms_conn *c;
    int fd = ms_unix_connect(path, err);

    if (fd < 0)
        return NULL;
    t = ms_transport_unix(fd);
    if (!t)
        close(fd);
    if (!t || ms_random_bytes(nonce, sizeof nonce) < 0 ||
        ms_random_bytes(session, sizeof session) < 0) {
        ms_transport_destroy(t);
        ms_error_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    ms_handshake_init_client(&h, secret, nonce, session, MS_LANE_CONTROL, 0);
    c = ms_conn_create_client(t, &h);
    ms_handshake_finish(&h);
    if (!c)
        ms_error_set(err, -ENOMEM, "out of memory");
    return c;
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

int ms_tool_call(const char *socket_path,
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
    struct ms_frame head = {.kind = MS_KIND_CALL,
                            .codec = MS_CODEC_PROTO,
                            .op = op,
                            .call_id = 1,
                            .budget_ns = (uint64_t)timeout_ns};
    struct iovec iov = {(void *)(uintptr_t)body, len};
    int64_t until_ns = ms_deadline_ns(ms_now_ns(), timeout_ns);
    MS_CLEANUP(conn_cleanup) struct ms_conn *c = open_conn(socket_path, secret, &here);
    int rc = c ? ms_conn_send(c, &head, &iov, 1) : here.code;

    while (rc == 0 && !a.done)
        rc = step(c, &a, until_ns, &here);
    if (rc == 0)
        rc = a.rc;
    if (rc < 0) {
        free(a.body);
        if (!here.code)
            ms_error_sys(&here, rc, "cannot talk to '%s'", socket_path);
        if (err)
            *err = here;
        return rc;
    }
    *reply = a.body;
    *reply_len = a.len;
    return 0;
}
