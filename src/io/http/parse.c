/* parse.c - an incremental reader of HTTP/1.1 requests */
#include "io/http/parse.h"
#include "io/http/text.h"

#include <assert.h>
#include <string.h>
#include <strings.h>

void ms_http_parser_init(struct ms_http_parser *p)
{
    memset(p, 0, sizeof *p);
    p->body_max = MS_HTTP_BODY_MAX;
}

void ms_http_parser_finish(struct ms_http_parser *p)
{
    ms_buf_finish(&p->head);
    ms_buf_finish(&p->line);
    ms_buf_finish(&p->body);
}

bool ms_http_parser_is_inside(const struct ms_http_parser *p)
{
    return p->state != MS_HTTP_IN_HEAD || p->head.len > 0 || p->has_skipped;
}

bool ms_http_parser_is_whole(const struct ms_http_parser *p)
{
    return p->state == MS_HTTP_AT_END;
}

void ms_http_parser_next(struct ms_http_parser *p)
{
    assert(p->state == MS_HTTP_AT_END);
    if (p->body.capacity > MS_HTTP_BACKLOG_MAX)
        ms_buf_finish(&p->body); /* an idle connection keeps no big block */
    p->head.len = p->line.len = p->body.len = 0;
    p->line_at = 0;
    p->request = (struct ms_http_request){0};
    p->body_max = MS_HTTP_BODY_MAX;
    p->trailer_size = 0;
    p->taken = 0;
    p->is_streamed = false;
    p->is_chunked = p->has_length = p->has_coding = p->has_host = p->is_1_0 = false;
    p->has_skipped = false;
    p->state = MS_HTTP_IN_HEAD;
}

uint8_t *ms_http_parser_take_body(struct ms_http_parser *p)
{
    uint8_t *data = p->body.data;

    ms_buf_init(&p->body);
    p->request.body = NULL;
    p->request.body_len = 0;
    return data;
}

const char *ms_http_header_find(const struct ms_http_request *r, const char *name)
{
    for (size_t i = 0; i < r->header_count; i++)
        if (strcmp(r->headers[i].name, name) == 0)
            return r->headers[i].value;
    return NULL;
}

static int bad(struct ms_http_parser *p, int status, const char *why)
{
    p->state = MS_HTTP_FAILED;
    p->status = status;
    p->why = why;
    return MS_HTTP_BAD;
}

/* ---- the head -------------------------------------------------------------------- */

static int parse_version(struct ms_http_parser *p, const char *version)
{
    if (strncmp(version, "HTTP/", 5) != 0)
        return bad(p, 400, "the request line does not end with a version of HTTP");
    if (strcmp(version, "HTTP/1.1") != 0 && strcmp(version, "HTTP/1.0") != 0)
        return bad(p, 505, "only HTTP/1.1 and HTTP/1.0 are spoken here");
    p->is_1_0 = version[7] == '0';
    p->request.keep_alive = !p->is_1_0;
    return 0;
}

/* "http://host/path", which a server has to take too. */
static char *skip_origin(char *target)
{
    if (strncasecmp(target, "http://", 7) != 0)
        return target;
    target += 7;
    return strchr(target, '/');
}

static int parse_request_line(struct ms_http_parser *p, char *line)
{
    char *target = strchr(line, ' '),
         *version = target ? strchr(target + 1, ' ') : NULL;

    if (!version)
        return bad(p, 400, "the request line is not method, target and version");
    *target++ = 0;
    *version++ = 0;
    if (!ms_http_is_token(line) || !ms_http_is_target(target))
        return bad(p, 400, "the request line has a character that is not allowed");
    if (parse_version(p, version) < 0)
        return MS_HTTP_BAD;
    target = skip_origin(target);
    if (!target || *target != '/')
        return bad(p, 400, "the target is no path");
    p->request.method = line;
    p->request.path = target;
    target = strchr(target, '?');
    if (target) {
        *target++ = 0;
        p->request.query = target;
    }
    return 0;
}

static int take_length(struct ms_http_parser *p, const char *value)
{
    uint64_t length;

    if (p->has_length)
        return bad(p, 400, "Content-Length is there twice");
    if (!ms_http_parse_decimal(value, &length))
        return bad(p, 400, "Content-Length is no number");
    p->has_length = true;
    p->left = length;
    return 0;
}

static int take_coding(struct ms_http_parser *p, const char *value)
{
    if (p->has_coding)
        return bad(p, 400, "Transfer-Encoding is there twice");
    if (strcasecmp(value, "chunked") != 0)
        return bad(p, 501, "the only transfer coding here is chunked");
    p->has_coding = p->is_chunked = true;
    return 0;
}

static int take_host(struct ms_http_parser *p, const char *value)
{
    (void)value;
    if (p->has_host)
        return bad(p, 400, "Host is there twice");
    p->has_host = true;
    return 0;
}

static int take_expect(struct ms_http_parser *p, const char *value)
{
    if (strcasecmp(value, "100-continue") != 0)
        return bad(p, 417, "only 100-continue can be expected");
    p->request.expects_continue = true;
    return 0;
}

static int take_connection(struct ms_http_parser *p, const char *value)
{
    if (ms_http_list_has(value, "close"))
        p->request.keep_alive = false;
    else if (p->is_1_0 && ms_http_list_has(value, "keep-alive"))
        p->request.keep_alive = true;
    return 0;
}

/* Those that say how the message is framed. */
static int take_header(struct ms_http_parser *p, const struct ms_http_header *h)
{
    static const struct {
        const char *name;
        int (*take)(struct ms_http_parser *p, const char *value);
    } table[] = {{"content-length", take_length},
                 {"transfer-encoding", take_coding},
                 {"host", take_host},
                 {"expect", take_expect},
                 {"connection", take_connection}};

    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (strcmp(h->name, table[i].name) == 0)
            return table[i].take(p, h->value);
    return 0;
}

static int parse_header(struct ms_http_parser *p, char *line)
{
    struct ms_http_request *r = &p->request;
    char *colon = strchr(line, ':');
    struct ms_http_header h;

    if (!colon)
        return bad(p, 400, "a header has no colon");
    if (r->header_count == MS_HTTP_HEADERS_MAX)
        return bad(p, 431, "too many headers");
    *colon = 0;
    if (!ms_http_is_token(line)) /* also a folded line, and a space before the colon */
        return bad(p, 400, "a header's name has a character that is not allowed");
    ms_http_lower(line);
    h = (struct ms_http_header){line, ms_http_trim(colon + 1)};
    if (!ms_http_is_value(h.value))
        return bad(p, 400, "a header's value has a character that is not allowed");
    r->headers[r->header_count++] = h;
    return take_header(p, &h);
}

static int check_head(struct ms_http_parser *p)
{
    if (!p->has_host && !p->is_1_0)
        return bad(p, 400, "there is no Host header");
    if (p->has_length && p->has_coding)
        return bad(p, 400, "both Content-Length and Transfer-Encoding");
    if (p->has_coding && p->is_1_0)
        return bad(p, 400, "HTTP/1.0 knows no transfer coding");
    return 0;
}

/* The head is whole: lines that end with CRLF, then an empty one. */
static int parse_head(struct ms_http_parser *p)
{
    char *at = (char *)p->head.data, *end = at + p->head.len - 2;
    bool is_first = true;

    while (at < end) {
        char *cr = memchr(at, '\r', (size_t)(end - at));

        assert(cr && cr[1] == '\n'); /* end_line has looked */
        *cr = 0;
        if (strlen(at) != (size_t)(cr - at))
            return bad(p, 400, "the head has a NUL");
        if ((is_first ? parse_request_line(p, at) : parse_header(p, at)) < 0)
            return MS_HTTP_BAD;
        is_first = false;
        at = cr + 2;
    }
    if (check_head(p) < 0)
        return MS_HTTP_BAD;
    p->request.has_body = p->is_chunked || p->left > 0;
    p->request.content_length = p->left;
    p->state = p->is_chunked ? MS_HTTP_IN_CHUNK_LINE
               : p->left     ? MS_HTTP_IN_BODY
                             : MS_HTTP_AT_END;
    return MS_HTTP_HEAD;
}

/* A line feed has arrived. */
static int end_line(struct ms_http_parser *p)
{
    size_t len = p->head.len - p->line_at;

    if (len < 2 || p->head.data[p->head.len - 2] != '\r')
        return bad(p, 400, "a line does not end with CRLF");
    if (memchr(p->head.data + p->line_at, '\r', len - 2))
        return bad(p, 400, "a carriage return inside a line");
    if (len > 2) {
        p->line_at = p->head.len;
        return MS_HTTP_MORE;
    }
    if (p->head.len > 2)
        return parse_head(p);
    p->head.len = 0; /* one empty line before a request is forgiven, not two */
    if (p->has_skipped)
        return bad(p, 400, "empty lines instead of a request");
    p->has_skipped = true;
    return MS_HTTP_MORE;
}

static int
feed_head(struct ms_http_parser *p, const uint8_t *data, size_t len, size_t *used)
{
    const uint8_t *lf = memchr(data, '\n', len);
    size_t n = lf ? (size_t)(lf - data) + 1 : len;

    if (p->head.len - p->line_at + n > MS_HTTP_LINE_MAX)
        return bad(p,
                   p->line_at ? 431 : 414,
                   p->line_at ? "a header is too long"
                              : "the request line is too long");
    if (p->head.len + n > MS_HTTP_HEAD_MAX)
        return bad(p, 431, "the headers are too long");
    if (ms_buf_append(&p->head, data, n) < 0)
        return bad(p, 503, "out of memory");
    *used = n;
    return lf ? end_line(p) : MS_HTTP_MORE;
}

/* ---- the body -------------------------------------------------------------------- */

static int
feed_bytes(struct ms_http_parser *p, const uint8_t *data, size_t len, size_t *used)
{
    size_t n = p->left < len ? (size_t)p->left : len;

    if (p->left > p->body_max || p->taken > p->body_max - p->left)
        return bad(p, 413, "the body is too big");
    if (!p->is_streamed && ms_buf_append(&p->body, data, n) < 0)
        return bad(p, 503, "out of memory");
    p->left -= n;
    p->taken += n;
    *used = n;
    if (p->left == 0)
        p->state = p->is_chunked ? MS_HTTP_IN_CHUNK_END : MS_HTTP_AT_END;
    if (!p->is_streamed)
        return MS_HTTP_MORE;
    p->request.body = data;
    p->request.body_len = n;
    return MS_HTTP_PART;
}

/* Collect a line in p->line: 1 when it is whole (without its CRLF, as text), 0, or bad. */
static int
feed_line(struct ms_http_parser *p, const uint8_t *data, size_t len, size_t *used)
{
    const uint8_t *lf = memchr(data, '\n', len);
    size_t n = lf ? (size_t)(lf - data) + 1 : len;
    bool is_trailer = p->state == MS_HTTP_IN_TRAILER;
    char *text;

    if (p->line.len + n > (is_trailer ? MS_HTTP_LINE_MAX : MS_HTTP_CHUNK_LINE_MAX))
        return bad(p, is_trailer ? 431 : 400, "a line of the chunked body is too long");
    if (ms_buf_append(&p->line, data, n) < 0)
        return bad(p, 503, "out of memory");
    *used = n;
    if (!lf)
        return 0;
    text = (char *)p->line.data;
    n = p->line.len;
    if (n < 2 || text[n - 2] != '\r')
        return bad(p, 400, "a line of the chunked body does not end with CRLF");
    text[n - 2] = 0;
    if (strlen(text) != n - 2 || !ms_http_is_value(text))
        return bad(p, 400, "a line of the chunked body has a bad character");
    p->line.len = 0;
    return 1;
}

static int
feed_chunk_line(struct ms_http_parser *p, const uint8_t *data, size_t len, size_t *used)
{
    int rc = feed_line(p, data, len, used);

    if (rc <= 0)
        return rc;
    if (!ms_http_parse_chunk_size((char *)p->line.data, &p->left))
        return bad(p, 400, "the size of a chunk is no hexadecimal number");
    p->state = p->left ? MS_HTTP_IN_CHUNK : MS_HTTP_IN_TRAILER;
    return MS_HTTP_MORE;
}

static int
feed_chunk_end(struct ms_http_parser *p, const uint8_t *data, size_t len, size_t *used)
{
    int rc = feed_line(p, data, len, used);

    if (rc <= 0)
        return rc;
    if (*p->line.data)
        return bad(p, 400, "a chunk is longer than its size");
    p->state = MS_HTTP_IN_CHUNK_LINE;
    return MS_HTTP_MORE;
}

/* Trailers are checked and ignored. */
static int
feed_trailer(struct ms_http_parser *p, const uint8_t *data, size_t len, size_t *used)
{
    int rc = feed_line(p, data, len, used);
    char *line = (char *)p->line.data, *colon;

    p->trailer_size += *used;
    if (p->trailer_size > MS_HTTP_HEAD_MAX)
        return bad(p, 431, "the trailers are too long");
    if (rc <= 0)
        return rc;
    if (!*line) {
        p->state = MS_HTTP_AT_END;
        return MS_HTTP_MORE;
    }
    colon = strchr(line, ':');
    if (colon)
        *colon = 0;
    if (!colon || !ms_http_is_token(line))
        return bad(p, 400, "a trailer is no header");
    return MS_HTTP_MORE;
}

enum ms_http_event ms_http_parser_feed(struct ms_http_parser *p,
                                       const uint8_t *data,
                                       size_t len,
                                       size_t *used)
{
    static int (*const feed[])(struct ms_http_parser *,
                               const uint8_t *,
                               size_t,
                               size_t *) = {[MS_HTTP_IN_HEAD] = feed_head,
                                            [MS_HTTP_IN_BODY] = feed_bytes,
                                            [MS_HTTP_IN_CHUNK_LINE] = feed_chunk_line,
                                            [MS_HTTP_IN_CHUNK] = feed_bytes,
                                            [MS_HTTP_IN_CHUNK_END] = feed_chunk_end,
                                            [MS_HTTP_IN_TRAILER] = feed_trailer};
    int rc = p->state == MS_HTTP_FAILED ? MS_HTTP_BAD : MS_HTTP_MORE;

    *used = 0;
    while (rc == MS_HTTP_MORE && p->state != MS_HTTP_AT_END && *used < len) {
        size_t n = 0;

        rc = feed[p->state](p, data + *used, len - *used, &n);
        *used += n;
    }
    if (rc != MS_HTTP_MORE)
        return (enum ms_http_event)rc;
    if (p->state != MS_HTTP_AT_END)
        return MS_HTTP_MORE;
    p->request.body = p->body.data;
    p->request.body_len = p->body.len;
    return MS_HTTP_REQUEST;
}
