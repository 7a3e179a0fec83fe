/* Calls over TCP and TLS, through a network that breaks. */
#include "io/sock.h"
#include "io/tcp.h"
#include "wire/client/client_impl.h"
#include "wire/test_proxy.h"
#include "wire/test_rig.h"

#include <stdio.h>
#include <unistd.h>

enum { BIG = 24 << 20 };

static void calls_work(const char *host, enum ms_tls_mode tls)
{
    struct rig rig = {.tcp = host, .tls = tls};

    rig_start(&rig);
    for (int i = 0; i < 50; i++) {
        char text[16];

        snprintf(text, sizeof text, "%d", i);
        rig_expect(rig_call(&rig, "echo", text), text);
    }
    rig_expect(rig_call(&rig, "stream", "0"), "end");
    assert_int_equal(atomic_load(&rig.asked), 0);
    rig_stop(&rig);
}

static bool has_ipv6(void)
{
    uint16_t port = 0;
    int fd = ms_tcp_listen("::1", &port, NULL);

    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static void test_calls(void **state)
{
    (void)state;
    calls_work("127.0.0.1", MS_TLS_AUTO);
    calls_work("127.0.0.1", MS_TLS_ON);
    if (has_ipv6()) {
        calls_work("::1", MS_TLS_OFF);
        calls_work("::1", MS_TLS_ON);
    }
}

static void test_stream(void **state)
{
    struct rig rig = {.tcp = "127.0.0.1", .tls = MS_TLS_ON};
    struct ms_call_spec spec = {.stream = true};
    struct ms_call *c;
    int seen = 0;

    (void)state;
    rig_start(&rig);
    c = rig_call_spec(&rig, "stream", "1000", 4, &spec);
    while (!ms_call_is_done(c) || ms_call_has_items(c)) {
        uint8_t codec, *body;
        size_t len;

        if (!ms_call_take_item(c, &codec, &body, &len, NULL)) {
            rig_wait(c);
            continue;
        }
        seen++;
        free(body);
    }
    assert_int_equal(seen, 1000);
    ms_call_unref(c);
    rig_stop(&rig);
}

/* A big payload both ways over TLS; small calls of others pass it. */
static void test_big_and_small(void **state)
{
    struct rig rig = {.tcp = "127.0.0.1", .tls = MS_TLS_ON};
    uint8_t *data = malloc(BIG);
    struct ms_call_spec spec = {0};
    struct ms_outcome o;
    struct ms_call *c;

    (void)state;
    for (size_t i = 0; i < BIG; i++)
        data[i] = (uint8_t)(i * 7 + i / 251);
    rig_start(&rig);
    rig_expect(rig_call(&rig, "echo", "x"), "x");
    c = rig_call_spec(&rig, "echo", data, BIG, &spec);
    for (int i = 0; i < 20; i++)
        rig_expect(rig_call(&rig, "echo", "small"), "small");
    rig_wait(c);
    ms_call_outcome(c, &o);
    assert_int_equal(o.kind, MS_KIND_REPLY);
    assert_int_equal(o.len, BIG);
    assert_memory_equal(o.body, data, BIG);
    ms_call_unref(c);
    free(data);
    rig_stop(&rig);
}

/* ---- several threads on one TLS connection ------------------------------------------- */

enum { THREADS = 4, ROUNDS = 60 };

struct caller {
    struct rig *rig;
    pthread_t thread;
    unsigned seed;
};

static void *call_much(void *arg)
{
    struct caller *who = arg;
    uint8_t *data = calloc(1, 200 << 10);
    int op = ms_peer_method(who->rig->peer, "e", "echo");

    for (unsigned i = 0; i < ROUNDS; i++) {
        size_t len = (i * 7919 + who->seed * 104729) % (200 << 10);
        struct iovec iov = {data, len};
        struct ms_call_spec spec = {.op = (uint16_t)op,
                                    .deadline_ns = MS_NEVER,
                                    .waits = i % 2,
                                    .iov = &iov,
                                    .count = 1};
        struct ms_call *c;
        struct ms_outcome o;

        memset(data, (int)(i + who->seed), len);
        c = ms_peer_call(who->rig->peer, &spec);
        rig_wait(c);
        ms_call_outcome(c, &o);
        assert_int_equal(o.kind, MS_KIND_REPLY);
        assert_int_equal(o.len, len);
        assert_memory_equal(o.body, data, len);
        ms_call_unref(c);
    }
    free(data);
    return NULL;
}

static void test_many_threads(void **state)
{
    struct rig rig = {.tcp = "127.0.0.1", .tls = MS_TLS_ON, .spin = true};
    struct caller callers[THREADS];

    (void)state;
    rig_start(&rig);
    for (unsigned i = 0; i < THREADS; i++) {
        callers[i] = (struct caller){.rig = &rig, .seed = i};
        pthread_create(&callers[i].thread, NULL, call_much, &callers[i]);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(callers[i].thread, NULL);
    assert_int_equal(atomic_load(&rig.executed), THREADS * ROUNDS);
    rig_stop(&rig);
}

/* ---- who may not ---------------------------------------------------------------------- */

static void wrong_secret(enum ms_tls_mode tls)
{
    struct rig rig = {.tcp = "127.0.0.1", .tls = tls};
    uint8_t right[32];

    rig_start(&rig);
    memcpy(right, rig.client->net.secret, sizeof right);
    memset(rig.client->net.secret, 7, sizeof right);
    rig_expect_failure_text(
        rig_call(&rig, "echo", "x"), MUSTER__FAILURE__KIND__UNREACHABLE, "secret");
    assert_int_equal(atomic_load(&rig.executed), 0);
    rig_stop(&rig);
}

static void test_wrong_secret(void **state)
{
    (void)state;
    wrong_secret(MS_TLS_OFF);
    wrong_secret(MS_TLS_ON);
}

static void test_plain_where_tls_is_due(void **state)
{
    struct rig rig = {.tcp = "127.0.0.1", .tls = MS_TLS_ON};

    (void)state;
    rig_start(&rig);
    rig.client->net.mode = MS_TLS_OFF;
    rig_expect_failure_text(
        rig_call(&rig, "echo", "x"), MUSTER__FAILURE__KIND__UNREACHABLE, "TLS");
    assert_int_equal(atomic_load(&rig.executed), 0);
    rig_stop(&rig);
}

/* ---- addresses ------------------------------------------------------------------------ */

static void test_the_address_that_works(void **state)
{
    struct rig rig = {.tcp = "127.0.0.1", .tls = MS_TLS_ON};
    char list[256];
    uint16_t port = 0;
    int held = ms_port_hold("127.0.0.1", &port, NULL);
    struct ms_peer *peer, *first;

    (void)state;
    rig_start(&rig);
    snprintf(list,
             sizeof list,
             "unix:0123456789abcdef:%s,/nowhere,127.0.0.1:%u,localhost:%u",
             rig.path,
             port,
             rig.port);
    peer = ms_peer_create(rig.client, list, RIG_UID, "listed", NULL);
    assert_non_null(peer);
    first = rig.peer;
    rig.peer = peer;
    rig_expect(rig_call(&rig, "echo", "x"), "x");
    assert_int_equal(peer->dial.first, 3); /* at a reconnect this one comes first */
    rig_break(&rig);
    rig_expect(rig_call(&rig, "echo", "y"), "y");
    assert_int_equal(atomic_load(&rig.asked), 0);
    rig.peer = first;
    ms_peer_unref(peer);
    close(held);
    rig_stop(&rig);
}

static void test_nobody_listens(void **state)
{
    struct rig rig = {.tcp = "127.0.0.1", .exit_wait_ns = 50 * MS_NS_PER_MS};
    uint16_t port = 0;
    int held = ms_port_hold("127.0.0.1", &port, NULL);
    char address[64];

    (void)state;
    snprintf(address, sizeof address, "127.0.0.1:%u", port);
    rig.address = address;
    rig_start(&rig);
    rig_expect_failure(rig_call(&rig, "echo", "x"), MUSTER__FAILURE__KIND__UNREACHABLE);
    assert_int_equal(atomic_load(&rig.asked), 1);
    close(held);
    rig_stop(&rig);
}

static void test_a_bad_list(void **state)
{
    struct rig rig = {0};
    struct ms_error err = {0};

    (void)state;
    rig_start(&rig);
    assert_null(ms_peer_create(rig.client, "what is this", 1, "x", &err));
    assert_int_equal(err.code, -EINVAL);
    rig_stop(&rig);
}

/* ---- a network that breaks ------------------------------------------------------------- */

/* Reset again and again under calls: none is lost, none runs twice. */
static void test_resets(void **state)
{
    enum { CALLS = 150 };
    struct rig rig = {.tls = MS_TLS_ON};
    struct ms_call *calls[CALLS];
    struct proxy proxy;

    (void)state;
    proxy_rig_start(&proxy, &rig);
    for (int i = 0; i < CALLS; i++) {
        calls[i] = rig_call(&rig, "echo", "x");
        if (i % 10 == 5) {
            rig_wait(calls[i - 5]); /* so that there is something to reset */
            proxy_reset(&proxy);
        }
    }
    for (int i = 0; i < CALLS; i++)
        rig_expect(calls[i], "x");
    assert_int_equal(atomic_load(&rig.executed), CALLS);
    assert_true(proxy.accepted > 1);
    rig_stop(&rig);
    proxy_stop(&proxy);
}

/* A call that runs when the link is reset is attached again, and answered once. */
static void test_reset_under_a_running_call(void **state)
{
    struct rig rig = {.tls = MS_TLS_ON};
    struct ms_call *c;
    struct proxy proxy;

    (void)state;
    proxy_rig_start(&proxy, &rig);
    c = rig_call(&rig, "hold", "kept");
    rig_wait_count(&rig, &rig.held, 1);
    proxy_reset(&proxy);
    rig_wait_conns(&rig, 2);
    rig_open(&rig, 1);
    rig_expect(c, "kept");
    assert_int_equal(atomic_load(&rig.executed), 1);
    rig_stop(&rig);
    proxy_stop(&proxy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_big_and_small),
        cmocka_unit_test(test_many_threads),
        cmocka_unit_test(test_wrong_secret),
        cmocka_unit_test(test_plain_where_tls_is_due),
        cmocka_unit_test(test_the_address_that_works),
        cmocka_unit_test(test_nobody_listens),
        cmocka_unit_test(test_a_bad_list),
        cmocka_unit_test(test_resets),
        cmocka_unit_test(test_reset_under_a_running_call),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
