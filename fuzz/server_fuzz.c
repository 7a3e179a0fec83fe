/* A whole server, and the bytes of a client that has proven itself. The first byte says how
 * the server is made and what becomes of its requests. Every request is answered once. */
#include "base/cleanup.h"
#include "base/limits.h"
#include "feed.h"
#include "io/sock.h"
#include "wire/conn.h"
#include "wire/server/server_impl.h"

#include <assert.h>
#include <sys/socket.h>

enum { KEPT_MAX = 4096 };

struct world {
    struct ms_loop *loop;
    struct ms_server *server;
    struct listener listener;
    struct ms_conn *client;
    uint8_t how;
    struct ms_request *kept[KEPT_MAX];
    size_t kept_count;
};

static const uint8_t secret[MS_SECRET_SIZE] = {1}, nonce[32] = {2};
static const uint8_t session[MS_SESSION_SIZE] = {3};

static void answer(struct ms_request *r)
{
    struct iovec iov = {r->body, r->len};
    uint8_t *memory = NULL;

    switch (r->call_id % 5) {
    case 0:
        ms_request_fail_text(r, MUSTER__FAILURE__KIND__RAISED, "no");
        return;
    case 1:
        ms_request_begin_stream(r);
        for (int i = 0; i < 3; i++)
            ms_request_item(r, r->codec, &iov, 1);
        break;
    case 2:
        ms_request_take_body(r, &memory);
        break;
    default:
        break;
    }
    ms_request_reply(r, r->codec, &iov, 1);
    free(memory);
}

/* Now, or when the connection is gone. */
static void on_request(void *arg, struct ms_request *r)
{
    struct world *w = arg;

    if ((w->how & 16) && w->kept_count < KEPT_MAX)
        w->kept[w->kept_count++] = r;
    else
        answer(r);
}

static void on_cancel(void *arg, struct ms_request *r)
{
    (void)arg;
    assert(ms_request_is_cancelled(r));
}

static void run(struct world *w)
{
    struct ms_request *r;

    for (int i = 0; i < 4; i++) {
        ms_loop_run_once(w->loop, false);
        while ((r = ms_server_engine_poll(w->server)))
            on_request(w, r);
    }
}

static int ignore(void *arg, struct ms_message *m)
{
    (void)arg;
    (void)m;
    return 0;
}

static void client_read(struct world *w)
{
    static const struct ms_conn_sink sink = {.on_message = ignore};

    while (ms_conn_read(w->client, &sink, NULL, NULL) > 0)
        ;
}

static void open_client(struct world *w)
{
    struct ms_handshake h;
    int fds[2];

    if (ms_unix_pair(SOCK_STREAM, fds) < 0)
        abort();
    ms_handshake_init_client(
        &h, secret, nonce, session, w->how & 32 ? MS_LANE_CONTROL : MS_LANE_CALL, 7);
    w->client = ms_conn_create(ms_transport_unix(fds[0]), &h);
    ms_server_conn_create(&w->listener, fds[1]);
    ms_conn_flush(w->client);
    for (int i = 0; i < 8 && !ms_conn_is_ready(w->client); i++) {
        run(w);
        client_read(w);
    }
    assert(ms_conn_is_ready(w->client));
}

static void send_all(struct world *w, const uint8_t *data, size_t size, size_t step)
{
    if (step < 47)
        step = 47;
    while (size) {
        size_t n = size < step ? size : step;
        ssize_t sent =
            send(ms_conn_fd(w->client), data, n, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (sent < 0 && errno != EAGAIN)
            return;
        if (sent > 0) {
            data += sent;
            size -= (size_t)sent;
        }
        run(w);
        client_read(w);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct ms_server_ops ops = {.on_request = on_request,
                                             .on_cancel = on_cancel};
    static struct world w;
    struct feed f;
    size_t half;

    feed_init(&f, data, size);
    w = (struct world){.loop = ms_loop_create(), .how = size ? data[0] : 0};
    w.server = ms_server_create(&(struct ms_server_options){.loop = w.loop,
                                                            .secret = secret,
                                                            .identity = 7,
                                                            .has_engine = w.how & 8,
                                                            .ops = &ops,
                                                            .arg = &w});
    w.listener.server = w.server;
    ms_list_init(&w.listener.unproven);
    ms_server_engine_is_async(w.server);
    open_client(&w);
    half = f.size / 2;
    send_all(&w, f.data, half, f.step);
    if (w.how & 64) { /* it breaks, and comes back */
        ms_conn_destroy(w.client);
        run(&w);
        open_client(&w);
    }
    if (f.size)
        send_all(&w, f.data + half, f.size - half, f.step);
    run(&w);
    if (w.how & 128)
        ms_server_destroy(w.server);
    while (w.kept_count)
        answer(w.kept[--w.kept_count]);
    if (!(w.how & 128)) {
        run(&w);
        ms_server_destroy(w.server);
    }
    ms_conn_destroy(w.client);
    ms_loop_destroy(w.loop);
    return 0;
}
