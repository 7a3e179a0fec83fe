/* parse.h - an incremental reader of HTTP/1.1 requests
 *
 * Pure: bytes in, events out. Bytes may come in any pieces. What could be understood in
 * two ways is refused, because a proxy in front of us may have understood the other one:
 * a length given twice or beside a transfer coding, folded headers, spaces before a colon,
 * line ends other than CRLF, control characters.
 *
 *     ms_http_parser_init(&p);
 *     while (len) {
 *         switch (ms_http_parser_feed(&p, data, len, &used)) { ... }
 *         data += used, len -= used;
 *     }
 *
 * After MS_HTTP_HEAD the request's head can be read and refused before any of its body is
 * kept; p.body_max may be set then, and p.is_streamed: the body is not kept, but comes in
 * parts. Feed again, even if there are no more bytes, once ms_http_parser_is_whole: a request
 * without a body is. After MS_HTTP_REQUEST all of it can be read until
 * ms_http_parser_next, which must come before the next bytes. After MS_HTTP_BAD there is
 * no way to know where the next request would begin: answer p.status and close.
 */
#ifndef MS_IO_HTTP_PARSE_H
#define MS_IO_HTTP_PARSE_H

#include "base/buf.h"
#include "base/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ms_http_header {
    const char *name; /* in lower case */
    const char *value;
};

struct ms_http_request {
    const char *method, *path; /* as sent: nothing is decoded */
    const char *query;         /* behind '?'; NULL: none */
    struct ms_http_header headers[MS_HTTP_HEADERS_MAX];
    size_t header_count;
    bool keep_alive;       /* the client wants to go on after this one */
    bool expects_continue; /* it waits for 100 before it sends the body */
    bool has_body;
    uint64_t content_length; /* as told; 0: none, or chunked */
    const uint8_t *body;     /* or a part of it, until the next bytes */
    size_t body_len;
};

enum ms_http_event {
    MS_HTTP_BAD = -1,
    MS_HTTP_MORE = 0, /* all was used, more is needed */
    MS_HTTP_HEAD = 1,
    MS_HTTP_REQUEST = 2,
    MS_HTTP_PART = 3 /* of the body, if it is streamed */
};

enum ms_http_state {
    MS_HTTP_IN_HEAD,
    MS_HTTP_IN_BODY,
    MS_HTTP_IN_CHUNK_LINE,
    MS_HTTP_IN_CHUNK,
    MS_HTTP_IN_CHUNK_END, /* the CRLF behind it */
    MS_HTTP_IN_TRAILER,
    MS_HTTP_AT_END,
    MS_HTTP_FAILED
};

struct ms_http_parser {
    struct ms_http_request request;
    uint64_t body_max; /* MS_HTTP_BODY_MAX unless told otherwise; for each request */
    bool is_streamed;  /* false, the same */
    int status;        /* once it is bad: 4xx or 5xx */
    const char *why;   /* and for people */

    enum ms_http_state state;
    struct ms_buf head, line, body;
    size_t line_at;      /* in head: where the line that arrives began */
    uint64_t left;       /* of the body, or of the chunk */
    uint64_t taken;      /* of the body, so far */
    size_t trailer_size; /* so far */
    bool is_chunked, has_length, has_coding, has_host, is_1_0;
    bool has_skipped; /* an empty line before the request */
};

void ms_http_parser_init(struct ms_http_parser *p);
void ms_http_parser_finish(struct ms_http_parser *p);

enum ms_http_event ms_http_parser_feed(struct ms_http_parser *p,
                                       const uint8_t *data,
                                       size_t len,
                                       size_t *used);
/* Something of a request has arrived. */
bool ms_http_parser_is_inside(const struct ms_http_parser *p);
/* All of a request has arrived. */
bool ms_http_parser_is_whole(const struct ms_http_parser *p);
/* Forget the request that was whole. */
void ms_http_parser_next(struct ms_http_parser *p);
/* The body's memory, now the caller's (free); NULL: it has none, or no memory. */
uint8_t *ms_http_parser_take_body(struct ms_http_parser *p);

/* The value of a header (name in lower case); NULL: there is none. */
const char *ms_http_header_find(const struct ms_http_request *r, const char *name);

#endif
