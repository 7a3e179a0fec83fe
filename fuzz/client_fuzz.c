/* A whole client, and the bytes of a worker that has proven itself: open calls complete, or
 * stay open until their deadline, and nothing else happens. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "feed.h"
#include "io/sock.h"
#include "wire/client/client.h"
#include "wire/conn.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

enum { CALLS = 5 };

static const uint8_t secret[MS_SECRET_SIZE] = {1}, nonce[32] = {2};
static char path[64];
static int listening = -1;

static void remove_path(void)
{
    char *slash = strrchr(path, '/');

    unlink(path);
    *slash = 0;
    rmdir(path);
}

static void listen_once(void)
{
    if (listening >= 0)
        return;
    snprintf(path, sizeof path, "/tmp/muster-fuzz-XXXXXX");
    if (!mkdtemp(path))
        abort();
    strcat(path, "/s");
    listening = ms_unix_listen(path, SOCK_STREAM, NULL);
    atexit(remove_path);
    assert(listening >= 0);
}

static int ignore(void *arg, struct ms_message *m)
{
    (void)arg;
    (void)m;
    return 0;
}

static void worker_read(struct ms_conn *worker)
{
    static const struct ms_conn_sink sink = {.on_message = ignore};

    while (ms_conn_read(worker, &sink, NULL, NULL) > 0)
        ;
}

/* Accept the client and let it prove itself. */
static struct ms_conn *accept_worker(struct ms_loop *loop)
{
    struct ms_handshake h;
    struct ms_conn *worker;
    int fd = ms_unix_accept(listening);

    assert(fd >= 0);
    ms_handshake_init_server(&h, secret, nonce, 7);
    worker = ms_conn_create(ms_transport_unix(fd), &h);
    for (int i = 0; i < 8 && !ms_conn_is_ready(worker); i++) {
        worker_read(worker);
        ms_loop_run_once(loop, false);
    }
    assert(ms_conn_is_ready(worker));
    return worker;
}

static void
send_all(struct ms_conn *worker, struct ms_loop *loop, struct feed *f, size_t step)
{
    while (f->size) {
        size_t n = f->size < step ? f->size : step;
        ssize_t sent =
            send(ms_conn_fd(worker), f->data, n, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (sent < 0 && errno != EAGAIN)
            return;
        if (sent > 0) {
            f->data += sent;
            f->size -= (size_t)sent;
        }
        ms_loop_run_once(loop, false);
        worker_read(worker);
    }
}

static void take_all(struct ms_call *c)
{
    struct ms_outcome o;
    uint8_t codec, *body;
    size_t len;

    while (ms_call_take_item(c, &codec, &body, &len, NULL))
        free(body);
    if (!ms_call_is_done(c))
        return;
    ms_call_outcome(c, &o);
    assert(o.kind == MS_KIND_REPLY || o.kind == MS_KIND_ERROR);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ms_loop *loop = ms_loop_create();
    struct ms_client *client =
        ms_client_create(&(struct ms_client_options){.loop = loop, .secret = secret});
    struct ms_call *calls[CALLS];
    struct ms_peer *peer;
    struct ms_conn *worker;
    struct feed f;
    int fd;

    listen_once();
    feed_init(&f, data, size);
    peer = ms_peer_create(client, path, 7, "fuzz", NULL);
    for (int i = 0; i < CALLS; i++)
        calls[i] = ms_peer_call(peer,
                                &(struct ms_call_spec){.op = MS_OP_HEALTH,
                                                       .stream = i % 2,
                                                       .deadline_ns = MS_NEVER});
    worker = accept_worker(loop);
    if (size && data[0] & 8)
        ms_call_cancel(calls[1]);
    send_all(worker, loop, &f, f.step < 47 ? 47 : f.step);
    for (int i = 0; i < 4; i++)
        ms_loop_run_once(loop, false);
    for (int i = 0; i < CALLS; i++)
        take_all(calls[i]);
    ms_client_destroy(client, "over");
    for (int i = 0; i < CALLS; i++) {
        assert(ms_call_is_done(calls[i]));
        ms_call_unref(calls[i]);
    }
    ms_peer_unref(peer);
    ms_conn_destroy(worker);
    ms_loop_destroy(loop);
    while ((fd = ms_unix_accept(listening)) >= 0)
        close(fd); /* it had come back */
    return 0;
}
