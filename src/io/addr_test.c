/* addr_test.c - tests of addr.h: where a server listens */
#include "base/cleanup.h"
#include "io/addr.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void expect_text(const struct ms_addr *a, const char *text)
{
    char out[MS_ADDR_TEXT_MAX];

    assert_true(ms_addr_format(a, out, sizeof out));
    assert_string_equal(out, text);
}

static void test_good(void **state)
{
    static const struct {
        const char *text;
        bool is_unix;
        const char *name;
        unsigned port;
    } good[] = {
        {"/run/x.sock", true, "/run/x.sock", 0},
        {"unix:0123456789abcdef:/a", true, "/a", 0},
        {"10.0.0.1:7777", false, "10.0.0.1", 7777},
        {"node-a.example.org:1", false, "node-a.example.org", 1},
        {"my_host:65535", false, "my_host", 65535},
        {"[::1]:80", false, "::1", 80},
        {"[fe80::1%eth0]:80", false, "fe80::1%eth0", 80},
        {"[::ffff:10.0.0.1]:9", false, "::ffff:10.0.0.1", 9},
    };

    (void)state;
    for (size_t i = 0; i < MS_COUNT(good); i++) {
        struct ms_addr a;

        assert_int_equal(ms_addr_parse(good[i].text, &a, NULL), 0);
        assert_int_equal(a.is_unix, good[i].is_unix);
        assert_string_equal(a.name, good[i].name);
        assert_int_equal(a.port, good[i].port);
        expect_text(&a, good[i].text);
    }
}

static void test_bad(void **state)
{
    static const char *const bad[] = {
        "",
        ":",
        ":80",
        "host",
        "host:",
        "host:0",
        "host:65536",
        "host:123456",
        "host:-1",
        "host:+1",
        "host:8 0",
        "ho st:80",
        "host\n:80",
        "-host:80",
        ".host:80",
        "a:b:80",
        "::1:80",
        "[::1]",
        "[::1]:",
        "[::1]80",
        "[::1:80",
        "[]:80",
        "[10.0.0.1]:80",
        "[::1%]:80",
        "[::1%e/0]:80",
        "[fe80::1%seventeen-letters]:80",
        "unix:/path",
        "unix:0123:/path",
        "unix:0123456789abcdeF:/path",
        "unix:0123456789abcdef:path",
        "unix:0123456789abcdef:",
        "unix:0123456789abcdef",
        "host:80,",
        "http://host:80",
        "host:80/path",
    };

    (void)state;
    for (size_t i = 0; i < MS_COUNT(bad); i++) {
        struct ms_addr a = {.port = 99};
        struct ms_error err = {0};

        if (ms_addr_parse(bad[i], &a, &err) == 0)
            print_error("'%s' was taken\n", bad[i]);
        assert_int_equal(err.code, -EINVAL);
        assert_int_equal(a.port, 99); /* failure left no trace */
    }
}

static void test_limits(void **state)
{
    char text[1024];
    struct ms_addr a;

    (void)state;
    memset(text, 'p', sizeof text);
    text[0] = '/';
    text[MS_SOCKET_PATH_MAX] = 0;
    assert_int_equal(ms_addr_parse(text, &a, NULL), 0);
    text[MS_SOCKET_PATH_MAX] = 'p';
    text[MS_SOCKET_PATH_MAX + 1] = 0;
    assert_int_equal(ms_addr_parse(text, &a, NULL), -ENAMETOOLONG);
    memset(text, 'h', sizeof text);
    strcpy(text + MS_HOST_MAX, ":80");
    assert_int_equal(ms_addr_parse(text, &a, NULL), 0);
    expect_text(&a, text);
    memset(text, 'h', sizeof text);
    strcpy(text + MS_HOST_MAX + 1, ":80");
    assert_int_equal(ms_addr_parse(text, &a, NULL), -ENAMETOOLONG);
}

static void test_listening(void **state)
{
    struct ms_addr a;

    (void)state;
    assert_int_equal(ms_addr_parse_listen(":0", &a, NULL), 0);
    assert_string_equal(a.name, "");
    assert_int_equal(a.port, 0);
    assert_int_equal(ms_addr_parse_listen("*:7777", &a, NULL), 0);
    assert_int_equal(ms_addr_parse_listen("127.0.0.1:0", &a, NULL), 0);
    assert_int_equal(ms_addr_parse_listen("[::]:7777", &a, NULL), 0);
    assert_int_equal(ms_addr_parse_listen("[]:7777", &a, NULL), -EINVAL);
    assert_int_equal(ms_addr_parse("*:7777", &a, NULL), -EINVAL);
}

static void test_lists(void **state)
{
    struct ms_addr_list l = {.count = 99};
    char text[MS_ADDR_LIST_MAX + 10];

    (void)state;
    assert_int_equal(
        ms_addr_list_parse("unix:0123456789abcdef:/a,10.0.0.1:1,[::1]:2", &l, NULL), 0);
    assert_int_equal(l.count, 3);
    expect_text(&l.at[2], "[::1]:2");
    l.count = 99;
    assert_int_equal(ms_addr_list_parse("", &l, NULL), -EINVAL);
    assert_int_equal(ms_addr_list_parse("a:1,", &l, NULL), -EINVAL);
    assert_int_equal(ms_addr_list_parse(",a:1", &l, NULL), -EINVAL);
    assert_int_equal(ms_addr_list_parse("a:1,,b:2", &l, NULL), -EINVAL);
    strcpy(text, "a:1");
    for (unsigned i = 1; i < MS_ADDRS_MAX; i++)
        strcat(text, ",a:1");
    assert_int_equal(l.count, 99);
    assert_int_equal(ms_addr_list_parse(text, &l, NULL), 0);
    assert_int_equal(l.count, MS_ADDRS_MAX);
    strcat(text, ",a:1");
    assert_int_equal(ms_addr_list_parse(text, &l, NULL), -E2BIG);
    memset(text, 'a', sizeof text);
    text[MS_ADDR_LIST_MAX + 1] = 0;
    assert_int_equal(ms_addr_list_parse(text, &l, NULL), -ENAMETOOLONG);
}

static void test_this_host(void **state)
{
    struct ms_addr a;
    char text[64];

    (void)state;
    assert_int_equal(strlen(ms_host_id()), MS_HOST_ID_LEN);
    assert_string_equal(ms_host_id(), ms_host_id());
    snprintf(text, sizeof text, "unix:%s:/a", ms_host_id());
    assert_int_equal(ms_addr_parse(text, &a, NULL), 0);
    assert_true(ms_addr_is_usable(&a));
    a.host_id[0] = a.host_id[0] == '0' ? '1' : '0';
    assert_false(ms_addr_is_usable(&a));
    assert_int_equal(ms_addr_parse("/a", &a, NULL), 0);
    assert_true(ms_addr_is_usable(&a));
}

static void test_addresses_of_this_host(void **state)
{
    char found[8][MS_HOST_MAX + 1];
    int n = ms_host_addresses(found, MS_COUNT(found));

    (void)state;
    assert_true(n >= 0); /* a host may have none */
    for (int i = 0; i < n; i++) {
        assert_int_not_equal(strncmp(found[i], "127.", 4), 0);
        assert_string_not_equal(found[i], "::1");
    }
    assert_int_equal(ms_host_addresses(found, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_bad),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_listening),
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_this_host),
        cmocka_unit_test(test_addresses_of_this_host),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
