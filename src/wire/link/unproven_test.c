/* strangers_test.c - what a server makes of those who do not speak as they should */
#include "base/limits.h"
#include "io/tcp.h"
#include "wire/link/test_site.h"

#include <sys/socket.h>

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
    int64_t until_ns = ms_now_ns() + SITE_DEADLINE_NS;
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
    site_start(&s, "127.0.0.1", MS_TLS_ON);
    fd = connect_raw(&s);
    assert_int_equal(send(fd, "GET / HTTP/1.1\r\n\r\n", 18, 0), 18);
    site_run_until(&s, &s.http, 1);
    close(fd);
    site_stop(&s);
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
    site_start_hasty(&s, "127.0.0.1", MS_TLS_AUTO);
    for (size_t i = 0; i < MS_COUNT(noise); i++) {
        int fd = connect_raw(&s);

        assert_int_equal(send(fd, noise[i], strlen(noise[i]), MSG_NOSIGNAL),
                         strlen(noise[i]));
        assert_true(read_to_end(&s, fd) < 16); /* an alert of TLS at most */
        close(fd);
    }
    assert_int_equal(s.links + s.http, 0);
    site_stop(&s);
}

/* One byte and then nothing, or nothing at all: cut when the handshake's time is over. */
static void test_slow_loris(void **state)
{
    static const char *const firsts[] = {"", "M", "\x16", "MSTR\x01"};
    int64_t began_ns = ms_now_ns();
    int fds[MS_COUNT(firsts)];
    struct site s;

    (void)state;
    site_start_hasty(&s, "127.0.0.1", MS_TLS_AUTO);
    for (size_t i = 0; i < MS_COUNT(firsts); i++) {
        fds[i] = connect_raw(&s);
        send(fds[i], firsts[i], strlen(firsts[i]), MSG_NOSIGNAL);
    }
    for (size_t i = 0; i < MS_COUNT(firsts); i++) {
        assert_int_equal(read_to_end(&s, fds[i]), 0);
        close(fds[i]);
    }
    assert_true(ms_now_ns() - began_ns >= SITE_HASTY_NS - 50 * MS_NS_PER_MS);
    assert_true(ms_now_ns() - began_ns < SITE_DEADLINE_NS / 2);
    site_stop(&s);
}

/* However many come and say nothing, one who knows the secret gets in. */
static void test_a_crowd_of_strangers(void **state)
{
    enum { CROWD = MS_UNPROVEN_MAX + 40 };
    struct site s;
    struct site_end e = {0};
    int fds[CROWD];
    unsigned cut = 0;

    (void)state;
    site_start(&s, "127.0.0.1", MS_TLS_AUTO);
    for (int i = 0; i < CROWD; i++) {
        fds[i] = connect_raw(&s);
        send(fds[i], i % 2 ? "M" : "", i % 2, MSG_NOSIGNAL);
        ms_loop_run_once(s.loop, false);
    }
    site_dial(&s, &e, MS_TLS_ON);
    site_run_until(&s, &e.opened, 1);
    site_talk(&s, &e);
    for (int i = 0; i < CROWD; i++) {
        char byte;

        cut += recv(fds[i], &byte, 1, MSG_DONTWAIT) == 0;
        close(fds[i]);
    }
    assert_true(cut >= 40); /* the oldest */
    site_end_finish(&e);
    site_stop(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_http_is_given_away),
        cmocka_unit_test(test_noise),
        cmocka_unit_test(test_slow_loris),
        cmocka_unit_test(test_a_crowd_of_strangers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
