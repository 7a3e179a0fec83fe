/* test_rig.c - a worker's HTTP without a worker, for tests */
#include "worker/http/test_rig.h"
#include "io/sock.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static const struct ms_server_ops server_ops = {0};

static int alloc_ports(void *arg, uint32_t count, uint32_t *ports, struct ms_error *err)
{
    (void)arg;
    if (count > 10)
        return ms_error_set(err, -EMFILE, "no more ports");
    for (uint32_t i = 0; i < count; i++)
        ports[i] = 5000 + i;
    return 0;
}

static json_t *engines(void *arg)
{
    struct rig *rig = arg;

    return atomic_load(&rig->has_engines) ? json_pack("[s, s]", "actor/0", "ref\"0")
                                          : json_array();
}

static int
tell_agent(void *arg, Muster__WorkerToAgent__BodyCase body_case, const void *body)
{
    struct rig *rig = arg;
    Muster__WorkerToAgent m = MUSTER__WORKER_TO_AGENT__INIT;
    uint8_t packed[4096];
    size_t len;

    m.body_case = body_case;
    m.ask = (Muster__AskDeath *)(uintptr_t)body;
    len = muster__worker_to_agent__pack(&m, packed);
    return send(rig->to_agent[0], packed, len, 0) == (ssize_t)len ? 0 : -EPIPE;
}

static void *run_loop(void *arg)
{
    ms_loop_run(arg);
    return NULL;
}

void rig_start(struct rig *rig, bool is_open)
{
    *rig = (struct rig){.fd = -1, .loop = ms_loop_create()};
    muster__worker_boot__init(&rig->boot);
    memset(rig->secret, 7, sizeof rig->secret);
    rig->boot.uid = 77;
    rig->boot.secret = (ProtobufCBinaryData){sizeof rig->secret, rig->secret};
    rig->boot.http_open = is_open;
    ms_http_token_make(&rig->token, rig->secret, sizeof rig->secret);
    assert_int_equal(
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, rig->to_agent), 0);
    rig->server = ms_server_create(&(struct ms_server_options){.loop = rig->loop,
                                                               .secret = rig->secret,
                                                               .has_engine = true,
                                                               .ops = &server_ops,
                                                               .arg = rig});
    rig->http = ms_worker_http_create(
        &(struct ms_worker_http_options){.loop = rig->loop,
                                         .server = rig->server,
                                         .boot = &rig->boot,
                                         .engines = engines,
                                         .alloc_ports = alloc_ports,
                                         .tell_agent = tell_agent,
                                         .arg = rig});
    assert_non_null(rig->http);
    pthread_create(&rig->thread, NULL, run_loop, rig->loop);
}

void rig_stop(struct rig *rig)
{
    ms_loop_stop(rig->loop);
    pthread_join(rig->thread, NULL);
    ms_server_destroy(rig->server);
    ms_worker_http_destroy(rig->http);
    ms_loop_destroy(rig->loop);
    ms_buf_finish(&rig->got);
    close(rig->to_agent[0]);
    close(rig->to_agent[1]);
    if (rig->fd >= 0)
        close(rig->fd);
}

struct task {
    struct rig *rig;
    void (*fn)(struct rig *rig, void *arg);
    void *arg;
    int done[2];
};

static void task_run(void *arg)
{
    struct task *t = arg;

    t->fn(t->rig, t->arg);
    assert_int_equal(write(t->done[1], "x", 1), 1);
}

void on_loop(struct rig *rig, void (*fn)(struct rig *, void *), void *arg)
{
    struct task t = {.rig = rig, .fn = fn, .arg = arg};
    char byte;

    assert_int_equal(pipe(t.done), 0);
    ms_loop_post(rig->loop, task_run, &t);
    assert_int_equal(read(t.done[0], &byte, 1), 1);
    close(t.done[0]);
    close(t.done[1]);
}

static void serve(struct rig *rig, void *arg)
{
    ms_worker_http_serve(rig->http, *(int *)arg);
}

int rig_connect_one(struct rig *rig)
{
    int fds[2];

    assert_int_equal(ms_unix_pair(SOCK_STREAM, fds), 0);
    on_loop(rig, serve, &fds[0]);
    return fds[1];
}

void rig_connect(struct rig *rig)
{
    if (rig->fd >= 0)
        close(rig->fd);
    rig->fd = rig_connect_one(rig);
}

void rig_send(struct rig *rig, const char *what, const char *headers, const char *body)
{
    struct ms_buf b;

    ms_buf_init(&b);
    ms_buf_printf(&b,
                  "%s HTTP/1.1\r\nHost: a\r\n%sContent-Length: %zu\r\n\r\n%s",
                  what,
                  headers,
                  strlen(body),
                  body);
    assert_int_equal(send(rig->fd, b.data, b.len, MSG_NOSIGNAL), b.len);
    ms_buf_finish(&b);
}

void rig_post(struct rig *rig, const char *path, const char *body)
{
    char what[64], headers[256];

    snprintf(what, sizeof what, "POST %s", path);
    snprintf(
        headers, sizeof headers, JSON "Authorization: Bearer %s\r\n", rig->token.text);
    rig_send(rig, what, headers, body);
}

void rig_expect(struct rig *rig, const char *status, const char *part)
{
    const char *got = NULL, *end = NULL;
    char data[4096];

    rig->got.len = 0;
    while (!end || !strstr(end, "}")) {
        struct pollfd p = {.fd = rig->fd, .events = POLLIN};
        ssize_t n;

        assert_int_equal(poll(&p, 1, DEADLINE_MS), 1);
        n = recv(rig->fd, data, sizeof data, MSG_DONTWAIT);
        assert_true(n > 0);
        ms_buf_append(&rig->got, data, (size_t)n);
        got = ms_buf_str(&rig->got);
        end = strstr(got, "\r\n\r\n");
    }
    if (strncmp(got, "HTTP/1.1 ", 9) != 0 || strncmp(got + 9, status, 3) != 0 ||
        !strstr(end, part))
        fail_msg("instead of %s %s: %s", status, part, got);
}
