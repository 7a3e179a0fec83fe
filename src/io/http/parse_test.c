/* Every request is fed in one piece, byte by byte, and in all pairs of pieces; and all of this
 * again with bodies that come in parts. */
#include "io/http/parse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define HOST "Host: a\r\n"

static bool streams;

struct found {
    int requests, status; /* status: of what was refused */
    char path[64], query[64], body[64], header[64];
    size_t parts_len;
    char parts[64];
    bool keep_alive, expects_continue;
};

static void look(struct found *f, const struct ms_http_request *r)
{
    const char *header = ms_http_header_find(r, "x-test");

    f->requests++;
    f->keep_alive = r->keep_alive;
    f->expects_continue = r->expects_continue;
    strcpy(f->path, r->path);
    strcpy(f->query, r->query ? r->query : "(none)");
    strcpy(f->header, header ? header : "(none)");
    if (streams) {
        assert_int_equal(r->body_len, 0);
        memcpy(f->body, f->parts, f->parts_len);
        f->body[f->parts_len] = 0;
        f->parts_len = 0;
        memset(f->parts, 0, sizeof f->parts);
        return;
    }
    assert_true(r->body_len < sizeof f->body);
    memcpy(f->body, r->body_len ? r->body : (const void *)"", r->body_len);
    f->body[r->body_len] = 0;
}

static void take_part(struct found *f, const struct ms_http_request *r)
{
    assert_true(streams && r->body_len > 0 &&
                r->body_len < sizeof f->parts - f->parts_len);
    memcpy(f->parts + f->parts_len, r->body, r->body_len);
    f->parts_len += r->body_len;
}

/* Feed one piece; false when it was refused. */
static bool
feed(struct ms_http_parser *p, struct found *f, const char *data, size_t len)
{
    enum ms_http_event event;

    while (len || ms_http_parser_is_whole(p)) {
        /* in memory of its own: reading beyond it is seen */
        uint8_t *piece = malloc(len ? len : 1);
        size_t used;

        memcpy(piece, data, len);
        event = ms_http_parser_feed(p, piece, len, &used);
        if (event == MS_HTTP_PART)
            take_part(f, &p->request);
        free(piece);
        if (event == MS_HTTP_HEAD)
            p->is_streamed = streams;
        data += used;
        len -= used;
        if (event == MS_HTTP_BAD) {
            f->status = p->status;
            assert_non_null(p->why);
            return false;
        }
        if (event == MS_HTTP_REQUEST) {
            look(f, &p->request);
            ms_http_parser_next(p);
            assert_false(ms_http_parser_is_inside(p));
        }
    }
    return true;
}

static struct found feed_split(const char *text, size_t len, size_t first, size_t step)
{
    struct ms_http_parser p;
    struct found f = {0};
    bool ok;

    ms_http_parser_init(&p);
    ok = feed(&p, &f, text, first);
    for (size_t at = first; ok && at < len; at += step)
        ok = feed(&p, &f, text + at, len - at < step ? len - at : step);
    ms_http_parser_finish(&p);
    return f;
}

static struct found parse_bytes(const char *text, size_t len)
{
    struct found whole = feed_split(text, len, len, 1), f;

    for (size_t first = 0; first <= len && len < 400; first++) {
        f = feed_split(text, len, first, len);
        assert_memory_equal(&f, &whole, sizeof f);
    }
    f = feed_split(text, len, 0, 1);
    assert_memory_equal(&f, &whole, sizeof f);
    return whole;
}

static struct found parse(const char *text)
{
    return parse_bytes(text, strlen(text));
}

static void refused(const char *text, int status)
{
    struct found f = parse(text);

    if (f.status != status || f.requests)
        fail_msg(
            "%d and %d requests instead of %d: %s", f.status, f.requests, status, text);
}

static void test_a_plain_request(void **state)
{
    struct found f = parse("GET /health?a=1 HTTP/1.1\r\n" HOST "X-Test:  v w \r\n\r\n");

    (void)state;
    assert_int_equal(f.requests, 1);
    assert_string_equal(f.path, "/health");
    assert_string_equal(f.query, "a=1");
    assert_string_equal(f.header, "v w");
    assert_true(f.keep_alive);
    f = parse("\r\nGET http://h:1/p HTTP/1.1\r\n" HOST "\r\n");
    assert_int_equal(f.requests, 1);
    assert_string_equal(f.path, "/p");
}

static void test_bodies(void **state)
{
    struct found f =
        parse("POST /c HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nhello");

    (void)state;
    assert_int_equal(f.requests, 1);
    assert_string_equal(f.body, "hello");
    f = parse("POST /c HTTP/1.1\r\n" HOST "content-length: 0\r\n\r\n");
    assert_int_equal(f.requests, 1);
    f = parse("POST /c HTTP/1.1\r\n" HOST "Transfer-Encoding: Chunked\r\n\r\n"
              "2;x=\"y\"\r\nhe\r\n03\r\nllo\r\n0\r\nX-Trailer: 1\r\n\r\n");
    assert_int_equal(f.requests, 1);
    assert_string_equal(f.body, "hello");
}

static void test_pipelined(void **state)
{
    struct found f = parse("GET /1 HTTP/1.1\r\n" HOST "\r\n"
                           "POST /2 HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\nab"
                           "POST /3 HTTP/1.1\r\n" HOST
                           "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"
                           "GET /4 HTTP/1.1\r\n" HOST "\r\n");

    (void)state;
    assert_int_equal(f.requests, 4);
    assert_string_equal(f.path, "/4");
    assert_string_equal(f.body, "");
}

static void test_keep_alive(void **state)
{
    (void)state;
    assert_false(parse("GET / HTTP/1.0\r\n\r\n").keep_alive);
    assert_true(parse("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n").keep_alive);
    assert_false(
        parse("GET / HTTP/1.1\r\n" HOST "Connection: x, close\r\n\r\n").keep_alive);
}

static void test_expect(void **state)
{
    (void)state;
    assert_true(parse("POST / HTTP/1.1\r\n" HOST "Expect: 100-Continue\r\n"
                      "Content-Length: 1\r\n\r\nx")
                    .expects_continue);
    refused("GET / HTTP/1.1\r\n" HOST "Expect: cake\r\n\r\n", 417);
}

/* What another server might read otherwise. */
static void test_smuggling(void **state)
{
    static const char *const bad[] = {
        "POST / HTTP/1.1\r\n" HOST
        "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.1\r\n" HOST
        "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n",
        "POST / HTTP/1.1\r\n" HOST "Content-Length: 1\r\nContent-Length: 1\r\n\r\nx",
        "POST / HTTP/1.1\r\n" HOST "Content-Length: 1\r\nContent-Length: 2\r\n\r\nx",
        "POST / HTTP/1.1\r\n" HOST "Content-Length: 1, 1\r\n\r\nx",
        "POST / HTTP/1.1\r\n" HOST "Content-Length: +1\r\n\r\nx",
        "POST / HTTP/1.1\r\n" HOST "Content-Length: -1\r\n\r\nx",
        "POST / HTTP/1.1\r\n" HOST "Content-Length: 0x1\r\n\r\nx",
        "POST / HTTP/1.1\r\n" HOST "Content-Length:\r\n\r\n",
        "POST / HTTP/1.1\r\n" HOST "Content-Length: 99999999999999999999\r\n\r\n",
        "POST / HTTP/1.1\r\n" HOST "Content-Length : 1\r\n\r\nx",
        "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding : chunked\r\n\r\n",
        "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n"
        "Transfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "GET / HTTP/1.1\r\n" HOST "A: b\r\n c\r\n\r\n", /* folded */
        "GET / HTTP/1.1\r\n" HOST "A: b\r\n\tc\r\n\r\n",
        "GET / HTTP/1.1\r\n" HOST "A: b\rc\r\n\r\n", /* bare CR */
        "GET / HTTP/1.1\r\n" HOST "A: b\n\r\n",      /* bare LF */
        "GET / HTTP/1.1\n" HOST "\n",
        "GET / HTTP/1.1\r\n" HOST HOST "\r\n",
        "GET / HTTP/1.1\r\n\r\n", /* no Host */
        "GET / HTTP/1.1\r\n" HOST "no colon\r\n\r\n",
        "GET / HTTP/1.1\r\n" HOST ": nameless\r\n\r\n",
        "GET / HTTP/1.1\r\n" HOST "A\x01: b\r\n\r\n",
        "GET / HTTP/1.1\r\n" HOST "A: b\x01\r\n\r\n",
        "\r\n\r\nGET / HTTP/1.1\r\n" HOST "\r\n",
        "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n",
        "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n2\nab\r\n",
        "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n-1\r\n",
        "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n2;\rx\r\nab\r\n",
        "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n\r\n",
        "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0\r\nbad\r\n\r\n",
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        refused(bad[i], 400);
    refused("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip, chunked\r\n\r\n", 501);
    refused("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: identity\r\n\r\n", 501);
}

static void test_request_lines(void **state)
{
    static const char nul[] = "GET /\0 HTTP/1.1\r\n" HOST "\r\n";

    (void)state;
    refused("GET /\r\n" HOST "\r\n", 400);
    refused("GET  / HTTP/1.1\r\n" HOST "\r\n", 400);
    refused("GET / HTTP/1.1 \r\n" HOST "\r\n", 505);
    refused("GET / FTP/1.1\r\n" HOST "\r\n", 400);
    refused("GET / HTTP/2.0\r\n" HOST "\r\n", 505);
    refused("G(T / HTTP/1.1\r\n" HOST "\r\n", 400);
    refused("GET relative HTTP/1.1\r\n" HOST "\r\n", 400);
    refused("GET /\x80 HTTP/1.1\r\n" HOST "\r\n", 400);
    refused("CONNECT a:1 HTTP/1.1\r\n" HOST "\r\n", 400);
    assert_int_equal(parse_bytes(nul, sizeof nul - 1).status, 400);
}

/* `count` headers of `size` bytes. */
static char *many_headers(unsigned count, size_t size)
{
    struct ms_buf b;

    ms_buf_init(&b);
    ms_buf_printf(&b, "GET / HTTP/1.1\r\n" HOST);
    for (unsigned i = 0; i < count; i++)
        ms_buf_printf(&b, "X: %0*d\r\n", (int)size, 7);
    ms_buf_printf(&b, "\r\n");
    assert_non_null(ms_buf_str(&b));
    return (char *)b.data;
}

static void test_limits(void **state)
{
    static const struct {
        unsigned count;
        size_t size;
        int status;
    } cases[] = {{MS_HTTP_HEADERS_MAX - 1, 1, 0},
                 {MS_HTTP_HEADERS_MAX, 1, 431},
                 {1, MS_HTTP_LINE_MAX - 5, 0},
                 {1, MS_HTTP_LINE_MAX - 4, 431},
                 {8, MS_HTTP_HEAD_MAX / 8, 431}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *text = many_headers(cases[i].count, cases[i].size);
        struct found f = parse(text);

        assert_int_equal(f.status, cases[i].status);
        assert_int_equal(f.requests, cases[i].status ? 0 : 1);
        free(text);
    }
}

static void test_a_long_target(void **state)
{
    char *text = malloc(MS_HTTP_LINE_MAX + 64);

    (void)state;
    memset(text, 'a', MS_HTTP_LINE_MAX + 8);
    memcpy(text, "GET /", 5);
    strcpy(text + MS_HTTP_LINE_MAX + 8, " HTTP/1.1\r\n");
    assert_int_equal(parse(text).status, 414);
    free(text);
}

/* The body's limit is set when the head is known. */
static void test_body_limit(void **state)
{
    static const char head[] = "POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\n";
    static const char chunked[] =
        "POST / HTTP/1.1\r\n" HOST
        "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n3\r\nabc\r\n";
    struct ms_http_parser p;
    size_t used;

    (void)state;
    ms_http_parser_init(&p);
    assert_int_equal(
        ms_http_parser_feed(&p, (const uint8_t *)head, strlen(head), &used),
        MS_HTTP_HEAD);
    assert_int_equal(p.request.content_length, 5);
    p.body_max = 4;
    assert_int_equal(ms_http_parser_feed(&p, (const uint8_t *)"a", 1, &used),
                     MS_HTTP_BAD);
    assert_int_equal(p.status, 413);
    ms_http_parser_finish(&p);

    ms_http_parser_init(&p);
    assert_int_equal(
        ms_http_parser_feed(&p, (const uint8_t *)chunked, strlen(chunked), &used),
        MS_HTTP_HEAD);
    p.body_max = 5;
    assert_int_equal(
        ms_http_parser_feed(
            &p, (const uint8_t *)chunked + used, strlen(chunked) - used, &used),
        MS_HTTP_BAD);
    assert_int_equal(p.status, 413);
    ms_http_parser_finish(&p);
}

static void test_taken_body(void **state)
{
    static const char text[] = "POST / HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\nab";
    struct ms_http_parser p;
    uint8_t *body;
    size_t used, more;

    (void)state;
    ms_http_parser_init(&p);
    assert_int_equal(
        ms_http_parser_feed(&p, (const uint8_t *)text, strlen(text), &used),
        MS_HTTP_HEAD);
    assert_int_equal(ms_http_parser_feed(
                         &p, (const uint8_t *)text + used, strlen(text) - used, &more),
                     MS_HTTP_REQUEST);
    body = ms_http_parser_take_body(&p);
    assert_memory_equal(body, "ab", 2);
    ms_http_parser_next(&p);
    ms_http_parser_finish(&p);
    free(body);
}

static int setup_whole(void **state)
{
    (void)state;
    streams = false;
    return 0;
}

static int setup_streamed(void **state)
{
    (void)state;
    streams = true;
    return 0;
}

/* clang-format off */
#define BOTH(test)                                                                        \
    {#test "_whole", test, setup_whole, NULL, NULL},                                      \
    {#test "_streamed", test, setup_streamed, NULL, NULL}
/* clang-format on */

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(test_a_plain_request),
        BOTH(test_bodies),
        BOTH(test_pipelined),
        BOTH(test_keep_alive),
        BOTH(test_expect),
        BOTH(test_smuggling),
        BOTH(test_request_lines),
        BOTH(test_limits),
        BOTH(test_a_long_target),
        BOTH(test_body_limit),
        BOTH(test_taken_body),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
