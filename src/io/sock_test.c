/* sock_test.c - tests of sock.h: unix sockets, and descriptors sent over them */
#include "base/cleanup.h"
#include "base/limits.h"
#include "io/sock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64], path[96];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/muster-sock-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/s", folder);
    return 0;
}

static int drop_folder(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static void expect_flags(int fd)
{
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
}

/* ---- listening and connecting ---------------------------------------------------- */

static void test_connect_and_accept(void **state)
{
    struct stat st;
    int listening = ms_unix_listen(path, SOCK_STREAM, NULL), client, server;
    uid_t uid;
    pid_t pid;

    (void)state;
    assert_true(listening >= 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(ms_unix_accept(listening), -EAGAIN);
    client = ms_unix_connect(path, SOCK_STREAM, NULL);
    server = ms_unix_accept(listening);
    assert_true(client >= 0 && server >= 0);
    expect_flags(listening);
    expect_flags(client);
    expect_flags(server);
    assert_int_equal(ms_unix_peer(server, &uid, &pid), 0);
    assert_int_equal(uid, geteuid());
    assert_int_equal(pid, getpid());
    assert_int_equal(ms_unix_peer(0, &uid, &pid) < 0, true);
    close(client);
    close(server);
    close(listening);
}

static void test_nobody_there(void **state)
{
    struct ms_error err = {0};
    int listening;

    (void)state;
    assert_int_equal(ms_unix_connect(path, SOCK_STREAM, &err), -ENOENT);
    assert_non_null(strstr(err.text, path));
    listening = ms_unix_listen(path, SOCK_STREAM, NULL);
    close(listening);
    assert_int_equal(ms_unix_connect(path, SOCK_STREAM, &err), -ECONNREFUSED);
}

/* A dead socket is replaced, a living one is not, and nothing else is ever removed. */
static void test_what_stands_in_the_way(void **state)
{
    struct ms_error err = {0};
    int listening = ms_unix_listen(path, SOCK_STREAM, NULL), again;

    (void)state;
    assert_int_equal(ms_unix_listen(path, SOCK_STREAM, &err), -EADDRINUSE);
    assert_non_null(strstr(err.text, path));
    close(listening);
    again = ms_unix_listen(path, SOCK_STREAM, NULL);
    assert_true(again >= 0);
    close(again);
    unlink(path);
    again = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    close(again);
    assert_int_equal(ms_unix_listen(path, SOCK_STREAM, NULL), -EADDRINUSE);
    assert_int_equal(access(path, F_OK), 0);
}

static void test_paths_that_are_too_long(void **state)
{
    char name[MS_SOCKET_PATH_MAX + 2];
    struct ms_error err = {0};

    (void)state;
    memset(name, 'x', sizeof name);
    name[sizeof name - 1] = 0;
    assert_int_equal(ms_unix_listen(name, SOCK_STREAM, &err), -ENAMETOOLONG);
    assert_non_null(strstr(err.text, "107"));
    assert_int_equal(ms_unix_connect(name, SOCK_STREAM, NULL), -ENAMETOOLONG);
    assert_int_equal(ms_unix_connect("", SOCK_STREAM, NULL), -ENAMETOOLONG);
}

static void test_a_full_backlog_does_not_block(void **state)
{
    int listening = ms_unix_listen(path, SOCK_STREAM, NULL), fds[8], rc = 0;
    size_t count = 0;

    (void)state;
    assert_int_equal(listen(listening, 1), 0);
    while (count < MS_COUNT(fds) &&
           (rc = ms_unix_connect(path, SOCK_STREAM, NULL)) >= 0)
        fds[count++] = rc;
    assert_int_equal(rc, -EAGAIN);
    while (count)
        close(fds[--count]);
    close(listening);
}

/* ---- descriptors over sockets ---------------------------------------------------- */

static void test_descriptors_travel(void **state)
{
    int pair[2], ends[2], got[4];
    size_t count = MS_COUNT(got);
    char text[16];

    (void)state;
    assert_int_equal(ms_unix_pair(SOCK_SEQPACKET, pair), 0);
    expect_flags(pair[0]);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(ms_fds_send(pair[0], "hello", 5, ends, 2), 5);
    assert_true(is_open(ends[0]) && is_open(ends[1])); /* they stay ours */
    assert_int_equal(ms_fds_recv(pair[1], text, sizeof text, got, &count), 5);
    assert_memory_equal(text, "hello", 5);
    assert_int_equal(count, 2);
    assert_true(fcntl(got[0], F_GETFD) & FD_CLOEXEC);
    assert_int_equal(write(got[1], "x", 1), 1); /* it is that pipe */
    assert_int_equal(read(ends[0], text, 1), 1);
    count = MS_COUNT(got);
    assert_int_equal(ms_fds_recv(pair[1], text, sizeof text, got, &count), -EAGAIN);
    assert_int_equal(count, 0);
    for (int i = 0; i < 2; i++) {
        close(got[i]);
        close(ends[i]);
    }
    close(pair[0]);
    count = MS_COUNT(got);
    assert_int_equal(ms_fds_recv(pair[1], text, sizeof text, got, &count), 0);
    assert_int_equal(count, 0);
    close(pair[1]);
}

static unsigned count_fds(void)
{
    unsigned n = 0;

    for (int fd = 0; fd < 256; fd++)
        n += is_open(fd);
    return n;
}

/* More than fit: none is kept, none is leaked. */
static void test_more_descriptors_than_fit(void **state)
{
    int pair[2], sent[3] = {0, 0, 0}, got[2] = {-1, -1};
    size_t count = 2;
    unsigned before;
    char text[4];

    (void)state;
    assert_int_equal(ms_unix_pair(SOCK_SEQPACKET, pair), 0);
    before = count_fds();
    assert_int_equal(ms_fds_send(pair[0], "x", 1, sent, 3), 1);
    assert_int_equal(ms_fds_recv(pair[1], text, sizeof text, got, &count), -EMSGSIZE);
    assert_int_equal(count, 0);
    assert_int_equal(count_fds(), before);
    assert_int_equal(ms_fds_send(pair[0], "x", 1, sent, 17), -EINVAL);
    close(pair[0]);
    close(pair[1]);
}

/* A message that is longer than the room for it is not taken for a whole one. */
static void test_a_cut_message(void **state)
{
    int pair[2], sent[1] = {0}, got[1];
    size_t count = 1;
    unsigned before;
    char text[3];

    (void)state;
    assert_int_equal(ms_unix_pair(SOCK_SEQPACKET, pair), 0);
    before = count_fds();
    assert_int_equal(ms_fds_send(pair[0], "hello", 5, sent, 1), 5);
    assert_int_equal(ms_fds_recv(pair[1], text, sizeof text, got, &count), -EMSGSIZE);
    assert_int_equal(count_fds(), before);
    close(pair[0]);
    assert_int_equal(ms_fds_send(pair[1], "x", 1, NULL, 0), -EPIPE); /* and no signal */
    close(pair[1]);
}

static void test_no_descriptor_left_for_what_comes(void **state)
{
    int pair[2], sent[2] = {0, 0}, got[2];
    struct rlimit before, few;
    size_t count = 2;
    char text[4];
    ssize_t n;

    (void)state;
    assert_int_equal(ms_unix_pair(SOCK_SEQPACKET, pair), 0);
    assert_int_equal(ms_fds_send(pair[0], "x", 1, sent, 2), 1);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = before;
    few.rlim_cur = (rlim_t)(pair[0] > pair[1] ? pair[0] : pair[1]) + 1;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    n = ms_fds_recv(pair[1], text, sizeof text, got, &count);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_true(n < 0);
    assert_int_equal(count, 0);
    close(pair[0]);
    close(pair[1]);
}

/* ---- ports ----------------------------------------------------------------------- */

/* Held: nobody is given the number, but who knows it can listen there. */
static void test_a_held_port(void **state)
{
    struct sockaddr_in sa = {.sin_family = AF_INET};
    uint16_t port = 0, other = 0;
    struct ms_error err = {0};
    int one = 1, fd, held = ms_port_hold("127.0.0.1", &port, &err);
    int second = ms_port_hold("127.0.0.1", &other, &err);

    (void)state;
    assert_true(held >= 0 && second >= 0 && port && other);
    assert_int_not_equal(port, other);
    assert_true(fcntl(held, F_GETFD) & FD_CLOEXEC);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    sa.sin_port = htons(port);
    sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof sa), 0);
    assert_int_equal(listen(fd, 1), 0);
    close(fd);
    close(held);
    close(second);
    assert_int_equal(ms_port_hold("not an address", &port, &err), -EINVAL);
    assert_non_null(strstr(err.text, "not an address"));
    assert_true(ms_port_hold("192.0.2.1", &port, &err) < 0); /* not ours */
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, drop_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_connect_and_accept),
        IN_FOLDER(test_nobody_there),
        IN_FOLDER(test_what_stands_in_the_way),
        cmocka_unit_test(test_paths_that_are_too_long),
        IN_FOLDER(test_a_full_backlog_does_not_block),
        cmocka_unit_test(test_descriptors_travel),
        cmocka_unit_test(test_more_descriptors_than_fit),
        cmocka_unit_test(test_a_cut_message),
        cmocka_unit_test(test_no_descriptor_left_for_what_comes),
        cmocka_unit_test(test_a_held_port),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
