/* submit.c - requests for the engine that came by another way than a connection */
#include "wire/server/server_impl.h"

#include <errno.h>

void ms_submit_init(struct ms_server *s)
{
    s->local.server = s;
    ms_list_init(&s->local.link);
    ms_list_init(&s->local.kept);
    ms_list_init(&s->finished);
}

void ms_submit_finish(struct ms_server *s)
{
    struct ms_request *r;
    size_t at = 0;

    while ((r = ms_map_next(&s->local.requests, &at)))
        ms_request_drop(r); /* out of `finished` too */
    ms_map_finish(&s->local.requests);
}

struct ms_request *ms_server_submit(struct ms_server *s,
                                    uint16_t op,
                                    uint8_t codec,
                                    uint8_t *body,
                                    size_t len,
                                    ms_submit_fn *on_done,
                                    void *arg)
{
    struct ms_request *r;
    bool tell;

    pthread_mutex_lock(&s->lock);
    r = ms_request_create(&s->local, s->local.newest + 1);
    if (!r) {
        pthread_mutex_unlock(&s->lock);
        free(body);
        return NULL;
    }
    r->state = MS_SERVE_WAITING;
    r->op = op;
    r->method = op >= MS_OP_METHOD ? s->methods[op - MS_OP_METHOD] : NULL;
    r->codec = codec;
    r->memory = r->body = body;
    r->len = len;
    r->on_done = on_done;
    r->done_arg = arg;
    ms_request_enqueue(r);
    ms_engine_wake(s, NULL);
    tell = s->is_async && s->o.ops->on_queued;
    pthread_mutex_unlock(&s->lock);
    if (tell)
        s->o.ops->on_queued(s->o.arg);
    return r;
}

int ms_server_submit_method(struct ms_server *s, const char *engine, const char *method)
{
    const struct ms_method *m;
    MS_LOCK(&s->lock);

    m = ms_server_intern(s, engine, method);
    return m ? MS_OP_METHOD + (int)m->index : -ENOSPC;
}

void ms_server_submit_cancel(struct ms_request *r)
{
    MS_LOCK(&r->server->lock);

    ms_request_cancel(r);
}

void ms_submit_answered(struct ms_request *r)
{
    ms_list_add_tail(&r->server->finished, &r->ledger_link);
    ms_server_wake_loop(r->server);
}

void ms_submit_tell(struct ms_server *s)
{
    struct ms_request *r;

    while ((r = ms_list_take(&s->finished, struct ms_request, ledger_link))) {
        ms_map_remove(&s->local.requests, r->call_id);
        r->ledger = NULL;
        pthread_mutex_unlock(&s->lock);
        r->on_done(r->done_arg, r->reply_kind, r->reply_codec, r->reply, r->reply_len);
        pthread_mutex_lock(&s->lock);
        ms_request_unref_locked(r);
    }
}
