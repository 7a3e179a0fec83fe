/* call.c - HTTP requests that the engine's thread answers */
#include "base/cleanup.h"
#include "base/json.h"
#include "worker/http/http_impl.h"

#include <string.h>

/* A request of the engine's thread. After its client is gone it waits for the end of what
 * runs. */
struct http_call {
    struct http_wait wait;
    struct ms_list link; /* http->calls */
    struct ms_worker_http *http;
    struct ms_request *request;
    json_t *env; /* of /set_env */
};

static void call_free(struct http_call *call)
{
    ms_list_remove(&call->link);
    json_decref(call->env);
    free(call);
}

static int status_of(Muster__Failure__Kind kind)
{
    switch (kind) {
    case MUSTER__FAILURE__KIND__NO_ENGINE:
        return 404;
    case MUSTER__FAILURE__KIND__NO_METHOD:
    case MUSTER__FAILURE__KIND__BAD_ARGUMENT:
    case MUSTER__FAILURE__KIND__REFUSED:
        return 400;
    case MUSTER__FAILURE__KIND__CANCELLED:
    case MUSTER__FAILURE__KIND__SHUTTING_DOWN:
    case MUSTER__FAILURE__KIND__NO_MEMORY:
        return 503;
    default:
        return 500;
    }
}

/* With the type of what a method has raised, if it has one. */
static void reply_raised(struct ms_http_conn *c, const Muster__Failure *f)
{
    if (f->type[0])
        ms_http_reply_json(c,
                           status_of(f->kind),
                           MS_JSON({"status", json_string("error")},
                                   {"error", ms_json_string(f->message)},
                                   {"type", ms_json_string(f->type)}));
    else
        ms_http_conn_fail(c, status_of(f->kind), f->message);
}

/* It did not come to an answer of its own. */
static void reply_failure(const struct http_call *call, const uint8_t *body, size_t len)
{
    Muster__Failure *f = body ? muster__failure__unpack(NULL, len, body) : NULL;

    if (atomic_load(&call->http->is_ending))
        ms_http_conn_fail(call->wait.conn, 503, "the worker is shutting down");
    else if (f)
        reply_raised(call->wait.conn, f);
    else
        ms_http_conn_fail(call->wait.conn, 503, "out of memory");
    muster__failure__free_unpacked(f, NULL);
}

/* Three digits, then JSON. */
static void reply_result(const struct http_call *call, const uint8_t *body, size_t len)
{
    int status = 0;

    for (size_t i = 0; i < 3 && i < len; i++)
        status = status * 10 + (body[i] - '0');
    if (len < 3 || status < 200 || status > 599) {
        ms_http_conn_fail(call->wait.conn, 500, "the engine's answer is none");
        return;
    }
    ms_http_conn_reply(
        call->wait.conn, status, "application/json", NULL, body + 3, len - 3);
}

static void
on_done(void *arg, uint8_t kind, uint8_t codec, const uint8_t *body, size_t len)
{
    struct http_call *call = arg;
    bool is_result = kind == MS_KIND_REPLY && codec == MS_CODEC_BYTES;

    call->request = NULL;
    /* what was set is also for those that are forked later */
    if (is_result && call->env && len > 3 && memcmp(body, "200", 3) == 0)
        json_object_update(call->http->env, call->env);
    if (call->wait.conn && is_result)
        reply_result(call, body, len);
    else if (call->wait.conn)
        reply_failure(call, body, len);
    call_free(call);
}

static void on_gone(struct http_wait *w)
{
    struct http_call *call = (struct http_call *)w;

    if (call->request)
        ms_server_submit_cancel(call->request);
}

static json_t *env_of(const struct ms_http_request *r)
{
    json_t *json = json_loadb((const char *)r->body, r->body_len, 0, NULL), *env;

    env = json_incref(json_object_get(json, "env"));
    json_decref(json);
    if (json_is_object(env))
        return env;
    json_decref(env); /* the engine's thread will say what is wrong */
    return NULL;
}

void ms_http_call(struct ms_worker_http *h,
                  struct ms_http_conn *c,
                  const struct ms_http_request *r,
                  uint16_t op)
{
    struct http_call *call;
    size_t len = r->body_len;
    uint8_t *body;

    if (atomic_load(&h->is_ending)) {
        ms_http_conn_fail(c, 503, "the worker is shutting down");
        return;
    }
    call = calloc(1, sizeof *call);
    if (!call) {
        ms_http_conn_fail(c, 503, "out of memory");
        return;
    }
    ms_list_add_tail(&h->calls, &call->link);
    call->http = h;
    call->wait.on_gone = on_gone;
    if (op == MS_OP_HTTP_SET_ENV)
        call->env = env_of(r);
    body = ms_http_conn_take_body(c);
    call->request =
        ms_server_submit(h->o.server, op, MS_CODEC_BYTES, body, len, on_done, call);
    if (!call->request) {
        call_free(call);
        ms_http_conn_fail(c, 503, "out of memory");
        return;
    }
    ms_http_wait_begin(&call->wait, c);
}

void ms_http_calls_end(struct ms_worker_http *h)
{
    ms_list_each (call, &h->calls, struct http_call, link)
        if (call->request)
            ms_server_submit_cancel(call->request);
}

void ms_http_calls_forget(struct ms_worker_http *h)
{
    ms_list_each (call, &h->calls, struct http_call, link)
        call->request = NULL;
}

void ms_http_calls_finish(struct ms_worker_http *h)
{
    ms_list_each (call, &h->calls, struct http_call, link)
        call_free(call);
}
