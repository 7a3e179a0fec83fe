/* Links that are dialled, over real sockets: unix, TCP and TLS, on one loop. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/name.h"
#include "io/sock.h"
#include "io/tcp.h"
#include "proto/muster.pb-c.h"
#include "wire/link.h"
#include "wire/server.h"
#include "wire/test_proxy.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#define DEADLINE_NS (20 * MS_NS_PER_S)

struct end {
    struct ms_link *link;
    uint64_t sum;
    unsigned count, opened, closed, suspected, cleared;
    bool echo;
    struct ms_error why;
};

struct site {
    struct ms_loop *loop;
    struct ms_server *server;
    struct end there; /* the server's end of the last link */
    unsigned links, refused, http;
    struct ms_error refusal;
    char address[64];
    uint8_t secret[32];
    uint16_t port;
};

/* ---- ends -------------------------------------------------------------------------- */

static int send_number(struct ms_link *l, uint64_t number, size_t padding)
{
    Muster__LogLine m = MUSTER__LOG_LINE__INIT;
    MS_CLEANUP(ms_cleanup_free) uint8_t *text = calloc(1, padding + 1);

    m.uid = number;
    m.text.data = text;
    m.text.len = padding;
    return ms_link_send(l, &m.base);
}

static void on_body(void *arg, const uint8_t *body, size_t len)
{
    struct end *e = arg;
    Muster__LogLine *m = muster__log_line__unpack(NULL, len, body);

    assert_non_null(m);
    e->sum += m->uid;
    e->count++;
    if (e->echo)
        assert_int_equal(send_number(e->link, m->uid, m->text.len), 0);
    muster__log_line__free_unpacked(m, NULL);
}

static void on_closed(void *arg, const struct ms_error *why)
{
    struct end *e = arg;

    e->closed++;
    e->why = *why;
}

static void on_open(void *arg)
{
    struct end *e = arg;

    e->opened++;
}

static void on_suspect(void *arg, bool is_suspect)
{
    struct end *e = arg;

    if (is_suspect)
        e->suspected++;
    else
        e->cleared++;
}

static const struct ms_link_ops link_ops = {.on_body = on_body,
                                            .on_closed = on_closed,
                                            .on_open = on_open,
                                            .on_suspect = on_suspect};

static void end_finish(struct end *e)
{
    ms_link_destroy(e->link);
    e->link = NULL;
}

/* ---- the server -------------------------------------------------------------------- */

static void on_request(void *arg, struct ms_request *r)
{
    (void)arg;
    ms_request_fail_text(r, MUSTER__FAILURE__KIND__REFUSED, "no");
}

static void on_link(void *arg, struct ms_link *l)
{
    struct site *s = arg;

    s->links++;
    if (s->there.link)
        ms_link_destroy(s->there.link);
    s->there = (struct end){.link = l, .echo = true};
    ms_link_accept(l, &link_ops, &s->there);
}

static void on_refused(void *arg, const char *peer, const struct ms_error *why)
{
    struct site *s = arg;

    assert_non_null(strchr(peer, ':'));
    s->refused++;
    s->refusal = *why;
}

static void on_http(void *arg, int fd, const struct sockaddr_storage *peer)
{
    struct site *s = arg;
    char text[16] = {0};

    assert_true(ms_sockaddr_is_loopback(peer));
    assert_int_equal(recv(fd, text, 4, MSG_DONTWAIT), 4);
    assert_string_equal(text, "GET ");
    s->http++;
    close(fd);
}

static const struct ms_server_ops server_ops = {
    .on_request = on_request,
    .on_link = on_link,
    .on_http = on_http,
    .on_refused = on_refused,
};

static void listen_tcp(struct site *s, const char *host)
{
    int fd = ms_tcp_listen(host, &s->port, NULL);

    assert_true(fd >= 0);
    assert_int_equal(ms_server_listen(s->server, fd), 0);
    snprintf(s->address,
             sizeof s->address,
             strchr(host, ':') ? "[%s]:%u" : "%s:%u",
             host,
             s->port);
}

static void start(struct site *s, const char *host, enum ms_tls_mode tls)
{
    *s = (struct site){.loop = ms_loop_create()};
    assert_int_equal(ms_random_bytes(s->secret, sizeof s->secret), 0);
    s->server = ms_server_create(&(struct ms_server_options){
        .loop = s->loop,
        .secret = s->secret,
        .identity = 5,
        .tls = tls,
        .ops = &server_ops,
        .arg = s,
        .handshake_ns = 300 * MS_NS_PER_MS,
    });
    assert_non_null(s->server);
    if (host)
        listen_tcp(s, host);
}

static void stop(struct site *s)
{
    end_finish(&s->there);
    ms_server_destroy(s->server);
    ms_loop_destroy(s->loop);
}

static void dial_with(struct site *s,
                      struct end *e,
                      const char *addresses,
                      enum ms_tls_mode tls,
                      const uint8_t *secret,
                      int64_t within_ns)
{
    struct ms_link_dial d = {.addresses = addresses,
                             .secret = secret,
                             .tls = tls,
                             .deadline_ns = ms_now_ns() + within_ns};
    struct ms_error err = {0};

    e->link = ms_link_dial(s->loop, &d, &link_ops, e, &err);
    if (!e->link)
        print_error("%s\n", err.text);
    assert_non_null(e->link);
    assert_int_equal(send_number(e->link, 1, 0), -ENOTCONN);
}

static void dial(struct site *s, struct end *e, enum ms_tls_mode tls)
{
    dial_with(s, e, s->address, tls, s->secret, DEADLINE_NS);
}

static void run_until(struct site *s, const unsigned *count, unsigned least)
{
    int64_t until_ns = ms_now_ns() + DEADLINE_NS;

    while (*count < least) {
        assert_true(ms_now_ns() < until_ns);
        ms_loop_run_once(s->loop, true);
    }
}

/* Numbers there and back, small ones and big ones. */
static void talk(struct site *s, struct end *e)
{
    static const size_t sizes[] = {0, 10, 3000, 70000, 1 << 20, 5};
    uint64_t want = 0;
    unsigned n = e->count;

    for (size_t i = 0; i < MS_COUNT(sizes); i++) {
        assert_int_equal(send_number(e->link, i + 1, sizes[i]), 0);
        want += i + 1;
    }
    e->sum = 0;
    run_until(s, &e->count, n + MS_COUNT(sizes));
    assert_int_equal(e->sum, want);
}

static void check(const char *host, enum ms_tls_mode tls)
{
    struct site s;
    struct end e = {0};
    char peer[80];

    start(&s, host, tls);
    dial(&s, &e, tls);
    run_until(&s, &e.opened, 1);
    assert_true(ms_link_is_open(e.link));
    ms_link_peer(e.link, peer, sizeof peer);
    assert_string_equal(peer, s.address);
    talk(&s, &e);
    end_finish(&e);
    run_until(&s, &s.there.closed, 1);
    assert_true(ms_link_has_ended(&s.there.why));
    assert_int_equal(s.refused, 0);
    stop(&s);
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
    struct end e = {0};

    (void)state;
    start(&s, "127.0.0.1", MS_TLS_OFF);
    dial(&s, &e, MS_TLS_ON);
    run_until(&s, &e.opened, 1);
    talk(&s, &e);
    end_finish(&e);
    stop(&s);
}

static void test_plain_where_tls_is_due(void **state)
{
    struct site s;
    struct end e = {0};

    (void)state;
    start(&s, "127.0.0.1", MS_TLS_ON);
    dial(&s, &e, MS_TLS_OFF);
    run_until(&s, &e.closed, 1);
    assert_int_equal(e.opened, 0);
    assert_int_equal(e.why.code, -ENOKEY);
    assert_non_null(strstr(e.why.text, "wants TLS"));
    assert_int_equal(s.links, 0);
    assert_int_equal(s.refused, 1);
    assert_int_equal(s.refusal.code, -ENOKEY);
    end_finish(&e);
    stop(&s);
}

static void refuse_wrong_secret(enum ms_tls_mode tls)
{
    static const uint8_t wrong[32] = "not the secret";
    struct site s;
    struct end e = {0};

    start(&s, "127.0.0.1", tls);
    dial_with(&s, &e, s.address, tls, wrong, DEADLINE_NS);
    run_until(&s, &e.closed, 1);
    assert_int_equal(e.opened, 0);
    assert_int_equal(e.why.code, -EACCES);
    assert_non_null(strstr(e.why.text, "secret"));
    assert_false(ms_link_has_ended(&e.why));
    assert_int_equal(s.links, 0);
    end_finish(&e);
    stop(&s);
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
    struct end e = {0};
    char address[64];
    uint16_t port = 0;
    int fd = ms_port_hold("127.0.0.1", &port, NULL);

    (void)state;
    assert_true(fd >= 0);
    start(&s, NULL, MS_TLS_AUTO);
    snprintf(address, sizeof address, "/nowhere/at/all,127.0.0.1:%u", port);
    dial_with(&s, &e, address, MS_TLS_AUTO, s.secret, DEADLINE_NS);
    run_until(&s, &e.closed, 1);
    assert_int_equal(e.why.code, -ECONNREFUSED);
    assert_non_null(strstr(e.why.text, "nobody listens"));
    end_finish(&e);
    close(fd);
    stop(&s);
}

/* Somebody who accepts and never says a word: until the deadline, and not longer. */
static void test_deadline(void **state)
{
    struct site s;
    struct end e = {0};
    char address[64];
    uint16_t port = 0;
    int fd = ms_tcp_listen("127.0.0.1", &port, NULL);

    (void)state;
    assert_true(fd >= 0);
    start(&s, NULL, MS_TLS_AUTO);
    snprintf(address, sizeof address, "127.0.0.1:%u", port);
    dial_with(&s, &e, address, MS_TLS_ON, s.secret, 200 * MS_NS_PER_MS);
    run_until(&s, &e.closed, 1);
    assert_int_equal(e.why.code, -ETIMEDOUT);
    end_finish(&e);
    close(fd);
    stop(&s);
}

static void listen_late(void *arg)
{
    listen_tcp(arg, "127.0.0.1");
}

/* Patient: the listener comes later, at a port that was refused before. */
static void test_patience(void **state)
{
    struct site s;
    struct end e = {0};
    uint16_t port = 0;
    int fd = ms_tcp_listen("127.0.0.1", &port, NULL);
    char address[64];
    struct ms_link_dial d = {.addresses = address,
                             .tls = MS_TLS_ON,
                             .deadline_ns = ms_now_ns() + DEADLINE_NS,
                             .is_patient = true};
    struct ms_timer timer;

    (void)state;
    close(fd); /* a port that is free now */
    start(&s, NULL, MS_TLS_AUTO);
    s.port = port;
    snprintf(address, sizeof address, "127.0.0.1:%u", port);
    d.secret = s.secret;
    e.link = ms_link_dial(s.loop, &d, &link_ops, &e, NULL);
    assert_non_null(e.link);
    ms_timer_init(&timer, s.loop, listen_late, &s);
    ms_timer_set(&timer, 60 * MS_NS_PER_MS);
    run_until(&s, &e.opened, 1);
    talk(&s, &e);
    ms_timer_finish(&timer);
    end_finish(&e);
    stop(&s);
}

/* The next entry when one fails; unix entries of another host are passed over. */
static void test_the_next_address(void **state)
{
    struct site s;
    struct end e = {0};
    char list[256];

    (void)state;
    start(&s, "127.0.0.1", MS_TLS_AUTO);
    snprintf(list,
             sizeof list,
             "unix:0123456789abcdef:/tmp/x,/nowhere,127.0.0.1:1,localhost:%u",
             s.port);
    dial_with(&s, &e, list, MS_TLS_AUTO, s.secret, DEADLINE_NS);
    run_until(&s, &e.opened, 1);
    talk(&s, &e);
    end_finish(&e);
    stop(&s);
}

static void test_a_unix_socket(void **state)
{
    struct site s;
    struct end e = {0};
    char path[] = "/tmp/muster-dial-XXXXXX", list[256];
    int fd;

    (void)state;
    assert_non_null(mkdtemp(path));
    strcpy(list, path);
    strcat(list, "/s");
    fd = ms_unix_listen(list, NULL);
    assert_true(fd >= 0);
    start(&s, NULL, MS_TLS_ON);
    assert_int_equal(ms_server_listen(s.server, fd), 0);
    snprintf(list, sizeof list, "unix:%s:%s/s,127.0.0.1:1", ms_host_id(), path);
    dial_with(&s, &e, list, MS_TLS_ON, s.secret, DEADLINE_NS);
    run_until(&s, &e.opened, 1);
    talk(&s, &e);
    end_finish(&e);
    stop(&s);
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
    assert_null(ms_link_dial(loop, &d, &link_ops, NULL, &err));
    assert_int_equal(err.code, -EADDRNOTAVAIL);
    d.addresses = "not an address";
    assert_null(ms_link_dial(loop, &d, &link_ops, NULL, &err));
    assert_int_equal(err.code, -EINVAL);
    ms_loop_destroy(loop);
}

/* ---- what strangers say ------------------------------------------------------------ */

static int connect_raw(struct site *s)
{
    struct sockaddr_storage sa;
    socklen_t len;
    int fd;

    assert_int_equal(ms_tcp_numeric("127.0.0.1", s->port, &sa, &len), 0);
    fd = ms_tcp_connect((struct sockaddr *)&sa, len, NULL);
    assert_true(fd >= 0);
    while (ms_tcp_connected(fd) == -EINPROGRESS)
        ms_loop_run_once(s->loop, false);
    return fd;
}

/* What comes back until the end; the count. */
static size_t read_to_end(struct site *s, int fd)
{
    int64_t until_ns = ms_now_ns() + DEADLINE_NS;
    uint8_t bytes[4096];
    size_t got = 0;

    for (;;) {
        ssize_t n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);

        assert_true(ms_now_ns() < until_ns);
        if (n > 0)
            got += (size_t)n;
        else if (n == 0 || errno != EAGAIN)
            return got;
        ms_loop_run_once(s->loop, false);
    }
}

static void test_http_is_given_away(void **state)
{
    struct site s;
    int fd;

    (void)state;
    start(&s, "127.0.0.1", MS_TLS_ON);
    fd = connect_raw(&s);
    assert_int_equal(send(fd, "GET / HTTP/1.1\r\n\r\n", 18, 0), 18);
    run_until(&s, &s.http, 1);
    close(fd);
    stop(&s);
}

static void test_noise(void **state)
{
    static const char *const noise[] = {
        "\x16\x03\x01\x00\x05hello, this is no TLS at all",
        "\x16\x03\x01\xff\xff\x01\x00\xff\xff garbage garbage garbage garbage garbage",
        "hello",
        "\x01\x02\x03",
        "MSTX and then some more bytes until there are enough of them for a hello.....",
    };
    struct site s;

    (void)state;
    start(&s, "127.0.0.1", MS_TLS_AUTO);
    for (size_t i = 0; i < MS_COUNT(noise); i++) {
        int fd = connect_raw(&s);

        assert_int_equal(send(fd, noise[i], strlen(noise[i]), MSG_NOSIGNAL),
                         strlen(noise[i]));
        assert_true(read_to_end(&s, fd) < 16); /* an alert of TLS at most */
        close(fd);
    }
    assert_int_equal(s.links + s.http, 0);
    stop(&s);
}

/* One byte and then nothing, or nothing at all: cut when the handshake's time is over. */
static void test_slow_loris(void **state)
{
    static const char *const firsts[] = {"", "M", "\x16", "MSTR\x01"};
    int64_t began_ns = ms_now_ns();
    int fds[MS_COUNT(firsts)];
    struct site s;

    (void)state;
    start(&s, "127.0.0.1", MS_TLS_AUTO);
    for (size_t i = 0; i < MS_COUNT(firsts); i++) {
        fds[i] = connect_raw(&s);
        send(fds[i], firsts[i], strlen(firsts[i]), MSG_NOSIGNAL);
    }
    for (size_t i = 0; i < MS_COUNT(firsts); i++) {
        assert_int_equal(read_to_end(&s, fds[i]), 0);
        close(fds[i]);
    }
    assert_true(ms_now_ns() - began_ns >= 250 * MS_NS_PER_MS);
    assert_true(ms_now_ns() - began_ns < DEADLINE_NS / 2);
    stop(&s);
}

/* However many come and say nothing, one who knows the secret gets in. */
static void test_a_crowd_of_strangers(void **state)
{
    enum { CROWD = MS_UNPROVEN_MAX + 40 };
    struct site s;
    struct end e = {0};
    int fds[CROWD];
    unsigned cut = 0;

    (void)state;
    start(&s, "127.0.0.1", MS_TLS_AUTO);
    for (int i = 0; i < CROWD; i++) {
        fds[i] = connect_raw(&s);
        send(fds[i], i % 2 ? "M" : "", i % 2, MSG_NOSIGNAL);
        ms_loop_run_once(s.loop, false);
    }
    dial(&s, &e, MS_TLS_ON);
    run_until(&s, &e.opened, 1);
    talk(&s, &e);
    for (int i = 0; i < CROWD; i++) {
        char byte;

        cut += recv(fds[i], &byte, 1, MSG_DONTWAIT) == 0;
        close(fds[i]);
    }
    assert_true(cut >= 40); /* the oldest */
    end_finish(&e);
    stop(&s);
}

/* ---- the end, and silence ---------------------------------------------------------- */

static void test_ended_or_broken(void **state)
{
    struct linger reset = {.l_onoff = 1, .l_linger = 0};
    struct site s;

    (void)state;
    start(&s, "127.0.0.1", MS_TLS_AUTO);
    for (int i = 0; i < 2; i++) {
        struct end e = {0};

        dial(&s, &e, MS_TLS_OFF);
        run_until(&s, &e.opened, 1);
        talk(&s, &e);
        if (i == 1) { /* the network says so, not the other side */
            int n = 0;

            for (int at = 3; at < 256 && !n; at++) {
                struct sockaddr_storage sa = {0};
                socklen_t len = sizeof sa;
                char text[80];

                if (getpeername(at, (struct sockaddr *)&sa, &len) < 0)
                    continue;
                ms_sockaddr_format(&sa, text, sizeof text);
                if (strcmp(text, s.address) == 0)
                    n = setsockopt(at, SOL_SOCKET, SO_LINGER, &reset, sizeof reset) ==
                        0;
            }
            assert_int_equal(n, 1);
        }
        end_finish(&e);
        run_until(&s, &s.there.closed, 1);
        assert_int_equal(ms_link_has_ended(&s.there.why), i == 0);
    }
    stop(&s);
}

/* A cut link is suspected by both sides, stays open, and is cleared by both when it heals. */
static void test_silence(void **state)
{
    struct site s;
    struct end e = {0};
    struct proxy proxy;
    char address[64];
    int64_t cut_ns;

    (void)state;
    start(&s, "127.0.0.1", MS_TLS_ON);
    proxy_start(&proxy, s.port);
    snprintf(address, sizeof address, "127.0.0.1:%u", proxy.port);
    dial_with(&s, &e, address, MS_TLS_ON, s.secret, DEADLINE_NS);
    run_until(&s, &e.opened, 1);
    talk(&s, &e);
    assert_false(ms_link_is_suspect(e.link));
    proxy_cut(&proxy);
    cut_ns = ms_now_ns();
    run_until(&s, &e.suspected, 1);
    run_until(&s, &s.there.suspected, 1);
    assert_true(ms_now_ns() - cut_ns < MS_SUSPECT_NS + MS_NS_PER_S);
    assert_true(ms_link_is_suspect(e.link) && ms_link_is_open(e.link));
    proxy_heal(&proxy, false);
    run_until(&s, &e.cleared, 1);
    run_until(&s, &s.there.cleared, 1);
    talk(&s, &e);
    assert_int_equal(e.suspected + s.there.suspected, 2);
    assert_int_equal(e.closed + s.there.closed, 0);
    end_finish(&e);
    stop(&s);
    proxy_stop(&proxy);
}

/* Nothing is said for longer than suspicion takes, and nobody is suspected. */
static void test_idle_is_not_silent(void **state)
{
    struct site s;
    struct end e = {0};
    int64_t until_ns;

    (void)state;
    start(&s, "127.0.0.1", MS_TLS_ON);
    dial(&s, &e, MS_TLS_ON);
    run_until(&s, &e.opened, 1);
    talk(&s, &e);
    until_ns = ms_now_ns() + MS_SUSPECT_NS + MS_NS_PER_S;
    while (ms_now_ns() < until_ns) /* heart-beats wake it */
        ms_loop_run_once(s.loop, true);
    assert_int_equal(e.suspected + s.there.suspected, 0);
    end_finish(&e);
    stop(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_tls),
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
        cmocka_unit_test(test_http_is_given_away),
        cmocka_unit_test(test_noise),
        cmocka_unit_test(test_slow_loris),
        cmocka_unit_test(test_a_crowd_of_strangers),
        cmocka_unit_test(test_ended_or_broken),
        cmocka_unit_test(test_silence),
        cmocka_unit_test(test_idle_is_not_silent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
