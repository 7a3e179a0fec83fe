/* listen_test.c - tests of listen.h: where workers can be reached from other
 * machines */
#include "agent/machine/listen.h"
#include "base/cleanup.h"

#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Whether somebody listens there. */
static int try_connect(const char *host, uint16_t port)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(port)};
    MS_CLEANUP(ms_cleanup_fd) int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(inet_pton(AF_INET, host, &sa.sin_addr), 1);
    return connect(fd, (struct sockaddr *)&sa, sizeof sa) < 0 ? -errno : 0;
}

static void test_nothing_said_is_loopback(void **state)
{
    struct ms_listen l;
    struct ms_error err = {0};
    MS_CLEANUP(ms_cleanup_fd) int fd = -1;
    MS_CLEANUP(ms_cleanup_free) char *text = NULL;
    uint16_t port = 0;
    char want[64];

    (void)state;
    assert_int_equal(ms_listen_init(&l, NULL, 0, &err), 0);
    assert_string_equal(l.interface, "lo");
    fd = ms_listen_open(&l, &port, &err);
    assert_true(fd >= 0 && port > 0);
    assert_int_equal(try_connect("127.0.0.1", port), 0);
    assert_int_equal(try_connect("127.0.0.2", port), -ECONNREFUSED);
    text = ms_listen_print(&l, "0123456789abcdef", "/tmp/x.sock", port);
    snprintf(want,
             sizeof want,
             "unix:0123456789abcdef:/tmp/x.sock,127.0.0.1:%u",
             (unsigned)port);
    assert_string_equal(text, want);
}

static void test_one_address(void **state)
{
    const char *const bind[] = {"127.0.0.7"};
    struct ms_listen l;
    struct ms_error err = {0};
    MS_CLEANUP(ms_cleanup_fd) int fd = -1;
    uint16_t port = 0;

    (void)state;
    assert_int_equal(ms_listen_init(&l, bind, 1, &err), 0);
    assert_int_equal(l.host_count, 1);
    fd = ms_listen_open(&l, &port, &err);
    assert_true(fd >= 0);
    assert_int_equal(try_connect("127.0.0.7", port), 0);
    assert_int_equal(try_connect("127.0.0.1", port), -ECONNREFUSED);
}

static void test_interface_by_name(void **state)
{
    const char *const bind[] = {"lo"};
    struct ms_listen l;
    struct ms_error err = {0};

    (void)state;
    if (ms_listen_init(&l, bind, 1, &err) == -EADDRNOTAVAIL) {
        print_message("# skipped: the loopback interface is down\n");
        skip();
    }
    assert_string_equal(l.hosts[0], "127.0.0.1");
}

static void test_every_interface(void **state)
{
    const char *const bind[] = {"*"};
    struct ms_listen l;
    struct ms_error err = {0};
    MS_CLEANUP(ms_cleanup_fd) int fd = -1;
    uint16_t port = 0;

    (void)state;
    assert_int_equal(ms_listen_init(&l, bind, 1, &err), 0);
    if (!strcmp(l.hosts[0], "127.0.0.1")) {
        print_message("# skipped: this machine has no address but loopback\n");
        skip();
    }
    fd = ms_listen_open(&l, &port, &err);
    assert_true(fd >= 0);
    for (size_t i = 0; i < l.host_count; i++) {
        assert_true(strncmp(l.hosts[i], "127.", 4) != 0);
        assert_true(strncmp(l.hosts[i], "fe80:", 5) != 0);
        if (!strchr(l.hosts[i], ':'))
            assert_int_equal(try_connect(l.hosts[i], port), 0);
    }
    assert_int_equal(try_connect("127.0.0.1", port), 0); /* both families, one socket */
}

static void test_a_port_that_is_told(void **state)
{
    const char *const bind[] = {"127.0.0.1"};
    struct ms_listen l;
    struct ms_error err = {0};
    uint16_t port = 0, told;
    int fd;

    (void)state;
    assert_int_equal(ms_listen_init(&l, bind, 1, &err), 0);
    fd = ms_listen_open(&l, &port, &err);
    assert_true(fd >= 0);
    told = port;
    assert_int_equal(ms_listen_open(&l, &told, &err), -EADDRINUSE);
    assert_non_null(strstr(err.text, "Address already in use"));
    close(fd);
    fd = ms_listen_open(&l, &told, &err);
    assert_true(fd >= 0);
    assert_int_equal(told, port);
    close(fd);
}

static void test_several_are_told_in_order(void **state)
{
    const char *const bind[] = {"10.1.2.3", "fd00::7", "10.1.2.3"};
    struct ms_listen l;
    struct ms_error err = {0};
    MS_CLEANUP(ms_cleanup_free) char *text = NULL;

    (void)state;
    assert_int_equal(ms_listen_init(&l, bind, 3, &err), 0);
    assert_int_equal(l.host_count, 2);
    ms_listen_prefer(&l, "fd00::7");
    ms_listen_prefer(&l, "10.9.9.9");
    text = ms_listen_print(&l, "h", "/p", 80);
    assert_string_equal(text, "unix:h:/p,[fd00::7]:80,10.1.2.3:80");
}

static void test_nonsense_is_refused(void **state)
{
    const char *const bind[] = {"no-such-if0"};
    struct ms_listen l = {.host_count = 99};
    struct ms_error err = {0};

    (void)state;
    assert_int_equal(ms_listen_init(&l, bind, 1, &err), -EINVAL);
    assert_int_equal(l.host_count, 99); /* failure left no trace */
    assert_non_null(strstr(err.text, "no-such-if0"));
}

static void test_foreign_address_cannot_be_bound(void **state)
{
    const char *const bind[] = {"192.0.2.1"};
    struct ms_listen l;
    struct ms_error err = {0};
    uint16_t port = 0;

    (void)state;
    assert_int_equal(ms_listen_init(&l, bind, 1, &err), 0);
    assert_int_equal(ms_listen_open(&l, &port, &err), -EADDRNOTAVAIL);
    assert_non_null(strstr(err.text, "192.0.2.1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_said_is_loopback),
        cmocka_unit_test(test_one_address),
        cmocka_unit_test(test_interface_by_name),
        cmocka_unit_test(test_every_interface),
        cmocka_unit_test(test_a_port_that_is_told),
        cmocka_unit_test(test_several_are_told_in_order),
        cmocka_unit_test(test_nonsense_is_refused),
        cmocka_unit_test(test_foreign_address_cannot_be_bound),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
