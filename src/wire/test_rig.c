/* test_rig.c - a server with an engine and a client, in one process, over real
 * sockets */
#include "wire/test_rig.h"
#include "base/name.h"
#include "io/sock.h"
#include "io/tcp.h"
#include "wire/client/client_impl.h"
#include "wire/server/server_impl.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

static void *run_loop(void *arg)
{
    ms_loop_run(arg);
    return NULL;
}

static void *run_engine(void *arg)
{
    struct rig *rig = arg;

    for (;;) {
        struct ms_request *r;
        int rc = ms_server_engine_next(rig->server, MS_NEVER, &r);

        if (rc == -ESHUTDOWN)
            return NULL;
        if (rc < 0)
            continue;
        rig_count(rig, &rig->executed);
        rig->engine(rig, r);
    }
}

void rig_reply(struct ms_request *r, const char *text)
{
    struct iovec iov = {(void *)(uintptr_t)text, strlen(text)};

    ms_request_reply(r, MS_CODEC_BYTES, &iov, 1);
}

static void reply_body(struct ms_request *r)
{
    struct iovec iov = {r->body, r->len};

    ms_request_reply(r, r->codec, &iov, 1);
}

static void stream(struct ms_request *r)
{
    char text[32] = {0};
    int count;

    assert_true(r->len < sizeof text);
    memcpy(text, r->body, r->len);
    count = atoi(text);
    ms_request_begin_stream(r);
    for (int i = 0; i < count; i++) {
        struct iovec iov = {text, (size_t)snprintf(text, sizeof text, "%d", i)};
        int rc;

        while ((rc = ms_request_item(r, MS_CODEC_BYTES, &iov, 1)) == -EAGAIN)
            ms_request_item_wait(r, ms_now_ns() + RIG_DEADLINE_NS);
        if (rc < 0)
            break;
    }
    rig_reply(r, "end");
}

static void run_method(struct rig *rig, struct ms_request *r)
{
    const char *name = r->method ? r->method->name : "echo";

    if (strcmp(name, "hold") == 0) {
        unsigned ticket = atomic_load(&rig->held) + 1;

        rig_count(rig, &rig->held);
        rig_wait_count(rig, &rig->gate, ticket);
    }
    if (strcmp(name, "stream") == 0)
        stream(r);
    else
        reply_body(r);
}

static void answer_on_loop(void *arg, struct ms_request *r)
{
    (void)arg;
    rig_reply(r, "loop");
}

static void on_cancel(void *arg, struct ms_request *r)
{
    struct rig *rig = arg;

    assert_true(ms_request_is_cancelled(r));
    rig_count(rig, &rig->cancelled);
}

static void ask_exit(void *arg, uint64_t uid)
{
    struct rig *rig = arg;

    (void)uid;
    rig_count(rig, &rig->asked);
}

static void on_suspect(void *arg, uint64_t uid, bool is_suspect)
{
    struct rig *rig = arg;

    assert_int_equal(uid, RIG_UID);
    rig_count(rig, is_suspect ? &rig->suspected : &rig->cleared);
}

static void make_folder(struct rig *rig)
{
    int fd;

    snprintf(rig->folder, sizeof rig->folder, "/tmp/muster-rig-XXXXXX");
    assert_non_null(mkdtemp(rig->folder));
    snprintf(rig->path, sizeof rig->path, "%s/s", rig->folder);
    snprintf(rig->spin_path, sizeof rig->spin_path, "%s/spin", rig->folder);
    fd = open(rig->spin_path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 4096), 0);
    close(fd);
}

static void listen_tcp(struct rig *rig)
{
    int fd = ms_tcp_listen(rig->tcp, &rig->port, NULL);

    assert_true(fd >= 0);
    assert_int_equal(ms_server_listen(rig->server, fd), 0);
    snprintf(rig->tcp_address,
             sizeof rig->tcp_address,
             strchr(rig->tcp, ':') ? "[%s]:%u" : "%s:%u",
             rig->tcp,
             rig->port);
}

void rig_start_server(struct rig *rig)
{
    int fd;

    unlink(rig->path); /* of the server before */
    fd = ms_unix_listen(rig->path, SOCK_STREAM, NULL);
    rig->ops.on_request = rig->on_request ? rig->on_request : answer_on_loop;
    rig->ops.on_cancel = on_cancel;
    assert_true(fd >= 0);
    rig->server_loop = ms_loop_create();
    rig->server = ms_server_create(&(struct ms_server_options){
        .loop = rig->server_loop,
        .secret = rig->secret,
        .identity = RIG_UID,
        .has_engine = !rig->no_engine,
        .ops = &rig->ops,
        .arg = rig,
        .handshake_ns = rig->handshake_ns,
        .grace_ns = rig->server_grace_ns,
        .tls = rig->tls,
    });
    assert_non_null(rig->server);
    assert_int_equal(ms_server_listen(rig->server, fd), 0);
    if (rig->tcp)
        listen_tcp(rig);
    assert_int_equal(
        pthread_create(&rig->server_thread, NULL, run_loop, rig->server_loop), 0);
    if (!rig->no_engine)
        assert_int_equal(pthread_create(&rig->engine_thread, NULL, run_engine, rig), 0);
}

static void start_client(struct rig *rig)
{
    rig->client_loop = ms_loop_create();
    if (rig->spin)
        rig->leases = ms_spin_open(rig->spin_path);
    rig->client = ms_client_create(&(struct ms_client_options){
        .loop = rig->client_loop,
        .secret = rig->secret,
        .spin = rig->leases,
        .ask_exit = ask_exit,
        .on_suspect = on_suspect,
        .on_stored = rig->on_stored,
        .on_stored_drop = rig->on_stored_drop,
        .tls = rig->tls,
        .arg = rig,
        .exit_wait_ns = rig->exit_wait_ns,
        .grace_ns = rig->client_grace_ns,
    });
    assert_non_null(rig->client);
    if (!rig->address)
        rig->address = rig->tcp ? rig->tcp_address : rig->path;
    rig->peer = ms_peer_create(rig->client, rig->address, RIG_UID, "rig/0@here", NULL);
    assert_non_null(rig->peer);
    assert_int_equal(
        pthread_create(&rig->client_thread, NULL, run_loop, rig->client_loop), 0);
}

void rig_start(struct rig *rig)
{
    pthread_condattr_t attr;

    pthread_mutex_init(&rig->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&rig->changed, &attr);
    if (!rig->engine)
        rig->engine = run_method;
    if (!rig->has_secret)
        assert_int_equal(ms_random_bytes(rig->secret, sizeof rig->secret), 0);
    make_folder(rig);
    rig_start_server(rig);
    if (!rig->no_client)
        start_client(rig);
}

static void stop_loop(struct ms_loop *loop, pthread_t thread)
{
    ms_loop_stop(loop);
    pthread_join(thread, NULL);
}

void rig_stop_server(struct rig *rig)
{
    if (!rig->server)
        return;
    if (!rig->no_engine) {
        ms_server_engine_stop(rig->server);
        pthread_join(rig->engine_thread, NULL);
    }
    stop_loop(rig->server_loop, rig->server_thread);
    ms_server_destroy(rig->server);
    ms_loop_destroy(rig->server_loop);
    rig->server = NULL;
    unlink(rig->path);
}

void rig_stop(struct rig *rig)
{
    atomic_store(&rig->gate, UINT_MAX / 2); /* nobody is held any more */
    rig_open(rig, 1);
    if (rig->client) {
        stop_loop(rig->client_loop, rig->client_thread);
        ms_client_destroy(rig->client, "the test is over");
        ms_peer_unref(rig->peer);
        ms_loop_destroy(rig->client_loop);
        ms_spin_close(rig->leases);
        rig->client = NULL;
    }
    rig_stop_server(rig);
    unlink(rig->path); /* of a server that was destroyed otherwise */
    unlink(rig->spin_path);
    rmdir(rig->folder);
}

static int wait_changed(struct rig *rig, int64_t until_ns)
{
    struct timespec at = {until_ns / MS_NS_PER_S, until_ns % MS_NS_PER_S};

    return pthread_cond_timedwait(&rig->changed, &rig->lock, &at);
}

void rig_wait_count(struct rig *rig, const _Atomic unsigned *count, unsigned least)
{
    int64_t until_ns = ms_now_ns() + RIG_DEADLINE_NS;
    int rc = 0;

    pthread_mutex_lock(&rig->lock);
    while (rc == 0 && atomic_load(count) < least)
        rc = wait_changed(rig, until_ns);
    pthread_mutex_unlock(&rig->lock);
    assert_int_equal(rc, 0);
}

void rig_count(struct rig *rig, _Atomic unsigned *count)
{
    pthread_mutex_lock(&rig->lock);
    atomic_fetch_add(count, 1);
    pthread_cond_broadcast(&rig->changed);
    pthread_mutex_unlock(&rig->lock);
}

void rig_open(struct rig *rig, unsigned more)
{
    while (more--)
        rig_count(rig, &rig->gate);
}

struct errand {
    struct rig *rig;
    void (*fn)(void *);
    void *arg;
    _Atomic unsigned done;
};

static void run_errand(void *arg)
{
    struct errand *e = arg;

    e->fn(e->arg);
    rig_count(e->rig, &e->done);
}

void rig_on_loop(struct rig *rig, struct ms_loop *loop, void (*fn)(void *), void *arg)
{
    struct errand e = {.rig = rig, .fn = fn, .arg = arg};

    assert_int_equal(ms_loop_post(loop, run_errand, &e), 0);
    rig_wait_count(rig, &e.done, 1);
}

void rig_break(struct rig *rig)
{
    struct ms_peer *p = rig->peer;

    pthread_mutex_lock(&p->lock);
    if (p->conn)
        shutdown(ms_conn_fd(p->conn), SHUT_RDWR);
    pthread_mutex_unlock(&p->lock);
}

static uint64_t conns_of(struct ms_server *s)
{
    uint64_t conns = 0;

    pthread_mutex_lock(&s->lock);
    ms_list_each (l, &s->ledgers, struct ms_ledger, link)
        conns += l->conns;
    pthread_mutex_unlock(&s->lock);
    return conns;
}

void rig_wait_conns(struct rig *rig, unsigned least)
{
    int64_t until_ns = ms_now_ns() + RIG_DEADLINE_NS;

    while (conns_of(rig->server) < least) {
        assert_true(ms_now_ns() < until_ns);
        sched_yield();
    }
}

struct ms_call *rig_call_spec(struct rig *rig,
                              const char *method,
                              const void *data,
                              size_t len,
                              struct ms_call_spec *spec)
{
    int op = ms_peer_method(rig->peer, "e", method);
    struct iovec iov = {(void *)(uintptr_t)data, len};
    struct ms_call *c;

    assert_true(op >= MS_OP_METHOD);
    spec->op = (uint16_t)op;
    if (!spec->deadline_ns)
        spec->deadline_ns = ms_now_ns() + 2 * RIG_DEADLINE_NS;
    spec->iov = &iov;
    spec->count = 1;
    c = ms_peer_call(rig->peer, spec);
    spec->iov = NULL; /* it was ours */
    spec->count = 0;
    assert_non_null(c);
    return c;
}

struct ms_call *rig_call(struct rig *rig, const char *method, const char *text)
{
    struct ms_call_spec spec = {0};

    return rig_call_spec(rig, method, text, strlen(text), &spec);
}

void rig_wait(struct ms_call *c)
{
    int64_t until_ns = ms_now_ns() + RIG_DEADLINE_NS;
    int rc;

    do
        rc = ms_call_wait(c, until_ns);
    while (rc == -EINTR);
    assert_int_equal(rc, 0);
}

static void print_failure(const struct ms_outcome *o)
{
    Muster__Failure *f = muster__failure__unpack(NULL, o->len, o->body);

    print_error("failure %d: %s\n", f ? (int)f->kind : -1, f ? f->message : "?");
    muster__failure__free_unpacked(f, NULL);
}

void rig_expect(struct ms_call *c, const char *text)
{
    struct ms_outcome o;

    rig_wait(c);
    ms_call_outcome(c, &o);
    if (o.kind != MS_KIND_REPLY)
        print_failure(&o);
    assert_int_equal(o.kind, MS_KIND_REPLY);
    assert_int_equal(o.len, strlen(text));
    assert_memory_equal(o.body, text, o.len);
    ms_call_unref(c);
}

void rig_expect_failure(struct ms_call *c, Muster__Failure__Kind kind)
{
    rig_expect_failure_text(c, kind, "");
}

void rig_expect_failure_text(struct ms_call *c,
                             Muster__Failure__Kind kind,
                             const char *text)
{
    struct ms_outcome o;
    Muster__Failure *f;

    rig_wait(c);
    ms_call_outcome(c, &o);
    assert_int_equal(o.kind, MS_KIND_ERROR);
    f = muster__failure__unpack(NULL, o.len, o.body);
    assert_non_null(f);
    if (f->kind != kind || !strstr(f->message, text))
        print_error("failure %d: %s\n", f->kind, f->message);
    assert_int_equal(f->kind, kind);
    assert_non_null(strstr(f->message, text));
    muster__failure__free_unpacked(f, NULL);
    ms_call_unref(c);
}

unsigned rig_open_fds(void)
{
    DIR *d = opendir("/proc/self/fd");
    unsigned n = 0;

    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}
