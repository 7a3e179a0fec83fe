/* rest_worker.c - GET of a stack, asked of the worker as any caller would */
#include "base/cleanup.h"
#include "base/clock.h"
#include "head/head_impl.h"
#include "head/rest/rest_impl.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { TAGS = 16 };

/* ---- stacks ---------------------------------------------------------------------- */

struct stack {
    struct rest_wait wait;
    struct ms_peer *peer;
    struct ms_call *call;
};

static void stack_destroy(struct rest_wait *w)
{
    struct stack *s = (struct stack *)w;

    ms_list_remove(&w->link);
    ms_call_unref(s->call);
    ms_peer_unref(s->peer);
    free(s);
}

static void reply_failure(struct ms_http_conn *c, const struct ms_outcome *o)
{
    Muster__Failure *f = muster__failure__unpack(NULL, o->len, o->body);
    bool is_late = f && f->kind == MUSTER__FAILURE__KIND__DEADLINE;

    ms_http_conn_fail(
        c, is_late ? 504 : 502, f ? f->message : "the worker's answer cannot be read");
    muster__failure__free_unpacked(f, NULL);
}

static void reply_stack(struct ms_http_conn *c, const struct ms_outcome *o)
{
    Muster__Stack *m = muster__stack__unpack(NULL, o->len, o->body);

    if (!m) {
        ms_http_conn_fail(c, 502, "the worker's answer cannot be read");
        return;
    }
    ms_http_reply_json(c,
                       200,
                       json_pack("{s:o, s:o}",
                                 "python",
                                 ms_json_text(m->python, strlen(m->python)),
                                 "native",
                                 ms_json_text(m->native, strlen(m->native))));
    muster__stack__free_unpacked(m, NULL);
}

/* Some of them are done: tags are not looked at, there are few. */
static void on_inbox(void *arg, unsigned events)
{
    struct ms_rest *rest = arg;
    uint64_t tags[TAGS];

    (void)events;
    while (ms_inbox_take(rest->inbox, tags, TAGS) == TAGS)
        ;
    ms_list_each (w, &rest->waits, struct rest_wait, link) {
        struct stack *s = (struct stack *)w;
        struct ms_outcome o;

        if (w->destroy != stack_destroy || !ms_call_is_done(s->call))
            continue;
        ms_call_outcome(s->call, &o);
        if (w->conn && o.kind == MS_KIND_REPLY)
            reply_stack(w->conn, &o);
        else if (w->conn)
            reply_failure(w->conn, &o);
        stack_destroy(w);
    }
}

static int client_make(struct ms_rest *rest)
{
    struct ms_head *h = rest->head;
    struct ms_client_options o = {.loop = h->loop, .secret = h->session.secret};

    if (rest->client)
        return 0;
    rest->inbox = ms_inbox_create();
    rest->client = rest->inbox ? ms_client_create(&o) : NULL;
    if (rest->client && ms_watch_init(&rest->inbox_watch,
                                      h->loop,
                                      ms_inbox_fd(rest->inbox),
                                      MS_READ,
                                      on_inbox,
                                      rest) == 0)
        return 0;
    ms_rest_worker_finish(rest);
    return -ENOMEM;
}

static int
stack_begin(struct stack *s, const Muster__WorkerStatus *w, const char *label)
{
    struct ms_call_spec spec = {.op = MS_OP_STACK, .codec = MS_CODEC_PROTO};
    struct ms_rest *rest = s->wait.rest;

    if (client_make(rest) < 0)
        return -ENOMEM;
    spec.deadline_ns = ms_now_ns() + MS_HTTP_HEAD_NS;
    s->peer = ms_peer_create(rest->client, w->address, w->uid, label, NULL);
    s->call = s->peer ? ms_peer_call(s->peer, &spec) : NULL;
    if (!s->call || ms_call_notify(s->call, rest->inbox, 0) < 0) {
        ms_call_unref(s->call);
        ms_peer_unref(s->peer);
        return -ENOMEM;
    }
    return 0;
}

void ms_rest_stack(const struct rest_ask *ask, const Muster__Status *status)
{
    const Muster__WorkerStatus *w = ms_rest_find_worker(ask, status);
    char label[2 * MS_NAME_MAX + 16];
    struct stack *s;

    if (!w)
        return;
    if (w->state != MUSTER__WORKER_STATE__WORKER_RUNNING) {
        ms_http_conn_fail(ask->conn, 409, "the worker does not run");
        return;
    }
    s = calloc(1, sizeof *s);
    snprintf(label, sizeof label, "%.64s/%u@%.64s", ask->name, w->rank, w->node);
    if (s) {
        s->wait.rest = ask->rest;
        s->wait.destroy = stack_destroy;
    }
    if (!s || stack_begin(s, w, label) < 0) {
        free(s);
        ms_http_conn_fail(ask->conn, 503, "out of memory");
        return;
    }
    ms_rest_wait_begin(&s->wait, ask);
}

void ms_rest_worker_finish(struct ms_rest *rest)
{
    ms_watch_finish(&rest->inbox_watch);
    ms_client_destroy(MS_TAKE(rest->client), "the head ends");
    ms_inbox_unref(MS_TAKE(rest->inbox));
}
