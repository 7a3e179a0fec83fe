/* conn.c - the connections of an HTTP/1.1 server */
#include "io/http/conn.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "io/http/text.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

enum {
    READ_SIZE = 64 << 10,
    SOURCE_SIZE = 64 << 10, /* made of a body at a time */
    TURN_SIZE = 1 << 20     /* of a body, then others have their turn */
};

struct ms_http_conn {
    struct ms_list link, unproven;
    struct ms_http_server *server;
    int fd;
    struct ms_watch watch;
    struct ms_timer timer;
    int64_t deadline_ns; /* the timer may fire earlier and looks at this */
    int64_t begun_ns;    /* the request that arrives */
    int64_t sent_ns;     /* the last progress of sending */
    int64_t held_ns;     /* since when it is held */

    struct ms_http_parser parser;
    struct ms_buf in; /* read, not parsed: behind a request that waits */
    size_t in_at;
    struct ms_buf out;
    size_t out_at;
    struct ms_http_source source; /* of the answer's body behind `out` */
    uint64_t source_left;
    void *tag;
    bool is_waiting; /* a request is out */
    bool is_head;    /* it is a HEAD */
    bool is_taken;   /* a request arrives whose parts are taken */
    bool is_held;
    bool close_after;
    bool is_refused;   /* something of it was not read */
    bool is_lingering; /* all is said; it is read until the client has heard it */
    bool is_inside;    /* its callbacks, or its work: it is not freed meanwhile */
    bool is_over;
};

/* ---- the end --------------------------------------------------------------------- */

static void set_proven(struct ms_http_conn *c)
{
    if (ms_list_is_empty(&c->unproven))
        return;
    ms_list_remove(&c->unproven);
    c->server->unproven_count--;
}

static void source_finish(struct ms_http_conn *c)
{
    if (c->source.finish)
        c->source.finish(c->source.arg);
    c->source = (struct ms_http_source){0};
    c->source_left = 0;
}

/* Who has the request that waits, or takes its parts, hears that it goes. */
static void tell_gone(struct ms_http_conn *c)
{
    const struct ms_http_server *s = c->server;

    if ((c->is_waiting || c->is_taken) && s->ops->on_gone)
        s->ops->on_gone(s->arg, c->tag);
    c->is_taken = c->is_held = false;
    c->tag = NULL;
}

static void conn_free(struct ms_http_conn *c)
{
    assert(!c->is_inside);
    ms_list_remove(&c->link);
    set_proven(c);
    c->server->count--;
    ms_watch_finish(&c->watch);
    ms_timer_finish(&c->timer);
    ms_http_parser_finish(&c->parser);
    ms_buf_finish(&c->in);
    ms_buf_finish(&c->out);
    source_finish(c);
    ms_fd_close(&c->fd);
    tell_gone(c);
    free(c);
}

/* A socket that is closed with something unread takes back what was sent: the client would
 * not hear why it was refused. */
static void linger(struct ms_http_conn *c)
{
    shutdown(c->fd, SHUT_WR);
    c->is_lingering = true;
    ms_watch_set(&c->watch, MS_READ);
    c->deadline_ns = 0;
    ms_timer_set(&c->timer, MS_HTTP_LINGER_NS);
}

/* ---- answers --------------------------------------------------------------------- */

static bool is_out(const struct ms_http_conn *c)
{
    return c->out.len > c->out_at || c->source_left > 0;
}

/* The next bytes of a body that is made while it is sent. */
static int refill(struct ms_http_conn *c)
{
    size_t room = c->source_left < SOURCE_SIZE ? (size_t)c->source_left : SOURCE_SIZE;

    c->out_at = c->out.len = 0;
    if (ms_buf_reserve(&c->out, room) < 0)
        return -ENOMEM;
    c->out.len = c->source.read(c->source.arg, c->out.data, room);
    c->source_left -= c->out.len;
    if (!c->source_left)
        source_finish(c);
    return 0;
}

/* 0: all is sent; 1: the socket is full, it is held, or others have their turn; or a negative
 * errno. */
static int flush(struct ms_http_conn *c)
{
    size_t made = 0;

    while (is_out(c)) {
        if (c->out_at == c->out.len) {
            if (made >= TURN_SIZE || c->is_held)
                return 1;
            made += SOURCE_SIZE;
            if (refill(c) < 0)
                return -ENOMEM;
            if (!c->out.len)
                return c->is_held ? 1 : -EIO;
        }
        ssize_t n = send(c->fd,
                         c->out.data + c->out_at,
                         c->out.len - c->out_at,
                         MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN ? 1 : -errno;
        c->out_at += (size_t)n;
        c->sent_ns = ms_now_ns();
    }
    c->out_at = c->out.len = 0;
    if (c->out.capacity > MS_HTTP_BACKLOG_MAX)
        ms_buf_finish(&c->out);
    return 0;
}

static int put_head(struct ms_http_conn *c,
                    int status,
                    const char *type,
                    const char *more,
                    uint64_t len)
{
    int rc =
        ms_buf_printf(&c->out, "HTTP/1.1 %d %s\r\n", status, ms_http_reason(status));

    if (rc == 0 && status != 204) /* has no body, and says so by having no length */
        rc = ms_buf_printf(
            &c->out, "Content-Type: %s\r\nContent-Length: %" PRIu64 "\r\n", type, len);
    return rc < 0 ? rc
                  : ms_buf_printf(&c->out,
                                  "%s%s\r\n",
                                  more ? more : "",
                                  c->close_after ? "Connection: close\r\n" : "");
}

static void put_reply(struct ms_http_conn *c,
                      int status,
                      const char *type,
                      const char *more,
                      const void *body,
                      size_t len)
{
    size_t before = c->out.len;

    if (put_head(c, status, type, more, len) == 0 &&
        (c->is_head || ms_buf_append(&c->out, body, len) == 0))
        return;
    c->out.len = before; /* no memory: half an answer is none */
    c->close_after = true;
    c->is_over = before == c->out_at;
}

static void go_on(struct ms_http_conn *c);

static void reply_begin(struct ms_http_conn *c)
{
    assert(c->is_waiting);
    c->is_waiting = false;
    c->tag = NULL;
    c->begun_ns = ms_now_ns(); /* idle from now on */
}

void ms_http_conn_reply(struct ms_http_conn *c,
                        int status,
                        const char *type,
                        const char *more,
                        const void *body,
                        size_t len)
{
    reply_begin(c);
    put_reply(c, status, type, more, body, len);
    if (!c->is_inside)
        go_on(c); /* what was sent behind it */
}

void ms_http_conn_reply_from(struct ms_http_conn *c,
                             int status,
                             const char *type,
                             uint64_t len,
                             const struct ms_http_source *from)
{
    reply_begin(c);
    c->source = *from;
    if (put_head(c, status, type, NULL, len) < 0)
        c->is_over = true;
    else if (!c->is_head)
        c->source_left = len;
    if (!c->source_left)
        source_finish(c);
    if (!c->is_inside)
        go_on(c);
}

void ms_http_conn_set_tag(struct ms_http_conn *c, void *tag)
{
    c->tag = tag;
}

const struct ms_http_conn_ops *ms_http_conn_ops_of(const struct ms_http_conn *c)
{
    return c->server->ops;
}

int ms_http_conn_fd(const struct ms_http_conn *c)
{
    return c->fd;
}

uint8_t *ms_http_conn_take_body(struct ms_http_conn *c)
{
    return ms_http_parser_take_body(&c->parser);
}

void *ms_http_conn_tag(const struct ms_http_conn *c)
{
    return c->tag;
}

void ms_http_conn_hold(struct ms_http_conn *c)
{
    if (!c->is_held)
        c->held_ns = ms_now_ns();
    c->is_held = true;
}

void ms_http_conn_go_on(struct ms_http_conn *c)
{
    int64_t now_ns = ms_now_ns();

    assert(c->is_held && !c->is_inside);
    c->is_held = false;
    c->begun_ns += now_ns - c->held_ns;
    c->sent_ns = now_ns;
    go_on(c);
}

/* ---- requests -------------------------------------------------------------------- */

/* Refuse what arrives, and no more after it: where its body ends nobody wants to know. */
static void refuse(struct ms_http_conn *c, int status, const char *why)
{
    tell_gone(c);
    c->close_after = c->is_refused = true;
    c->is_waiting = true;
    ms_http_conn_fail(c, status, why);
}

static void on_head(struct ms_http_conn *c)
{
    const struct ms_http_server *s = c->server;
    const struct ms_http_request *r = &c->parser.request;
    const char *why = NULL;
    int status = s->ops->on_head(s->arg, r, &c->parser.body_max, &why);

    if (!status && (!s->ops->is_public || !s->ops->is_public(s->arg, r)))
        set_proven(c);
    c->is_head = strcmp(r->method, "HEAD") == 0;
    if (!status && r->content_length > c->parser.body_max) {
        status = 413;
        why = "the body is too big";
    }
    if (status) {
        refuse(c, status, why ? why : ms_http_reason(status));
        return;
    }
    c->is_taken = c->parser.is_streamed =
        r->has_body && s->ops->takes_parts && s->ops->takes_parts(s->arg, c, r);
    if (r->expects_continue && r->has_body)
        ms_buf_printf(&c->out, "HTTP/1.1 100 Continue\r\n\r\n");
}

static void on_whole(struct ms_http_conn *c)
{
    if (!c->parser.request.keep_alive)
        c->close_after = true;
    c->is_taken = false;
    c->is_waiting = true;
    c->server->ops->on_request(c->server->arg, c, &c->parser.request);
    ms_http_parser_next(&c->parser);
}

/* May more of what was read be parsed? */
static bool is_open(const struct ms_http_conn *c)
{
    return !c->is_waiting && !c->is_held && !c->close_after && !c->is_over &&
           !c->source_left && c->out.len - c->out_at <= MS_HTTP_BACKLOG_MAX;
}

/* Parse; how much was used. */
static size_t parse(struct ms_http_conn *c, const uint8_t *data, size_t len)
{
    struct ms_http_parser *p = &c->parser;
    size_t at = 0;

    while (is_open(c) && (at < len || ms_http_parser_is_whole(p))) {
        enum ms_http_event event;
        size_t used;

        if (!ms_http_parser_is_inside(p))
            c->begun_ns = ms_now_ns();
        event = ms_http_parser_feed(p, data + at, len - at, &used);
        at += used;
        if (event == MS_HTTP_HEAD) {
            on_head(c);
        } else if (event == MS_HTTP_PART) {
            c->server->ops->on_part(
                c->server->arg, c->tag, p->request.body, p->request.body_len);
        } else if (event == MS_HTTP_REQUEST) {
            on_whole(c);
        } else if (event == MS_HTTP_BAD) {
            c->is_head = false;
            refuse(c, p->status, p->why);
        }
    }
    return at;
}

static bool has_kept(const struct ms_http_conn *c)
{
    return c->in_at < c->in.len || ms_http_parser_is_whole(&c->parser);
}

static void parse_kept(struct ms_http_conn *c)
{
    c->in_at += parse(c, c->in.data + c->in_at, c->in.len - c->in_at);
    if (c->in_at == c->in.len)
        c->in_at = c->in.len = 0;
}

/* Parse what has come; keep what cannot be parsed yet. */
static void take(struct ms_http_conn *c, const uint8_t *data, size_t len)
{
    size_t used = 0;

    if (c->in_at == c->in.len)
        used = parse(c, data, len);
    if (used == len || c->close_after)
        return;
    ms_buf_consume(&c->in, c->in_at);
    c->in_at = 0;
    if (ms_buf_append(&c->in, data + used, len - used) < 0)
        c->is_over = true;
}

/* ---- the socket ------------------------------------------------------------------ */

/* One that lingers takes nothing in. */
static void take_input(struct ms_http_conn *c)
{
    uint8_t data[READ_SIZE];
    ssize_t n = recv(c->fd, data, sizeof data, MSG_DONTWAIT);

    if (n > 0 && !c->is_lingering)
        take(c, data, (size_t)n);
    else if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        c->is_over = true;
}

/* A deadline follows from what is waited for. */
static int64_t deadline_of(const struct ms_http_conn *c)
{
    uint64_t rate_s = c->parser.taken / MS_HTTP_RATE_MIN;

    if (c->is_held)
        return MS_NEVER;
    if (is_out(c))
        return c->sent_ns + c->server->limits.send_ns;
    if (c->is_waiting)
        return MS_NEVER;
    if (ms_http_parser_is_inside(&c->parser))
        return c->begun_ns + c->server->limits.head_ns + (int64_t)rate_s * MS_NS_PER_S;
    return c->begun_ns + c->server->limits.idle_ns;
}

/* The timer is only moved when it would be late: most requests do not touch it. */
static void set_timer(struct ms_http_conn *c)
{
    int64_t before_ns = c->deadline_ns;

    c->deadline_ns = deadline_of(c);
    if (c->deadline_ns < before_ns)
        ms_timer_set(&c->timer, c->deadline_ns - ms_now_ns());
    else
        c->deadline_ns = before_ns;
}

static void set_watch(struct ms_http_conn *c)
{
    bool takes = c->is_waiting ||
                 (!c->close_after && c->out.len - c->out_at <= MS_HTTP_BACKLOG_MAX);
    bool is_dry = c->is_held && c->out_at == c->out.len;
    unsigned events = is_out(c) && !is_dry ? MS_WRITE : 0;

    if (takes && c->in.len - c->in_at <= MS_HTTP_BACKLOG_MAX)
        events |= MS_READ;
    if (events != c->watch.events)
        ms_watch_set(&c->watch, events);
}

/* Something has changed: send, parse what waited, and see what comes next. */
static void go_on(struct ms_http_conn *c)
{
    int rc;

    do {
        c->is_inside = true;
        if (is_open(c) && has_kept(c))
            parse_kept(c);
        c->is_inside = false;
        rc = flush(c);
    } while (rc == 0 && is_open(c) && has_kept(c));
    if (rc < 0 || c->is_over) {
        conn_free(c);
    } else if (c->close_after && !c->is_waiting && !is_out(c)) {
        if (c->is_refused)
            linger(c);
        else
            conn_free(c);
    } else {
        set_watch(c);
        set_timer(c);
    }
}

static void on_ready(void *arg, unsigned events)
{
    struct ms_http_conn *c = arg;

    if (events & MS_READ) {
        c->is_inside = true;
        take_input(c);
        c->is_inside = false;
    }
    if (!c->is_lingering)
        go_on(c);
    else if (c->is_over)
        conn_free(c);
}

static void on_time(void *arg)
{
    struct ms_http_conn *c = arg;
    int64_t at_ns = c->is_lingering ? 0 : deadline_of(c);

    c->deadline_ns = MS_NEVER;
    if (at_ns > ms_now_ns()) {
        set_timer(c);
        return;
    }
    if (is_out(c) || c->close_after || !ms_http_parser_is_inside(&c->parser)) {
        conn_free(c);
        return;
    }
    c->is_inside = true;
    c->is_head = false;
    refuse(c, 408, "the request did not arrive in time");
    c->is_inside = false;
    go_on(c);
}

/* ---- the server ------------------------------------------------------------------ */

void ms_http_server_init(struct ms_http_server *s,
                         struct ms_loop *loop,
                         const struct ms_http_conn_ops *ops,
                         void *arg)
{
    *s = (struct ms_http_server){
        .loop = loop,
        .ops = ops,
        .arg = arg,
        .conns_max = MS_HTTP_CONNS_MAX,
        .unproven_max = MS_HTTP_UNPROVEN_MAX,
        .limits = {MS_HTTP_IDLE_NS, MS_HTTP_HEAD_NS, MS_HTTP_SEND_NS}};
    ms_list_init(&s->conns);
    ms_list_init(&s->unproven);
}

void ms_http_server_finish(struct ms_http_server *s)
{
    if (!s->count)
        return;
    ms_list_each (c, &s->conns, struct ms_http_conn, link)
        conn_free(c);
}

void ms_http_server_forget(struct ms_http_server *s)
{
    if (!s->count)
        return;
    ms_list_each (c, &s->conns, struct ms_http_conn, link)
        close(c->fd);
}

/* Room for one more that nobody knows yet. */
static void make_room(struct ms_http_server *s)
{
    if (s->unproven_count >= s->unproven_max ||
        (s->count >= s->conns_max && s->unproven_count > 0))
        conn_free(ms_list_first(&s->unproven, struct ms_http_conn, unproven));
}

int ms_http_server_add(struct ms_http_server *s, int fd, const void *bytes, size_t len)
{
    struct ms_http_conn *c;
    int one = 1;

    make_room(s);
    c = s->count < s->conns_max ? calloc(1, sizeof *c) : NULL;

    if (!c) {
        close(fd);
        return s->count < s->conns_max ? -ENOMEM : -EMFILE;
    }
    setsockopt(
        fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one); /* not on unix sockets */
    c->server = s;
    c->fd = fd;
    c->deadline_ns = MS_NEVER;
    c->begun_ns = c->sent_ns = ms_now_ns();
    ms_http_parser_init(&c->parser);
    ms_list_add_tail(&s->conns, &c->link);
    ms_list_add_tail(&s->unproven, &c->unproven);
    s->count++;
    s->unproven_count++;
    if (ms_watch_init(&c->watch, s->loop, fd, MS_READ, on_ready, c) < 0 ||
        ms_timer_init(&c->timer, s->loop, on_time, c) < 0) {
        conn_free(c);
        return -ENOMEM;
    }
    c->is_inside = true;
    if (len)
        take(c, bytes, len);
    else
        take_input(c); /* its first request is often there */
    c->is_inside = false;
    go_on(c);
    return 0;
}
