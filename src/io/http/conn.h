/* conn.h - the connections of an HTTP/1.1 server, on the loop
 *
 * A connection reads requests, hands them out one at a time, and sends their answers in
 * order. Requests that were sent together are answered together, with one write. While a
 * request waits for its answer nothing after it is begun, but the end of the connection
 * is still seen.
 *
 * Deadlines: for the head of a request (a client that sends a byte now and then is cut), for its
 * body by a least rate, for a client that does not take its answer, and for one that has
 * nothing to say. A request that is being worked on has none.
 *
 * A connection is proven once on_head has let a request pass that is not public. There are at
 * most `unproven_max` that are not: for a new one the oldest of them is cut, so that
 * strangers who connect and say nothing keep nobody out.
 *
 * A body may be taken as it arrives, and one may be made while it is sent. Who has to wait
 * meanwhile, for memory or for a disk, holds the connection: then nothing more of it comes or
 * goes, and it has no deadline, until it is told to go on.
 *
 * Everything happens on the loop's thread. A connection belongs to its server; it ends
 * when the client does, after an answer that says so, or with the server.
 */
#ifndef MS_IO_HTTP_CONN_H
#define MS_IO_HTTP_CONN_H

#include "base/list.h"
#include "io/http/parse.h"
#include "io/loop.h"

#include <jansson.h>

struct ms_http_conn;

struct ms_http_conn_ops {
    /* The head is there, the body is not: 0 to go on, or a status to refuse it with; the
     * reason goes to *why. *body_max may be lowered. */
    int (*on_head)(void *arg,
                   const struct ms_http_request *r,
                   uint64_t *body_max,
                   const char **why);
    /* This request needs no token: it does not prove that its connection may be here. May be NULL:
     * then all that on_head lets pass does. */
    bool (*is_public)(void *arg, const struct ms_http_request *r);
    /* A whole request, borrowed until this returns: answer it once, now or later. */
    void (*on_request)(void *arg,
                       struct ms_http_conn *c,
                       const struct ms_http_request *r);
    /* Is the body of this request, which on_head has let pass, taken as it arrives? Then
     * on_part is given all of it, with the tag that was set here, before on_request comes
     * without it; on_gone comes if that does not. May be NULL: no. */
    bool (*takes_parts)(void *arg,
                        struct ms_http_conn *c,
                        const struct ms_http_request *r);
    void (*on_part)(void *arg, void *tag, const uint8_t *data, size_t len);
    /* The client is gone, and its request was not answered: it cannot be any more. `tag`
     * is what ms_http_conn_set_tag left. May be NULL. */
    void (*on_gone)(void *arg, void *tag);
    bool has_problems; /* errors as application/problem+json (RFC 9457) */
};

struct ms_http_limits {
    int64_t idle_ns, head_ns, send_ns; /* 0: as in limits.h */
};

struct ms_http_server {
    struct ms_loop *loop;
    const struct ms_http_conn_ops *ops;
    void *arg;
    struct ms_http_limits limits;
    struct ms_list conns;
    struct ms_list unproven; /* of these, oldest first */
    unsigned count, unproven_count;
    unsigned conns_max;    /* MS_HTTP_CONNS_MAX unless told otherwise */
    unsigned unproven_max; /* MS_HTTP_UNPROVEN_MAX unless told otherwise */
};

void ms_http_server_init(struct ms_http_server *s,
                         struct ms_loop *loop,
                         const struct ms_http_conn_ops *ops,
                         void *arg);
/* Close all connections (with on_gone). Not inside a callback of one. Idempotent. */
void ms_http_server_finish(struct ms_http_server *s);
/* In a forked child: close the descriptors, and no more. */
void ms_http_server_forget(struct ms_http_server *s);

/* Serve a connected socket, which is taken over, also on failure; `bytes` were read from
 * it already. 0, -ENOMEM, or -EMFILE: there are `conns_max` that are proven. Not inside
 * a callback of a connection. */
int ms_http_server_add(struct ms_http_server *s, int fd, const void *bytes, size_t len);

/* What on_gone is told about the request that waits. */
void ms_http_conn_set_tag(struct ms_http_conn *c, void *tag);
const struct ms_http_conn_ops *ms_http_conn_ops_of(const struct ms_http_conn *c);
/* The socket, for its addresses. */
int ms_http_conn_fd(const struct ms_http_conn *c);
/* The body's memory, now the caller's (free). In on_request only; NULL: it has none. */
uint8_t *ms_http_conn_take_body(struct ms_http_conn *c);
/* What was left; NULL: nothing. */
void *ms_http_conn_tag(const struct ms_http_conn *c);
/* In on_part, or in `read` of a source: wait until ms_http_conn_go_on, which may end the
 * connection and is not called inside of its callbacks. */
void ms_http_conn_hold(struct ms_http_conn *c);
void ms_http_conn_go_on(struct ms_http_conn *c);

/* Answer the request that waits; the connection may be gone afterwards. `type` is the
 * Content-Type; `more` are further header lines, each with its CRLF, or NULL. */
void ms_http_conn_reply(struct ms_http_conn *c,
                        int status,
                        const char *type,
                        const char *more,
                        const void *body,
                        size_t len);
/* A body that is made while it is sent: `read` gives the next bytes, at most `room`, and `finish`
 * comes once, whatever happens. None: it holds the connection, or there will be no more, and
 * the connection is cut. */
struct ms_http_source {
    size_t (*read)(void *arg, uint8_t *out, size_t room);
    void (*finish)(void *arg);
    void *arg;
};
/* The same with such a body of `len` bytes. */
void ms_http_conn_reply_from(struct ms_http_conn *c,
                             int status,
                             const char *type,
                             uint64_t len,
                             const struct ms_http_source *from);
/* The same with JSON, which is taken (NULL: out of memory, and that is the answer). */
void ms_http_reply_json(struct ms_http_conn *c, int status, json_t *json);

/* {"status": "error", "error": text}, or a problem. `more` as above. */
void ms_http_conn_fail_with(struct ms_http_conn *c,
                            int status,
                            const char *more,
                            const char *text);
void ms_http_conn_fail(struct ms_http_conn *c, int status, const char *text);

#endif
