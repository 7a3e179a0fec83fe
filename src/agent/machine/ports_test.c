/* ports_test.c - tests of ports.h: TCP ports that are reserved by holding their
 * sockets (io/sock.h) */
#include "agent/machine/ports.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include <cmocka.h>

static int bind_port(uint16_t port, int reuse)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), rc;

    sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse);
    rc = bind(fd, (struct sockaddr *)&sa, sizeof sa) < 0 ? -errno : listen(fd, 1);
    close(fd);
    return rc;
}

static void test_held_until_dropped(void **state)
{
    struct ms_ports p;
    uint16_t a = 0, b = 0, c = 0;

    (void)state;
    ms_ports_init(&p);
    assert_int_equal(ms_ports_hold(&p, "127.0.0.1", "x", &a, NULL), 0);
    assert_int_equal(ms_ports_hold(&p, "127.0.0.1", "x", &b, NULL), 0);
    assert_int_equal(ms_ports_hold(&p, "127.0.0.1", "y", &c, NULL), 0);
    assert_true(a != b && b != c && a != c);
    assert_int_equal(bind_port(a, 0), -EADDRINUSE); /* others cannot have it */
    assert_int_equal(bind_port(a, 1), 0);           /* whom we gave it to can */
    assert_int_equal(ms_ports_drop(&p, "z"), 0);
    assert_int_equal(ms_ports_drop(&p, "x"), 2);
    assert_int_equal(bind_port(a, 0), 0);
    assert_int_equal(bind_port(c, 0), -EADDRINUSE);
    ms_ports_finish(&p);
    assert_int_equal(bind_port(c, 0), 0);
}

static void test_bad_host(void **state)
{
    struct ms_ports p;
    struct ms_error err = {0};
    uint16_t port;

    (void)state;
    ms_ports_init(&p);
    assert_int_equal(ms_ports_hold(&p, "nowhere", "x", &port, &err), -EINVAL);
    assert_int_equal(p.count, 0);
    ms_ports_finish(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_held_until_dropped),
        cmocka_unit_test(test_bad_host),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
