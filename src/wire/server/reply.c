/* reply.c - replies: sent, kept until acknowledged, dropped */
#include "base/proto.h"
#include "wire/server/server_impl.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

enum { FAILURE_MAX = MS_ERROR_TEXT_MAX + 64 };

static size_t
pack_failure(Muster__Failure__Kind kind, const char *text, uint8_t body[FAILURE_MAX])
{
    char message[MS_ERROR_TEXT_MAX];
    Muster__Failure f = MUSTER__FAILURE__INIT;

    snprintf(message, sizeof message, "%s", text);
    f.kind = kind;
    f.message = message;
    return muster__failure__pack(&f, body);
}

/* ---- sending --------------------------------------------------------------------- */

void ms_reply_failure(struct ms_server_conn *sc,
                      uint64_t call_id,
                      Muster__Failure__Kind kind,
                      const char *text)
{
    struct ms_frame head = {
        .kind = MS_KIND_ERROR, .codec = MS_CODEC_PROTO, .call_id = call_id};
    uint8_t body[FAILURE_MAX];
    struct iovec iov = {body, pack_failure(kind, text, body)};

    ms_server_conn_send(sc, &head, &iov, 1);
}

void ms_reply_send(struct ms_request *r)
{
    struct ms_server_conn *sc = r->ledger ? r->ledger->conn : NULL;
    struct ms_frame head = {
        .kind = r->reply_kind,
        .codec = r->reply_codec,
        .flags = r->reply_flags,
        .core = atomic_load_explicit(&r->server->engine_core, memory_order_relaxed),
        .call_id = r->call_id};
    struct iovec iov = {r->reply, r->reply_len};

    if (!sc || r->stream.is_adrift)
        return;
    if (r->reply_lost)
        ms_reply_failure(sc,
                         r->call_id,
                         MUSTER__FAILURE__KIND__LOST,
                         r->stream_lost
                             ? "the connection broke in the middle of the stream"
                             : "the reply was kept too long and was dropped");
    else
        ms_server_conn_send(sc, &head, &iov, 1);
}

/* ---- keeping --------------------------------------------------------------------- */

/* Who asks again is told so. */
static void lose_reply(struct ms_request *r)
{
    r->reply_lost = true;
    if (r->ledger)
        r->ledger->kept_bytes -= r->reply_len;
    free(r->reply);
    r->reply = NULL;
    r->reply_len = 0;
}

void ms_request_lose_stream(struct ms_request *r)
{
    if (r->stream_lost)
        return;
    r->stream_lost = true;
    ms_stream_forget(r);
    if (r->state == MS_SERVE_DONE) {
        lose_reply(r);
    } else {
        r->cancelled = true;
        ms_server_tell(r->server, r);
    }
}

/* Beyond the limit the oldest replies lose their bodies. */
static void trim_kept(struct ms_ledger *l)
{
    ms_list_each (r, &l->kept, struct ms_request, ledger_link) {
        if (l->kept_bytes <= MS_REPLY_RETAIN_MAX)
            return;
        if (r->reply_len)
            lose_reply(r);
    }
}

static int copy_reply(struct ms_request *r, const struct iovec *iov, int count)
{
    size_t len = ms_iov_len(iov, count);
    uint8_t *reply = malloc(len ? len : 1);

    if (!reply)
        return -ENOMEM;
    ms_iov_copy(reply, iov, count);
    r->reply = reply;
    r->reply_len = len;
    return 0;
}

/* The reply is complete: keep it, and send it to the client. */
static void keep(struct ms_request *r)
{
    r->state = MS_SERVE_DONE;
    if (r->on_done) {
        ms_submit_answered(r);
        return;
    }
    ms_list_add_tail(&r->ledger->kept, &r->ledger_link);
    r->ledger->kept_bytes += r->reply_len;
    ms_reply_send(r);
}

static int answer(struct ms_request *r,
                  uint8_t kind,
                  uint8_t codec,
                  const struct iovec *iov,
                  int count)
{
    int rc;

    assert(r->state != MS_SERVE_DONE);
    if (!r->ledger || r->ledger->is_left) { /* nobody to tell */
        r->state = MS_SERVE_DONE;
        return -ECANCELED;
    }
    rc = copy_reply(r, iov, count);
    if (rc < 0)
        return rc;
    free(r->memory); /* the arguments are of no more use */
    r->memory = r->body = NULL;
    r->reply_kind = kind;
    r->reply_codec = codec;
    r->reply_flags = r->streamed ? MS_FRAME_STREAM : 0;
    keep(r);
    if (r->ledger->kept_bytes > MS_REPLY_RETAIN_MAX)
        trim_kept(r->ledger);
    return 0;
}

int ms_request_fail_locked(struct ms_request *r,
                           Muster__Failure__Kind kind,
                           const char *text)
{
    uint8_t body[FAILURE_MAX];
    struct iovec iov = {body, pack_failure(kind, text, body)};
    int rc = answer(r, MS_KIND_ERROR, MS_CODEC_PROTO, &iov, 1);

    if (rc < 0 && rc != -ECANCELED) { /* not even that: it is answered as lost */
        r->reply_lost = true;
        r->reply_kind = MS_KIND_ERROR;
        keep(r);
    }
    return rc;
}

/* ---- the handler's side ---------------------------------------------------------- */

/* The handler's last touch: unlock, and free the server if it only waited for us. */
static void handed_back(struct ms_request *r, bool failed)
{
    struct ms_server *s = r->server;

    if (ms_request_is_for_engine(r))
        ms_activity_ended(r, failed);
    s->calls_done++;
    ms_list_remove(&r->queue_link);
    ms_request_unref_locked(r);
    ms_server_unref_locked(s);
}

/* The failure that replaces the result of a cancelled call; NULL: it was not cancelled. */
static const char *dropped(const struct ms_request *r, Muster__Failure__Kind *kind)
{
    if (r->stream_lost) {
        *kind = MUSTER__FAILURE__KIND__LOST;
        return "the connection broke in the middle of the stream";
    }
    *kind =
        r->expired ? MUSTER__FAILURE__KIND__DEADLINE : MUSTER__FAILURE__KIND__CANCELLED;
    return r->cancelled ? "its result was dropped" : NULL;
}

/* What comes by HTTP is answered with a status before the body, also where that says that
 * it failed. */
static bool
is_http_failure(const struct ms_request *r, const struct iovec *iov, int count)
{
    return r->op == MS_OP_HTTP_CALL && count > 0 && iov[0].iov_len > 0 &&
           *(const char *)iov[0].iov_base != '2';
}

static int finish(struct ms_request *r,
                  uint8_t kind,
                  uint8_t codec,
                  const struct iovec *iov,
                  int count)
{
    Muster__Failure__Kind instead;
    const char *text;
    int rc;

    pthread_mutex_lock(&r->server->lock);
    text = dropped(r, &instead);
    if (text) {
        ms_request_fail_locked(r, instead, text);
        rc = -ECANCELED;
    } else {
        rc = answer(r, kind, codec, iov, count);
    }
    if (rc < 0 && r->state != MS_SERVE_DONE)
        ms_request_fail_locked(
            r, MUSTER__FAILURE__KIND__NO_MEMORY, "no memory to keep the reply");
    handed_back(r, kind == MS_KIND_ERROR || is_http_failure(r, iov, count));
    return rc;
}

int ms_request_reply(struct ms_request *r,
                     uint8_t codec,
                     const struct iovec *iov,
                     int count)
{
    uint64_t len = ms_iov_len(iov, count);

    if (len > MS_MESSAGE_MAX) {
        ms_request_fail_text(r,
                             MUSTER__FAILURE__KIND__BAD_RESULT,
                             "the result has %llu bytes, at most %llu are possible",
                             (unsigned long long)len,
                             (unsigned long long)MS_MESSAGE_MAX);
        return -EMSGSIZE;
    }
    return finish(r, MS_KIND_REPLY, codec, iov, count);
}

int ms_request_fail(struct ms_request *r, const Muster__Failure *f)
{
    size_t len;
    MS_CLEANUP(ms_cleanup_free) uint8_t *body = ms_proto_packed(&f->base, &len);
    struct iovec iov = {body, len};

    if (!body || len > MS_CONTROL_MAX)
        return ms_request_fail_text(
            r, f->kind, "%.200s (the details are too big)", f->message);
    return finish(r, MS_KIND_ERROR, MS_CODEC_PROTO, &iov, 1);
}

int ms_request_fail_text(struct ms_request *r,
                         Muster__Failure__Kind kind,
                         const char *fmt,
                         ...)
{
    char text[MS_ERROR_TEXT_MAX];
    uint8_t body[FAILURE_MAX];
    struct iovec iov = {body, 0};
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    iov.iov_len = pack_failure(kind, text, body);
    return finish(r, MS_KIND_ERROR, MS_CODEC_PROTO, &iov, 1);
}

bool ms_request_is_cancelled(struct ms_request *r)
{
    MS_LOCK(&r->server->lock);

    return r->cancelled;
}

void ms_request_take_body(struct ms_request *r, uint8_t **memory)
{
    *memory = MS_TAKE(r->memory);
    r->body = NULL;
}
