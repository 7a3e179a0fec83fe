/* call.c - a call, as muster/worker.h shows it to a method, and its answer */
#include "base/cleanup.h"
#include "base/clock.h"
#include "plain/value.h"
#include "worker/native/native_impl.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

atomic_bool ms_native_ending;

/* ---- failures -------------------------------------------------------------------- */

void ms_report_clear(struct muster_error *err)
{
    err->kind = MUSTER_ERROR_UNKNOWN;
    err->code = 0;
    err->type[0] = err->message[0] = '\0';
}

void ms_request_fail_report(struct ms_request *r,
                            Muster__Failure__Kind kind,
                            int rc,
                            const struct muster_error *err)
{
    Muster__Failure f = MUSTER__FAILURE__INIT;
    char text[64];

    snprintf(text, sizeof text, "it failed with %d", rc);
    f.kind = kind;
    f.type = (char *)(uintptr_t)err->type;
    f.message = err->message[0] ? (char *)(uintptr_t)err->message : text;
    ms_request_fail(r, &f);
}

/* ---- what was asked -------------------------------------------------------------- */

enum muster_codec muster_call_codec(const struct muster_call *call)
{
    return (enum muster_codec)call->codec;
}

const struct muster_value *muster_call_args(const struct muster_call *call)
{
    return muster_list_at(call->arguments, 0);
}

const struct muster_value *muster_call_kwargs(const struct muster_call *call)
{
    return muster_list_at(call->arguments, 1);
}

const struct muster_value *muster_call_arg(const struct muster_call *call, size_t index)
{
    return muster_list_at(muster_call_args(call), index);
}

const struct muster_value *muster_call_kwarg(const struct muster_call *call,
                                             const char *name)
{
    return muster_map_find(muster_call_kwargs(call), name);
}

const char *muster_call_method(const struct muster_call *call)
{
    return call->method;
}

bool muster_call_is_cancelled(const struct muster_call *call)
{
    if (atomic_load(&ms_native_ending))
        return true;
    return call->request && ms_request_is_cancelled(call->request);
}

int64_t muster_call_time_left_ns(const struct muster_call *call)
{
    int64_t now_ns = ms_now_ns();

    if (call->deadline_ns == MS_NEVER)
        return MUSTER_NEVER;
    return call->deadline_ns > now_ns ? call->deadline_ns - now_ns : 0;
}

/* ---- answering ------------------------------------------------------------------- */

/* The value as the caller wants it: the count of pieces, or a negative errno. */
static int encode(struct muster_call *call,
                  const struct muster_value *value,
                  struct ms_plain_writer *w,
                  struct iovec *iov)
{
    size_t len = 0;
    const void *data;

    if (!value)
        return -ENOMEM;
    if (call->codec == MS_CODEC_PLAIN) {
        ms_value_encode(w, MS_PLAIN_ROOT, value);
        return ms_plain_iov(w, iov);
    }
    data = muster_value_get_bytes(value, &len);
    if (!data && muster_value_kind(value) != MUSTER_NULL)
        return -EINVAL;
    iov[0] = (struct iovec){(void *)(uintptr_t)data, len};
    return data ? 1 : 0;
}

int muster_call_reply(struct muster_call *call, struct muster_value *value)
{
    MS_CLEANUP(ms_cleanup_free) char *text = NULL;
    struct iovec iov[MS_PLAIN_IOV_MAX];
    struct ms_request *r = call->request;
    struct ms_plain_writer w;
    int count;

    if (!r) {
        muster_value_destroy(value);
        return -EALREADY;
    }
    ms_plain_writer_init(&w);
    if (call->is_http)
        count = value ? ms_native_http_result(value, &text, iov) : -ENOMEM;
    else
        count = encode(call, value, &w, iov);
    if (count >= 0) {
        call->request = NULL;
        ms_request_reply(r, call->is_http ? MS_CODEC_BYTES : call->codec, iov, count);
    } else {
        call->reply_rc = count;
    }
    ms_plain_writer_finish(&w);
    muster_value_destroy(value);
    return count < 0 ? count : 0;
}

int muster_call_reply_bytes(struct muster_call *call, const void *data, size_t len)
{
    struct iovec iov = {(void *)(uintptr_t)data, len};
    struct ms_request *r = call->request;

    if (!r)
        return -EALREADY;
    if (call->codec == MS_CODEC_PLAIN)
        return muster_call_reply(call, muster_value_bytes(data, len));
    call->request = NULL;
    ms_request_reply(r, call->codec, &iov, 1);
    return 0;
}

/* Send, waiting for the window. SIGTERM is looked at now and then. */
static int send_item(struct muster_call *call, const struct iovec *iov, int count)
{
    int rc;

    while ((rc = ms_request_item(call->request, call->codec, iov, count)) == -EAGAIN) {
        int64_t until_ns = ms_now_ns() + 100 * MS_NS_PER_MS;

        if (until_ns > call->deadline_ns)
            until_ns = call->deadline_ns;
        rc = ms_request_item_wait(call->request, until_ns);
        if (rc == -ECANCELED || muster_call_is_cancelled(call))
            return -ECANCELED;
    }
    return rc;
}

int muster_call_item(struct muster_call *call, struct muster_value *value)
{
    struct iovec iov[MS_PLAIN_IOV_MAX];
    struct ms_plain_writer w;
    int rc = -EALREADY;

    if (call->request && call->is_http) {
        rc = call->reply_rc = -EOPNOTSUPP;
    } else if (call->request) {
        if (!call->streams)
            ms_request_begin_stream(call->request);
        call->streams = true;
        ms_plain_writer_init(&w);
        rc = encode(call, value, &w, iov);
        if (rc < 0)
            call->reply_rc = rc;
        else
            rc = send_item(call, iov, rc);
        ms_plain_writer_finish(&w);
    }
    muster_value_destroy(value);
    return rc;
}

/* ---- running --------------------------------------------------------------------- */

/* Of the many calls that have none; read-only, and destroying it does nothing. */
static struct muster_value nothing[2] = {{.kind = MUSTER_LIST, .frozen = true},
                                         {.kind = MUSTER_MAP, .frozen = true}};
static struct muster_value null = {.kind = MUSTER_NULL, .frozen = true};
static struct muster_value no_arguments = {
    .kind = MUSTER_LIST, .frozen = true, .list = {nothing, 2}};

/* A call in bytes as arguments of plain data. */
static struct muster_value *bytes_argument(const struct ms_request *r)
{
    struct muster_value *both = muster_value_list(), *args = muster_value_list();

    muster_list_append(args, muster_value_bytes(r->body, r->len));
    muster_list_append(both, args);
    if (muster_list_append(both, muster_value_map()) == 0 &&
        muster_list_count(muster_list_at(both, 0)) == 1)
        return both;
    muster_value_destroy(both);
    return NULL;
}

static struct muster_value *take_arguments(struct ms_request *r, struct ms_error *err)
{
    const uint8_t *body = r->body;
    uint8_t *memory = NULL;
    size_t len = r->len;
    struct muster_value *v;

    if (r->codec == MS_CODEC_BYTES) {
        v = bytes_argument(r);
        if (!v)
            ms_error_set(err, -ENOMEM, "out of memory");
        return v;
    }
    if (r->codec != MS_CODEC_PLAIN) {
        ms_error_set(err,
                     -EPROTONOSUPPORT,
                     "a worker in C understands plain data and bytes, not pickle: "
                     "options(codec=\"plain\")");
        return NULL;
    }
    if (len == 0)
        return &no_arguments;
    ms_request_take_body(r, &memory);
    return ms_value_decode_arguments(memory, body, len, err);
}

static const char *reason_of(int rc)
{
    switch (rc) {
    case -EINVAL:
        return "it was called with bytes, and gave something else";
    case -EDOM:
        return "it has a number that is not finite, which JSON does not have";
    case -EOPNOTSUPP:
        return "it is a stream, which does not go by HTTP";
    default:
        return strerror(-rc);
    }
}

/* The method is over: has its caller an answer? */
static void conclude(struct muster_call *call,
                     int rc,
                     Muster__Failure__Kind kind,
                     struct muster_error *err)
{
    if (!call->request) {
        if (rc != 0)
            fprintf(stderr,
                    "%s failed after it had answered: %s\n",
                    call->method,
                    err->message);
        return;
    }
    if (rc == 0 && call->reply_rc == 0 && call->is_http) {
        muster_call_reply(call, &null); /* may find no memory */
        if (!call->request)
            return;
    } else if (rc == 0 && call->reply_rc == 0) {
        ms_request_reply(call->request, call->codec, NULL, 0);
        return;
    }
    if (call->reply_rc < 0 && !err->message[0]) {
        kind = MUSTER__FAILURE__KIND__BAD_RESULT;
        muster_error_set(err,
                         call->reply_rc,
                         NULL,
                         "the result of '%s' cannot be sent: %s",
                         call->method,
                         reason_of(call->reply_rc));
    }
    ms_request_fail_report(call->request, kind, rc, err);
}

void ms_call_invoke(struct muster_call *call,
                    const struct ms_native_method *m,
                    struct muster_error *err)
{
    int rc = m->method->run(m->engine->self, call, err);

    conclude(call, rc, MUSTER__FAILURE__KIND__RAISED, err);
    muster_value_destroy(call->arguments);
}

void ms_call_run(struct ms_native_engines *e, struct ms_request *r)
{
    static struct muster_error err; /* the engine's thread alone runs this */
    struct muster_call call = {.request = r,
                               .method = r->method->name,
                               .codec = r->codec,
                               .deadline_ns = r->deadline_ns};
    struct ms_error why = {0};
    Muster__Failure__Kind kind;
    const struct ms_native_method *m;

    ms_report_clear(&err);
    m = ms_native_engine_method(e, r->method, &kind, &err);
    if (!m) {
        ms_request_fail_report(r, kind, -ENOENT, &err);
        return;
    }
    call.arguments = take_arguments(r, &why);
    if (!call.arguments) {
        ms_request_fail_text(
            r, MUSTER__FAILURE__KIND__BAD_ARGUMENT, "'%s': %s", call.method, why.text);
        return;
    }
    ms_call_invoke(&call, m, &err);
}
