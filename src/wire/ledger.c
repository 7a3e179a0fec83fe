#include "base/clock.h"
#include "wire/server_internal.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <string.h>

/* ---- sessions --------------------------------------------------------------------- */

static struct ms_ledger *ledger_find(struct ms_server *s, const uint8_t *session)
{
    ms_list_each (l, &s->ledgers, struct ms_ledger, link)
        if (memcmp(l->session, session, MS_SESSION_SIZE) == 0)
            return l;
    return NULL;
}

struct ms_ledger *ms_ledger_attach(struct ms_server *s, struct server_conn *sc)
{
    const uint8_t *session = ms_conn_handshake(sc->conn)->session;
    struct ms_ledger *l = ledger_find(s, session);

    if (!l) {
        l = calloc(1, sizeof *l);
        if (!l)
            return NULL;
        memcpy(l->session, session, MS_SESSION_SIZE);
        l->server = s;
        ms_map_init(&l->requests);
        ms_list_init(&l->kept);
        ms_list_add_tail(&s->ledgers, &l->link);
    }
    if (l->conn) /* the old connection is dead and we have not noticed yet */
        l->conn->ledger = NULL;
    l->conn = sc;
    sc->ledger = l;
    return l;
}

void ms_ledger_detach(struct server_conn *sc)
{
    struct ms_ledger *l = sc->ledger;

    sc->ledger = NULL;
    if (!l)
        return;
    l->conn = NULL;
    l->lost_ns = ms_now_ns();
}

static void request_drop(struct ms_request *r)
{
    r->ledger = NULL;
    ms_list_remove(&r->ledger_link);
    if (r->state == MS_REQUEST_RECEIVING || r->state == MS_REQUEST_WAITING) {
        if (!ms_list_is_empty(&r->queue_link)) {
            ms_list_remove(&r->queue_link);
            atomic_fetch_sub(&r->server->queued, 1);
        }
        r->state = MS_REQUEST_DONE;
    }
    r->cancelled = true;
    ms_request_unref_locked(r);
}

void ms_ledger_destroy(struct ms_ledger *l)
{
    struct ms_request *r;
    size_t at = 0;

    while ((r = ms_map_next(&l->requests, &at)))
        request_drop(r);
    pthread_cond_broadcast(&l->server->credit);
    if (l->conn)
        l->conn->ledger = NULL;
    ms_map_finish(&l->requests);
    ms_list_remove(&l->link);
    free(l->methods);
    free(l);
}

int64_t ms_ledger_sweep(struct ms_server *s, int64_t now_ns)
{
    int64_t next = MS_NEVER;

    ms_list_each (l, &s->ledgers, struct ms_ledger, link) {
        int64_t end = ms_deadline_ns(l->lost_ns, MS_LINK_GRACE_NS);

        if (l->conn)
            continue;
        if (end <= now_ns)
            ms_ledger_destroy(l);
        else if (end < next)
            next = end;
    }
    return next;
}

/* ---- requests --------------------------------------------------------------------- */

void ms_request_unref_locked(struct ms_request *r)
{
    assert(r->refs > 0);
    if (--r->refs)
        return;
    free(r->memory);
    free(r->reply);
    free(r);
}

static struct ms_method *method_of(struct ms_ledger *l, uint16_t op)
{
    uint32_t i = (uint32_t)op - MS_OP_METHOD;

    return op >= MS_OP_METHOD && i < l->method_room ? l->methods[i] : NULL;
}

int ms_ledger_begin(struct ms_ledger *l,
                    const struct ms_frame *head,
                    int64_t now_ns,
                    struct ms_request **fresh)
{
    struct ms_request *r;
    int rc;

    *fresh = NULL;
    if (head->call_id == 0)
        return -EPROTO;
    if (ms_map_find(&l->requests, head->call_id))
        return 0;
    r = calloc(1, sizeof *r);
    if (!r)
        return -ENOMEM;
    r->call_id = head->call_id;
    r->op = head->op;
    r->flags = head->flags;
    r->codec = head->codec;
    r->method = method_of(l, head->op);
    r->deadline_ns = MS_NEVER;
    if (head->budget_ns && head->budget_ns < INT64_MAX)
        r->deadline_ns = ms_deadline_ns(now_ns, (int64_t)head->budget_ns);
    r->refs = 1;
    r->ledger = l;
    r->server = l->server;
    r->credit = MS_STREAM_WINDOW;
    ms_list_init(&r->queue_link);
    ms_list_init(&r->ledger_link);
    rc = ms_map_add(&l->requests, r->call_id, r);
    if (rc < 0) {
        free(r);
        return rc;
    }
    *fresh = r;
    return 0;
}

/* The chain of waiting workers stands before the payload: u16 count, u64 each. */
static int take_chain(struct ms_request *r)
{
    uint16_t count;

    if (!(r->flags & MS_FRAME_CHAIN))
        return 0;
    if (r->len < sizeof count)
        return -EPROTO;
    memcpy(&count, r->body, sizeof count);
    count = le16toh(count);
    if (count > MS_CHAIN_MAX || r->len < sizeof count + count * sizeof(uint64_t))
        return -EPROTO;
    r->chain_count = count;
    for (uint32_t i = 0; i < count; i++) {
        memcpy(&r->chain[i],
               r->body + sizeof count + i * sizeof(uint64_t),
               sizeof(uint64_t));
        r->chain[i] = le64toh(r->chain[i]);
    }
    r->body += sizeof count + count * sizeof(uint64_t);
    r->len -= sizeof count + count * sizeof(uint64_t);
    return 0;
}

static int request_fill(struct ms_request *r, struct ms_message *m)
{
    r->memory = ms_message_take(m);
    if (!r->memory)
        return -ENOMEM;
    r->body = r->memory;
    r->len = m->len;
    r->state = MS_REQUEST_WAITING;
    return take_chain(r);
}

static int send_reply(struct ms_request *r)
{
    struct ms_frame head = {.kind = r->reply_kind,
                            .codec = r->reply_codec,
                            .flags = r->reply_flags,
                            .call_id = r->call_id};
    struct iovec iov = {r->reply, r->reply_len};
    struct server_conn *sc = r->ledger ? r->ledger->conn : NULL;
    int rc;

    if (!sc || sc->dead)
        return 0;
    rc = ms_conn_send(sc->conn, &head, &iov, 1);
    ms_server_conn_want_flush(sc);
    return rc;
}

int ms_ledger_call(struct ms_ledger *l,
                   struct ms_message *m,
                   int64_t now_ns,
                   struct ms_request **ready,
                   bool *has_place)
{
    struct ms_request *r = ms_map_find(&l->requests, m->head.call_id);
    int rc;

    *ready = NULL;
    *has_place = false;
    if (r && r->state != MS_REQUEST_RECEIVING) {
        if (r->state == MS_REQUEST_DONE && (m->head.flags & MS_FRAME_RESEND))
            send_reply(r);
        else if (!r->cancelled && !(m->head.flags & MS_FRAME_RESEND))
            return -EPROTO;
        return 0;
    }
    if (r) {
        *has_place = true;
        r->flags = m->head.flags;
    } else {
        rc = ms_ledger_begin(l, &m->head, now_ns, &r);
        if (rc < 0)
            return rc;
        assert(r); /* it was not known a moment ago */
    }
    rc = request_fill(r, m);
    if (rc < 0)
        return rc;
    *ready = r;
    return 0;
}

static struct ms_method *
intern(struct ms_server *s, const char *engine, const char *name)
{
    struct ms_method *m;

    for (uint32_t i = 0; i < s->method_count; i++)
        if (strcmp(s->methods[i]->engine, engine) == 0 &&
            strcmp(s->methods[i]->name, name) == 0)
            return s->methods[i];
    if (s->method_count == MS_METHODS_MAX)
        return NULL;
    if (s->method_count == s->method_room) {
        uint32_t room = s->method_room ? s->method_room * 2 : 16;
        struct ms_method **more = realloc(s->methods, room * sizeof(*more));

        if (!more)
            return NULL;
        s->methods = more;
        s->method_room = room;
    }
    m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    m->index = s->method_count;
    m->engine = strdup(engine);
    m->name = strdup(name);
    if (!m->engine || !m->name) {
        free(m->engine);
        free(m->name);
        free(m);
        return NULL;
    }
    s->methods[s->method_count++] = m;
    return m;
}

/* Body: engine, NUL, method; both without NUL, the method not empty. */
int ms_ledger_method(struct ms_ledger *l, const struct ms_message *m)
{
    char text[MS_METHOD_NAME_MAX + 1];
    uint32_t i = (uint32_t)m->head.op - MS_OP_METHOD;
    const char *name;

    if (m->head.op < MS_OP_METHOD || i >= MS_METHODS_MAX || m->len > MS_METHOD_NAME_MAX)
        return -EPROTO;
    memcpy(text, m->body, m->len);
    text[m->len] = 0;
    name = memchr(text, 0, m->len);
    if (!name || !*++name || strlen(name) != m->len - (size_t)(name - text))
        return -EPROTO;
    if (i >= l->method_room) {
        uint32_t room = l->method_room ? l->method_room : 16;
        struct ms_method **more;

        while (room <= i)
            room *= 2;
        more = realloc(l->methods, room * sizeof(*more));
        if (!more)
            return -ENOMEM;
        memset(more + l->method_room, 0, (room - l->method_room) * sizeof(*more));
        l->methods = more;
        l->method_room = room;
    }
    l->methods[i] = intern(l->server, text, name);
    return l->methods[i] ? 0 : -ENOMEM;
}

void ms_ledger_ack(struct ms_ledger *l, uint64_t call_id)
{
    struct ms_request *r = ms_map_find(&l->requests, call_id);

    if (!r || r->state != MS_REQUEST_DONE)
        return;
    ms_map_remove(&l->requests, call_id);
    ms_list_remove(&r->ledger_link);
    l->kept_bytes -= r->reply_len;
    r->ledger = NULL;
    ms_request_unref_locked(r);
}

struct ms_request *ms_ledger_cancel(struct ms_ledger *l, uint64_t call_id)
{
    struct ms_request *r = ms_map_find(&l->requests, call_id);

    if (!r || r->state == MS_REQUEST_DONE || r->cancelled)
        return NULL;
    r->cancelled = true;
    if (r->state == MS_REQUEST_RUNNING) {
        pthread_cond_broadcast(&l->server->credit);
        r->refs++;
        return r;
    }
    if (!ms_list_is_empty(&r->queue_link)) {
        ms_list_remove(&r->queue_link);
        atomic_fetch_sub(&l->server->queued, 1);
    }
    ms_request_fail_locked(
        r, MUSTER__FAILURE__KIND__CANCELLED, "cancelled before it began");
    return NULL;
}

void ms_ledger_credit(struct ms_ledger *l, uint64_t call_id, uint32_t items)
{
    struct ms_request *r = ms_map_find(&l->requests, call_id);

    if (!r || r->state == MS_REQUEST_DONE || items > MS_STREAM_WINDOW - r->credit)
        return;
    r->credit += items;
    pthread_cond_broadcast(&l->server->credit);
}

/* ---- replies ---------------------------------------------------------------------- */

enum { TRIM_MIN = 4096 };

/* Beyond the limit the oldest kept replies lose their bodies: who re-attaches to one of
 * those is told so. */
static void trim_kept(struct ms_ledger *l)
{
    ms_list_each (r, &l->kept, struct ms_request, ledger_link) {
        Muster__Failure f;

        if (l->kept_bytes <= MS_REPLY_RETAIN_MAX)
            return;
        if (r->reply_kind != MS_KIND_REPLY || r->reply_len < TRIM_MIN)
            continue;
        muster__failure__init(&f);
        f.kind = MUSTER__FAILURE__KIND__LOST;
        f.message = (char *)(uintptr_t) "the reply was kept too long and was dropped";
        l->kept_bytes -= r->reply_len;
        r->reply_kind = MS_KIND_ERROR;
        r->reply_codec = MS_CODEC_PROTO;
        r->reply_len = muster__failure__get_packed_size(&f);
        if (r->reply_len)
            muster__failure__pack(&f, r->reply); /* smaller than what was there */
        l->kept_bytes += r->reply_len;
    }
}

int ms_request_finish_locked(struct ms_request *r,
                             uint8_t kind,
                             uint8_t codec,
                             uint16_t flags,
                             const struct iovec *iov,
                             int count)
{
    size_t len = 0, at = 0;
    uint8_t *reply;

    assert(r->state != MS_REQUEST_DONE || !r->ledger);
    for (int i = 0; i < count; i++)
        len += iov[i].iov_len;
    if (!r->ledger) { /* its session is gone: nobody to tell */
        r->state = MS_REQUEST_DONE;
        return 0;
    }
    reply = malloc(len ? len : 1);
    if (!reply)
        return -ENOMEM;
    for (int i = 0; i < count; i++) {
        if (iov[i].iov_len)
            memcpy(reply + at, iov[i].iov_base, iov[i].iov_len);
        at += iov[i].iov_len;
    }
    free(r->memory); /* the arguments are of no more use */
    r->memory = r->body = NULL;
    r->reply = reply;
    r->reply_len = len;
    r->reply_kind = kind;
    r->reply_codec = codec;
    r->reply_flags = flags;
    r->state = MS_REQUEST_DONE;
    ms_list_add_tail(&r->ledger->kept, &r->ledger_link);
    r->ledger->kept_bytes += len;
    send_reply(r);
    if (r->ledger->kept_bytes > MS_REPLY_RETAIN_MAX)
        trim_kept(r->ledger);
    return 0;
}

int ms_request_fail_locked(struct ms_request *r,
                           Muster__Failure__Kind kind,
                           const char *text)
{
    Muster__Failure f;
    uint8_t body[MS_ERROR_TEXT_MAX + 64];
    char message[MS_ERROR_TEXT_MAX];
    struct iovec iov = {body, 0};

    snprintf(message, sizeof message, "%s", text);
    muster__failure__init(&f);
    f.kind = kind;
    f.message = message;
    iov.iov_len = muster__failure__pack(&f, body);
    return ms_request_finish_locked(r, MS_KIND_ERROR, MS_CODEC_PROTO, 0, &iov, 1);
}

/* The handler's last touch: unlock, and free the server if it only waited for us. */
static void handed_back(struct ms_request *r)
{
    struct ms_server *s = r->server;

    if (s->running == r)
        s->running = NULL;
    s->calls_done++;
    ms_request_unref_locked(r);
    ms_server_unref_locked(s);
}

static int finish(struct ms_request *r,
                  uint8_t kind,
                  uint8_t codec,
                  const struct iovec *iov,
                  int count)
{
    uint16_t flags = r->streamed ? MS_FRAME_STREAM : 0;
    int rc;

    pthread_mutex_lock(&r->server->lock);
    if (r->stream_lost)
        rc = ms_request_fail_locked(r,
                                    MUSTER__FAILURE__KIND__LOST,
                                    "the connection broke in the middle of the stream");
    else
        rc = ms_request_finish_locked(r, kind, codec, flags, iov, count);
    if (rc < 0)
        ms_request_fail_locked(
            r, MUSTER__FAILURE__KIND__NO_MEMORY, "no memory to keep the reply");
    handed_back(r);
    return rc;
}

int ms_request_reply(struct ms_request *r,
                     uint8_t codec,
                     const struct iovec *iov,
                     int count)
{
    return finish(r, MS_KIND_REPLY, codec, iov, count);
}

int ms_request_fail(struct ms_request *r, const Muster__Failure *f)
{
    size_t len = muster__failure__get_packed_size(f);
    MS_CLEANUP(ms_cleanup_free) uint8_t *body = malloc(len ? len : 1);
    struct iovec iov = {body, len};

    if (!body || len > MS_CONTROL_MAX)
        return ms_request_fail_text(
            r, f->kind, "%.200s (the details are too big)", f->message);
    muster__failure__pack(f, body);
    return finish(r, MS_KIND_ERROR, MS_CODEC_PROTO, &iov, 1);
}

int ms_request_fail_text(struct ms_request *r,
                         Muster__Failure__Kind kind,
                         const char *fmt,
                         ...)
{
    char text[MS_ERROR_TEXT_MAX];
    va_list ap;
    int rc;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    pthread_mutex_lock(&r->server->lock);
    rc = ms_request_fail_locked(r, kind, text);
    handed_back(r);
    return rc;
}

void ms_request_begin_stream(struct ms_request *r)
{
    r->streamed = true; /* the handler's own until it replies */
}

int ms_request_item(struct ms_request *r,
                    uint8_t codec,
                    const struct iovec *iov,
                    int count)
{
    struct ms_frame head = {
        .kind = MS_KIND_ITEM, .codec = codec, .call_id = r->call_id};
    int rc = -ECANCELED;

    pthread_mutex_lock(&r->server->lock);
    if (!r->ledger || !r->ledger->conn)
        r->cancelled = r->stream_lost = true; /* items are not kept */
    if (!r->cancelled) {
        struct server_conn *sc = r->ledger->conn;

        rc = -EAGAIN;
        if (r->credit > 0) {
            r->credit--;
            rc = ms_conn_send(sc->conn, &head, iov, count);
            ms_server_conn_want_flush(sc);
        }
    }
    pthread_mutex_unlock(&r->server->lock);
    return rc;
}

int ms_request_item_wait(struct ms_request *r, int64_t until_ns)
{
    struct timespec at = {.tv_sec = until_ns / MS_NS_PER_S,
                          .tv_nsec = until_ns % MS_NS_PER_S};
    int rc = 0;

    pthread_mutex_lock(&r->server->lock);
    while (rc == 0 && r->credit == 0 && !r->cancelled && r->ledger)
        rc = -pthread_cond_timedwait(&r->server->credit, &r->server->lock, &at);
    if (r->cancelled || !r->ledger)
        rc = -ECANCELED;
    pthread_mutex_unlock(&r->server->lock);
    return rc;
}

bool ms_request_is_cancelled(struct ms_request *r)
{
    bool cancelled;

    pthread_mutex_lock(&r->server->lock);
    cancelled = r->cancelled;
    pthread_mutex_unlock(&r->server->lock);
    return cancelled;
}

void ms_request_take_body(struct ms_request *r, uint8_t **memory)
{
    *memory = MS_TAKE(r->memory);
    r->body = NULL;
}
