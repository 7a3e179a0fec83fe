/* Connections over socket pairs; the test is the client, and turns the loop. */
#include "base/clock.h"
#include "io/http/conn.h"
#include "io/sock.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define HOST "Host: a\r\n"
#define GET  "GET /now HTTP/1.1\r\n" HOST "\r\n"

struct rig {
    struct ms_loop *loop;
    struct ms_http_server server;
    int fd; /* the client's end */
    struct ms_http_conn *waiting;
    int requests, gone, made_ends;
    size_t made;
    char path[64], body[64];
    struct ms_buf got;
};

static int on_head(void *arg,
                   const struct ms_http_request *r,
                   uint64_t *body_max,
                   const char **why)
{
    (void)arg;
    if (strcmp(r->path, "/secret") == 0) {
        *why = "no \"token\"";
        return 401;
    }
    if (strcmp(r->path, "/small") == 0)
        *body_max = 10;
    return 0;
}

enum { MADE = (3 << 20) + 1, MADE_AT_ONCE = 1000 };

/* Of a body that is made while it is sent, in odd pieces. */
static size_t read_made(void *arg, uint8_t *out, size_t room)
{
    struct rig *rig = arg;
    size_t n = room < MADE_AT_ONCE ? room : MADE_AT_ONCE;

    assert_int_equal(rig->made_ends, 0);
    rig->made += n;
    memset(out, rig->made == MADE ? '!' : 'x', n);
    return n;
}

static void end_made(void *arg)
{
    struct rig *rig = arg;

    rig->made_ends++;
}

static void
on_request(void *arg, struct ms_http_conn *c, const struct ms_http_request *r)
{
    struct rig *rig = arg;

    rig->requests++;
    strcpy(rig->path, r->path);
    memset(rig->body, 0, sizeof rig->body);
    memcpy(rig->body,
           r->body_len ? r->body : (const void *)"",
           r->body_len < 63 ? r->body_len : 63);
    if (strcmp(r->path, "/later") == 0) {
        rig->waiting = c;
        ms_http_conn_set_tag(c, rig);
        return;
    }
    if (strcmp(r->path, "/made") == 0) {
        ms_http_conn_reply_from(c,
                                200,
                                "text/plain",
                                MADE,
                                &(struct ms_http_source){read_made, end_made, rig});
        return;
    }
    if (strcmp(r->path, "/big") == 0) {
        char *big = malloc(4 << 20);

        memset(big, 'x', 4 << 20);
        ms_http_conn_reply(c, 200, "text/plain", NULL, big, 4 << 20);
        free(big);
        return;
    }
    ms_http_conn_reply(c, 200, "text/plain", "X-More: 1\r\n", "ok", 2);
}

static void on_gone(void *arg, void *tag)
{
    struct rig *rig = arg;

    assert_ptr_equal(tag, rig);
    rig->gone++;
    rig->waiting = NULL;
}

/* A body that comes in parts; its connection is held after each. */
static bool
takes_parts(void *arg, struct ms_http_conn *c, const struct ms_http_request *r)
{
    struct rig *rig = arg;

    if (strcmp(r->path, "/parts") != 0)
        return false;
    rig->waiting = c;
    ms_http_conn_set_tag(c, rig);
    return true;
}

static void on_part(void *arg, void *tag, const uint8_t *data, size_t len)
{
    struct rig *rig = arg;

    assert_ptr_equal(tag, rig);
    (void)data;
    rig->made += len;
    ms_http_conn_hold(rig->waiting);
}

static bool is_public(void *arg, const struct ms_http_request *r)
{
    (void)arg;
    return strcmp(r->path, "/open") == 0;
}

static const struct ms_http_conn_ops ops = {.on_head = on_head,
                                            .is_public = is_public,
                                            .takes_parts = takes_parts,
                                            .on_part = on_part,
                                            .on_request = on_request,
                                            .on_gone = on_gone};

static void rig_connect(struct rig *rig, const char *bytes)
{
    int fds[2];

    assert_int_equal(ms_unix_pair(SOCK_STREAM, fds), 0);
    rig->fd = fds[1];
    assert_int_equal(ms_http_server_add(&rig->server, fds[0], bytes, strlen(bytes)), 0);
}

static void rig_start(struct rig *rig)
{
    *rig = (struct rig){.fd = -1};
    rig->loop = ms_loop_create();
    ms_buf_init(&rig->got);
    ms_http_server_init(&rig->server, rig->loop, &ops, rig);
}

static void rig_stop(struct rig *rig)
{
    ms_http_server_finish(&rig->server);
    assert_int_equal(rig->server.count, 0);
    ms_loop_destroy(rig->loop);
    ms_buf_finish(&rig->got);
    if (rig->fd >= 0)
        close(rig->fd);
}

static void rig_send(struct rig *rig, const char *text)
{
    size_t len = strlen(text);

    while (len) {
        ssize_t n = send(rig->fd, text, len, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n > 0) {
            text += n;
            len -= (size_t)n;
        } else {
            assert_int_equal(errno, EAGAIN);
            ms_loop_run_once(rig->loop, true);
        }
    }
}

/* What is there for the client; false at the end. */
static bool rig_read(struct rig *rig)
{
    char data[65536];
    ssize_t n;

    while ((n = recv(rig->fd, data, sizeof data, MSG_DONTWAIT)) > 0)
        assert_int_equal(ms_buf_append(&rig->got, data, (size_t)n), 0);
    return n != 0 && (n > 0 || errno == EAGAIN);
}

/* Turn the loop until the text has come; what the client has got is forgotten then. */
static void rig_expect(struct rig *rig, const char *text)
{
    for (;;) {
        bool open = rig_read(rig);
        const char *got = ms_buf_str(&rig->got);

        if (got && strstr(got, text))
            break;
        if (!open)
            fail_msg("the end instead of %s: %s", text, got);
        ms_loop_run_once(rig->loop, true);
    }
    rig->got.len = 0;
}

static void rig_expect_end(struct rig *rig)
{
    while (rig_read(rig))
        ms_loop_run_once(rig->loop, true);
    close(rig->fd);
    rig->fd = -1;
    while (rig->server.count)
        ms_loop_run_once(rig->loop, true);
}

static void test_answers(void **state)
{
    struct rig rig;

    (void)state;
    rig_start(&rig);
    rig_connect(&rig, "GE"); /* what somebody has read to see that it is HTTP */
    rig_send(&rig, "T /now HTTP/1.1\r\n" HOST "\r\n");
    rig_expect(&rig,
               "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n"
               "X-More: 1\r\n\r\nok");
    rig_send(&rig, "HEAD /now HTTP/1.1\r\n" HOST "\r\n" GET);
    rig_expect(&rig, "Content-Length: 2\r\nX-More: 1\r\n\r\nHTTP/1.1 200");
    rig_send(&rig, "GET /now HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n");
    rig_expect(&rig, "Connection: close\r\n\r\nok");
    rig_expect_end(&rig);
    rig_stop(&rig);
}

static void test_a_request_that_was_there_at_once(void **state)
{
    struct rig rig;

    (void)state;
    rig_start(&rig);
    rig_connect(&rig, "GET /now HTTP/1.0\r\n\r\n");
    rig_expect(&rig, "ok");
    rig_expect_end(&rig);
    rig_stop(&rig);
}

static void test_continue(void **state)
{
    struct rig rig;

    (void)state;
    rig_start(&rig);
    rig_connect(&rig,
                "POST /now HTTP/1.1\r\n" HOST
                "Expect: 100-continue\r\nContent-Length: 3\r\n\r\n");
    rig_expect(&rig, "HTTP/1.1 100 Continue\r\n\r\n");
    rig_send(&rig, "abc");
    rig_expect(&rig, "ok");
    assert_string_equal(rig.body, "abc");
    rig_send(&rig,
             "POST /secret HTTP/1.1\r\n" HOST
             "Expect: 100-continue\r\nContent-Length: 3\r\n\r\n");
    rig_expect(&rig, "HTTP/1.1 401"); /* and not 100 */
    rig_expect_end(&rig);
    rig_stop(&rig);
}

/* A refusal is heard although the client goes on sending. */
static void test_refused_before_the_body(void **state)
{
    struct rig rig;

    (void)state;
    rig_start(&rig);
    rig_connect(&rig, "");
    rig_send(&rig,
             "POST /secret HTTP/1.1\r\n" HOST "Content-Length: 100000\r\n\r\nabc");
    rig_expect(&rig, "{\"status\": \"error\", \"error\": \"no \\\"token\\\"\"}");
    rig_send(&rig, "more of it");
    assert_int_equal(rig.requests, 0);
    rig_expect_end(&rig);
    rig_connect(&rig, "POST /small HTTP/1.1\r\n" HOST "Content-Length: 11\r\n\r\n");
    rig_expect(&rig, "HTTP/1.1 413");
    rig_expect_end(&rig);
    rig_connect(&rig, "nonsense\r\n\r\n");
    rig_expect(&rig, "HTTP/1.1 400");
    rig_expect_end(&rig);
    rig_stop(&rig);
}

static void test_answers_keep_their_order(void **state)
{
    struct rig rig;

    (void)state;
    rig_start(&rig);
    rig_connect(&rig, "GET /later HTTP/1.1\r\n" HOST "\r\n" GET GET);
    assert_int_equal(rig.requests, 1);
    rig_send(&rig, GET);
    ms_loop_run_once(rig.loop, true);
    assert_int_equal(rig.requests, 1); /* they wait */
    ms_http_conn_reply(rig.waiting, 202, "text/plain", NULL, "first", 5);
    rig_expect(&rig, "first");
    while (rig.requests < 4)
        ms_loop_run_once(rig.loop, true);
    rig_stop(&rig);
}

static void test_the_end_of_a_waiting_client(void **state)
{
    struct rig rig;

    (void)state;
    rig_start(&rig);
    rig_connect(&rig, "GET /later HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n");
    assert_non_null(rig.waiting);
    close(rig.fd);
    rig.fd = -1;
    while (!rig.gone)
        ms_loop_run_once(rig.loop, true);
    assert_int_equal(rig.server.count, 0);
    rig_connect(&rig, "GET /later HTTP/1.1\r\n" HOST "\r\n");
    rig_stop(&rig); /* the end of the server is one too */
    assert_int_equal(rig.gone, 2);
}

static void test_ten_thousand_together(void **state)
{
    enum { COUNT = 10000 };
    struct ms_buf all;
    struct rig rig;

    (void)state;
    ms_buf_init(&all);
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(ms_buf_append(&all, GET, strlen(GET)), 0);
    rig_start(&rig);
    rig_connect(&rig, "");
    rig_send(&rig, ms_buf_str(&all)); /* none is read: the server must wait for us */
    while (rig.requests < COUNT) {
        rig_read(&rig);
        ms_loop_run_once(rig.loop, true);
    }
    rig_expect(&rig, "ok");
    rig_stop(&rig);
    ms_buf_finish(&all);
}

static void test_a_big_answer(void **state)
{
    struct rig rig;

    (void)state;
    rig_start(&rig);
    rig_connect(&rig, "GET /big HTTP/1.1\r\n" HOST "\r\n" GET);
    rig_expect(&rig, "xxxHTTP/1.1 200 OK");
    assert_int_equal(rig.requests, 2);
    rig_stop(&rig);
}

/* Short limits: the clock is the kernel's, the events are waited for. */
static void test_deadlines(void **state)
{
    static const struct {
        const char *bytes, *answer;
    } cases[] = {{"", ""},                         /* idle */
                 {"GET /now HTT", "HTTP/1.1 408"}, /* a head */
                 {"POST /now HTTP/1.1\r\n" HOST "Content-Length: 9\r\n\r\nab",
                  "HTTP/1.1 408"}}; /* a body */
    struct rig rig;

    (void)state;
    rig_start(&rig);
    rig.server.limits = (struct ms_http_limits){
        .idle_ns = 20 * MS_NS_PER_MS, .head_ns = 20 * MS_NS_PER_MS, .send_ns = 1};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rig_connect(&rig, cases[i].bytes);
        rig_expect(&rig, cases[i].answer);
        rig_expect_end(&rig);
    }
    assert_int_equal(rig.requests, 0);
    rig_stop(&rig);
}

/* One byte now and then does not move the deadline. */
static void test_slow_loris(void **state)
{
    int64_t begun_ns = ms_now_ns();
    struct rig rig;

    (void)state;
    rig_start(&rig);
    rig.server.limits.head_ns = 50 * MS_NS_PER_MS;
    rig_connect(&rig, "GET /now HTTP/1.1\r\n");
    while (rig.server.count && ms_now_ns() - begun_ns < 10 * MS_NS_PER_S) {
        struct pollfd p = {.fd = rig.fd, .events = POLLIN};

        if (poll(&p, 1, 5))
            break; /* it says 408 */
        assert_int_equal(send(rig.fd, "A", 1, MSG_NOSIGNAL), 1);
        ms_loop_run_once(rig.loop, true);
    }
    rig_expect(&rig, "HTTP/1.1 408");
    rig_expect_end(&rig);
    rig_stop(&rig);
}

/* A client that takes nothing does not keep its connection. */
static void test_a_client_that_does_not_read(void **state)
{
    struct rig rig;

    (void)state;
    rig_start(&rig);
    rig.server.limits.send_ns = 20 * MS_NS_PER_MS;
    rig_connect(&rig, "GET /big HTTP/1.1\r\n" HOST "\r\n");
    while (rig.server.count)
        ms_loop_run_once(rig.loop, true);
    rig_stop(&rig);
}

/* Who only connects keeps nobody out. */
static void test_the_oldest_stranger_is_cut(void **state)
{
    enum { CROWD = MS_HTTP_UNPROVEN_MAX + 40 };
    int known, crowd[CROWD], fds[2];
    struct rig rig;
    char byte;

    (void)state;
    rig_start(&rig);
    rig_connect(&rig, "GET /now HTTP/1.1\r\n" HOST "\r\n");
    rig_expect(&rig, "ok");
    known = rig.fd;
    for (int i = 0; i < CROWD; i++) {
        const char *half =
            i % 2 ? "GET /now HTTP/1.1\r\n" HOST : "GET /open HTTP/1.1\r\n" HOST "\r\n";

        assert_int_equal(ms_unix_pair(SOCK_STREAM, fds), 0);
        crowd[i] = fds[1];
        assert_int_equal(ms_http_server_add(&rig.server, fds[0], half, strlen(half)),
                         0);
    }
    assert_int_equal(rig.server.unproven_count, MS_HTTP_UNPROVEN_MAX);
    assert_int_equal(rig.server.count, MS_HTTP_UNPROVEN_MAX + 1);
    assert_int_equal(recv(crowd[39], &byte, 1, MSG_DONTWAIT), 0); /* cut */
    assert_int_equal(recv(crowd[41], &byte, 1, MSG_DONTWAIT), -1);
    rig.fd = known;
    rig_send(&rig, "GET /now HTTP/1.1\r\n" HOST "\r\n");
    rig_expect(&rig, "ok");
    for (int i = 0; i < CROWD; i++)
        close(crowd[i]);
    rig_stop(&rig);
}

static void test_too_many_connections(void **state)
{
    struct rig rig;
    int fds[2];

    (void)state;
    rig_start(&rig);
    rig.server.count = MS_HTTP_CONNS_MAX;
    assert_int_equal(ms_unix_pair(SOCK_STREAM, fds), 0);
    assert_int_equal(ms_http_server_add(&rig.server, fds[0], "", 0), -EMFILE);
    rig.server.count = 0;
    rig.fd = fds[1];
    assert_false(rig_read(&rig));
    rig_stop(&rig);
}

static void test_a_body_that_is_made(void **state)
{
    struct rig rig;

    (void)state;
    rig_start(&rig);
    rig_connect(&rig, "GET /made HTTP/1.1\r\n" HOST "\r\n" GET);
    assert_true(rig.made < MADE); /* nobody has read any of it */
    assert_int_equal(rig.requests, 1);
    rig_expect(&rig, "!HTTP/1.1 200 OK"); /* of what was asked behind it */
    assert_int_equal(rig.made, MADE);
    assert_int_equal(rig.made_ends, 1);
    rig_send(&rig, "HEAD /made HTTP/1.1\r\n" HOST "\r\n");
    rig_expect(&rig, "Content-Length: 3145729\r\n\r\n");
    assert_int_equal(rig.made, MADE);
    assert_int_equal(rig.made_ends, 2);
    rig_stop(&rig);
}

static void test_nobody_reads_a_body_that_is_made(void **state)
{
    struct rig rig;

    (void)state;
    rig_start(&rig);
    rig_connect(&rig, "GET /made HTTP/1.1\r\n" HOST "\r\n");
    assert_int_equal(rig.made_ends, 0);
    close(rig.fd);
    rig.fd = -1;
    while (rig.server.count)
        ms_loop_run_once(rig.loop, true);
    assert_int_equal(rig.made_ends, 1);
    rig_stop(&rig);
}

#define PARTS "POST /parts HTTP/1.1\r\n" HOST "Content-Length: 10\r\n\r\n"

/* One that is held takes no more, and goes on where it was. */
static void test_a_body_in_parts(void **state)
{
    struct rig rig;

    (void)state;
    rig_start(&rig);
    rig_connect(&rig, PARTS "abc");
    assert_int_equal(rig.made, 3);
    rig_send(&rig, "defg");
    ms_loop_run_once(rig.loop, true);
    assert_int_equal(rig.made, 3);
    ms_http_conn_go_on(rig.waiting);
    assert_int_equal(rig.made, 7);
    ms_http_conn_go_on(rig.waiting);
    rig_send(&rig, "hij" GET);
    while (rig.made < 10)
        ms_loop_run_once(rig.loop, true);
    assert_int_equal(rig.requests, 0); /* held at its last byte */
    ms_http_conn_go_on(rig.waiting);
    assert_string_equal(rig.body, "");
    rig_expect(&rig, "okHTTP/1.1 200");
    assert_int_equal(rig.requests, 2);
    assert_int_equal(rig.gone, 0);
    rig_stop(&rig);
}

/* Who takes the parts hears once that the rest will not come. */
static void test_the_end_of_a_body_in_parts(void **state)
{
    static const char bad[] =
        "POST /parts HTTP/1.1\r\n" HOST
        "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\nno size\r\n";
    struct rig rig;

    (void)state;
    rig_start(&rig);
    rig_connect(&rig, PARTS "abc");
    close(rig.fd);
    rig.fd = -1;
    while (!rig.gone)
        ms_loop_run_once(rig.loop, true);
    assert_int_equal(rig.server.count, 0);
    rig_connect(&rig, bad);
    ms_http_conn_go_on(rig.waiting);
    assert_int_equal(rig.gone, 2);
    rig_expect(&rig, "HTTP/1.1 400");
    rig_expect_end(&rig);
    rig_connect(&rig, PARTS "abc");
    rig_stop(&rig);
    assert_int_equal(rig.gone, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_body_that_is_made),
        cmocka_unit_test(test_nobody_reads_a_body_that_is_made),
        cmocka_unit_test(test_a_body_in_parts),
        cmocka_unit_test(test_the_end_of_a_body_in_parts),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_the_oldest_stranger_is_cut),
        cmocka_unit_test(test_a_request_that_was_there_at_once),
        cmocka_unit_test(test_continue),
        cmocka_unit_test(test_refused_before_the_body),
        cmocka_unit_test(test_answers_keep_their_order),
        cmocka_unit_test(test_the_end_of_a_waiting_client),
        cmocka_unit_test(test_ten_thousand_together),
        cmocka_unit_test(test_a_big_answer),
        cmocka_unit_test(test_deadlines),
        cmocka_unit_test(test_slow_loris),
        cmocka_unit_test(test_a_client_that_does_not_read),
        cmocka_unit_test(test_too_many_connections),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
