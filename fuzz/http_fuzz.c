/* Requests by HTTP: the same bytes in pieces of any size give the same requests, and what
 * comes out keeps within the limits. */
#include "base/buf.h"
#include "io/http/parse.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BODY_MAX = 1 << 16 };

static uint64_t mix(uint64_t sum, const void *data, size_t len)
{
    const uint8_t *at = data;

    for (size_t i = 0; i < len; i++)
        sum = (sum ^ at[i]) * 1099511628211u;
    return (sum ^ len) * 1099511628211u;
}

/* Touch everything that the request shows. */
static uint64_t mix_request(uint64_t sum, const struct ms_http_request *r)
{
    assert(*r->path == '/' && r->header_count <= MS_HTTP_HEADERS_MAX);
    assert(r->body_len <= BODY_MAX);
    sum = mix(sum, r->method, strlen(r->method));
    sum = mix(sum, r->path, strlen(r->path));
    if (r->query)
        sum = mix(sum, r->query, strlen(r->query));
    for (size_t i = 0; i < r->header_count; i++) {
        sum = mix(sum, r->headers[i].name, strlen(r->headers[i].name));
        sum = mix(sum, r->headers[i].value, strlen(r->headers[i].value));
    }
    return mix(sum, r->body, r->body_len);
}

/* All requests in it, `step` bytes at a time, with or without their bodies in parts; how it ended is
 * part of the sum. */
static uint64_t parse_all(const uint8_t *data, size_t size, size_t step, bool streams)
{
    struct ms_buf parts = {0};
    struct ms_http_parser p;
    uint64_t sum = 14695981039346656037u;
    enum ms_http_event event = MS_HTTP_MORE;
    size_t at = 0;

    ms_http_parser_init(&p);
    while (event != MS_HTTP_BAD && (at < size || ms_http_parser_is_whole(&p))) {
        size_t n = size - at < step ? size - at : step, used;

        event = ms_http_parser_feed(&p, data + at, n, &used);
        assert(used <= n && (event != MS_HTTP_MORE || used == n));
        at += used;
        if (event == MS_HTTP_HEAD) {
            p.body_max = BODY_MAX;
            p.is_streamed = streams;
        }
        if (event == MS_HTTP_PART &&
            ms_buf_append(&parts, p.request.body, p.request.body_len) < 0)
            abort();
        if (event == MS_HTTP_REQUEST) {
            if (streams) {
                assert(!p.request.body_len);
                p.request.body = parts.data;
                p.request.body_len = parts.len;
                parts.len = 0;
            }
            sum = mix_request(sum, &p.request);
            ms_http_parser_next(&p);
        }
    }
    if (event == MS_HTTP_BAD)
        sum = mix(sum, &p.status, sizeof p.status);
    ms_http_parser_finish(&p);
    ms_buf_finish(&parts);
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t whole = parse_all(data, size, size ? size : 1, false);

    assert(parse_all(data, size, 1, false) == whole);
    assert(parse_all(data, size, 3, true) == whole);
    assert(parse_all(data, size, 7, false) == whole);
    return 0;
}
