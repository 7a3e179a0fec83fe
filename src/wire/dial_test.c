/* dial_test.c - links that are dialled: where to, with what secret, how long */
#include "base/cleanup.h"
#include "io/sock.h"
#include "io/tcp.h"
#include "wire/link/test_site.h"

static void check(const char *host, enum ms_tls_mode tls)
{
    struct site s;
    struct site_end e = {0};
    char peer[80];

    site_start(&s, host, tls);
    site_dial(&s, &e, tls);
    site_run_until(&s, &e.opened, 1);
    assert_true(ms_link_is_open(e.link));
    ms_link_peer(e.link, peer, sizeof peer);
    assert_string_equal(peer, s.address);
    site_talk(&s, &e);
    site_end_finish(&e);
    site_run_until(&s, &s.there.closed, 1);
    assert_true(ms_link_has_ended(&s.there.why));
    assert_int_equal(s.refused, 0);
    site_stop(&s);
}

static void test_plain(void **state)
{
    (void)state;
    check("127.0.0.1", MS_TLS_OFF);
    check("127.0.0.1", MS_TLS_AUTO);
}

static void test_tls(void **state)
{
    (void)state;
    check("127.0.0.1", MS_TLS_ON);
}

/* Whoever gives up a link to dial another does not end. */
static void abandon(enum ms_tls_mode tls)
{
    struct site s;
    struct site_end e = {0};

    site_start(&s, "127.0.0.1", tls);
    site_dial(&s, &e, tls);
    site_run_until(&s, &e.opened, 1);
    site_talk(&s, &e);
    ms_link_abandon(MS_TAKE(e.link));
    site_run_until(&s, &s.there.closed, 1);
    assert_false(ms_link_has_ended(&s.there.why));
    site_end_finish(&e);
    site_stop(&s);
}

static void test_an_abandoned_link_is_no_end(void **state)
{
    (void)state;
    abandon(MS_TLS_OFF);
    abandon(MS_TLS_ON);
}

static void test_ipv6(void **state)
{
    uint16_t port = 0;
    int fd = ms_tcp_listen("::1", &port, NULL);

    (void)state;
    if (fd == -EADDRNOTAVAIL || fd == -EAFNOSUPPORT) {
        print_message("# skipped: there is no IPv6 here\n");
        skip();
    }
    close(fd);
    check("::1", MS_TLS_ON);
    check("::1", MS_TLS_OFF);
}

/* A server takes TLS whatever its mode. */
static void test_tls_where_plain_would_do(void **state)
{
    struct site s;
    struct site_end e = {0};

    (void)state;
    site_start(&s, "127.0.0.1", MS_TLS_OFF);
    site_dial(&s, &e, MS_TLS_ON);
    site_run_until(&s, &e.opened, 1);
    site_talk(&s, &e);
    site_end_finish(&e);
    site_stop(&s);
}

static void test_plain_where_tls_is_due(void **state)
{
    struct site s;
    struct site_end e = {0};

    (void)state;
    site_start(&s, "127.0.0.1", MS_TLS_ON);
    site_dial(&s, &e, MS_TLS_OFF);
    site_run_until(&s, &e.closed, 1);
    assert_int_equal(e.opened, 0);
    assert_int_equal(e.why.code, -ENOKEY);
    assert_non_null(strstr(e.why.text, "wants TLS"));
    assert_int_equal(s.links, 0);
    assert_int_equal(s.refused, 1);
    assert_int_equal(s.refusal.code, -ENOKEY);
    site_end_finish(&e);
    site_stop(&s);
}

static void refuse_wrong_secret(enum ms_tls_mode tls)
{
    static const uint8_t wrong[32] = "not the secret";
    struct site s;
    struct site_end e = {0};

    site_start(&s, "127.0.0.1", tls);
    site_dial_with(&s, &e, s.address, tls, wrong, SITE_DEADLINE_NS);
    site_run_until(&s, &e.closed, 1);
    assert_int_equal(e.opened, 0);
    assert_int_equal(e.why.code, -EACCES);
    assert_non_null(strstr(e.why.text, "secret"));
    assert_false(ms_link_has_ended(&e.why));
    assert_int_equal(s.links, 0);
    site_end_finish(&e);
    site_stop(&s);
}

static void test_wrong_secret(void **state)
{
    (void)state;
    refuse_wrong_secret(MS_TLS_OFF);
    refuse_wrong_secret(MS_TLS_ON);
}

static void test_nobody_listens(void **state)
{
    struct site s;
    struct site_end e = {0};
    char address[64];
    uint16_t port = 0;
    int fd = ms_port_hold("127.0.0.1", &port, NULL);

    (void)state;
    assert_true(fd >= 0);
    site_start(&s, NULL, MS_TLS_AUTO);
    snprintf(address, sizeof address, "/nowhere/at/all,127.0.0.1:%u", port);
    site_dial_with(&s, &e, address, MS_TLS_AUTO, s.secret, SITE_DEADLINE_NS);
    site_run_until(&s, &e.closed, 1);
    assert_int_equal(e.why.code, -ECONNREFUSED);
    assert_non_null(strstr(e.why.text, "nobody listens"));
    site_end_finish(&e);
    close(fd);
    site_stop(&s);
}

/* Somebody who accepts and never says a word: until the deadline, and not longer. */
static void test_deadline(void **state)
{
    struct site s;
    struct site_end e = {0};
    char address[64];
    uint16_t port = 0;
    int fd = ms_tcp_listen("127.0.0.1", &port, NULL);

    (void)state;
    assert_true(fd >= 0);
    site_start(&s, NULL, MS_TLS_AUTO);
    snprintf(address, sizeof address, "127.0.0.1:%u", port);
    site_dial_with(&s, &e, address, MS_TLS_ON, s.secret, 200 * MS_NS_PER_MS);
    site_run_until(&s, &e.closed, 1);
    assert_int_equal(e.why.code, -ETIMEDOUT);
    site_end_finish(&e);
    close(fd);
    site_stop(&s);
}

static void listen_late(void *arg)
{
    site_listen(arg, "127.0.0.1");
}

/* Patient: the listener comes later, at a port that was refused before. */
static void test_patience(void **state)
{
    struct site s;
    struct site_end e = {0};
    uint16_t port = 0;
    int fd = ms_tcp_listen("127.0.0.1", &port, NULL);
    char address[64];
    struct ms_link_dial d = {.addresses = address,
                             .tls = MS_TLS_ON,
                             .deadline_ns = ms_now_ns() + SITE_DEADLINE_NS,
                             .is_patient = true};
    struct ms_timer timer;

    (void)state;
    close(fd); /* a port that is free now */
    site_start(&s, NULL, MS_TLS_AUTO);
    s.port = port;
    snprintf(address, sizeof address, "127.0.0.1:%u", port);
    d.secret = s.secret;
    e.link = ms_link_dial(s.loop, &d, &site_link_ops, &e, NULL);
    assert_non_null(e.link);
    ms_timer_init(&timer, s.loop, listen_late, &s);
    ms_timer_set(&timer, 60 * MS_NS_PER_MS);
    site_run_until(&s, &e.opened, 1);
    site_talk(&s, &e);
    ms_timer_finish(&timer);
    site_end_finish(&e);
    site_stop(&s);
}

/* The next entry when one fails; unix entries of another host are passed over. */
static void test_the_next_address(void **state)
{
    struct site s;
    struct site_end e = {0};
    char list[256];

    (void)state;
    site_start(&s, "127.0.0.1", MS_TLS_AUTO);
    snprintf(list,
             sizeof list,
             "unix:0123456789abcdef:/tmp/x,/nowhere,127.0.0.1:1,localhost:%u",
             s.port);
    site_dial_with(&s, &e, list, MS_TLS_AUTO, s.secret, SITE_DEADLINE_NS);
    site_run_until(&s, &e.opened, 1);
    site_talk(&s, &e);
    site_end_finish(&e);
    site_stop(&s);
}

static void test_a_unix_socket(void **state)
{
    struct site s;
    struct site_end e = {0};
    char path[] = "/tmp/muster-dial-XXXXXX", list[256];
    int fd;

    (void)state;
    assert_non_null(mkdtemp(path));
    strcpy(list, path);
    strcat(list, "/s");
    fd = ms_unix_listen(list, SOCK_STREAM, NULL);
    assert_true(fd >= 0);
    site_start(&s, NULL, MS_TLS_ON);
    assert_int_equal(ms_server_listen(s.server, fd), 0);
    snprintf(list, sizeof list, "unix:%s:%s/s,127.0.0.1:1", ms_host_id(), path);
    site_dial_with(&s, &e, list, MS_TLS_ON, s.secret, SITE_DEADLINE_NS);
    site_run_until(&s, &e.opened, 1);
    site_talk(&s, &e);
    site_end_finish(&e);
    site_stop(&s);
    snprintf(list, sizeof list, "%s/s", path);
    unlink(list);
    rmdir(path);
}

static void test_no_usable_address(void **state)
{
    struct ms_loop *loop = ms_loop_create();
    static const uint8_t secret[32];
    struct ms_link_dial d = {.addresses = "unix:0123456789abcdef:/tmp/x",
                             .secret = secret};
    struct ms_error err = {0};

    (void)state;
    assert_null(ms_link_dial(loop, &d, &site_link_ops, NULL, &err));
    assert_int_equal(err.code, -EADDRNOTAVAIL);
    d.addresses = "not an address";
    assert_null(ms_link_dial(loop, &d, &site_link_ops, NULL, &err));
    assert_int_equal(err.code, -EINVAL);
    ms_loop_destroy(loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_tls),
        cmocka_unit_test(test_an_abandoned_link_is_no_end),
        cmocka_unit_test(test_ipv6),
        cmocka_unit_test(test_tls_where_plain_would_do),
        cmocka_unit_test(test_plain_where_tls_is_due),
        cmocka_unit_test(test_wrong_secret),
        cmocka_unit_test(test_nobody_listens),
        cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_patience),
        cmocka_unit_test(test_the_next_address),
        cmocka_unit_test(test_a_unix_socket),
        cmocka_unit_test(test_no_usable_address),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
