/* calls.c - calls to the workers of replicas, and what becomes of them */
#include "rollout/rollout_impl.h"

#include "plain/plain.h"
#include "plain/value.h"
#include "wire/client/exit_text.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char *const methods[] = {
    [CALL_GENERATE] = "generate",
    [CALL_ABORT] = "abort",
    [CALL_PROBE] = "alive",
    [CALL_SEEK] = "alive",
    [CALL_PAUSE] = "pause",
    [CALL_FLUSH] = "alive",
    [CALL_RESUME] = "resume",
};

/* ---- starting ---------------------------------------------------------------------- */

/* Send what the writer has; timelines join calls of one `flow`. NULL: no memory, or it cannot be
 * sent. */
static struct open_call *begin(struct ms_rollout *r,
                               struct replica *rep,
                               enum call_kind kind,
                               uint64_t flow,
                               const struct ms_plain_writer *w)
{
    struct iovec iov[MS_PLAIN_IOV_MAX];
    int64_t now_ns = ms_now_ns();
    struct ms_call_spec spec = {
        .codec = MS_CODEC_PLAIN,
        .stream = true,
        .deadline_ns = kind == CALL_GENERATE ? MS_NEVER : now_ns + MS_ROLLOUT_ACK_NS,
        .flow = flow,
        .iov = iov,
        .count = ms_plain_iov(w, iov)};
    int op = ms_peer_method(rep->peer, r->engine, methods[kind]);
    struct open_call *c;

    if (spec.count < 0 || op < 0)
        return NULL;
    spec.op = (uint16_t)op;
    c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    *c = (struct open_call){
        .kind = kind, .tag = ++r->last_tag, .replica = rep, .heard_ns = now_ns};
    if (ms_map_add(&r->calls, c->tag, c) < 0) {
        free(c);
        return NULL;
    }
    ms_list_add_tail(&rep->calls, &c->link);
    rep->running += kind == CALL_GENERATE;
    c->call = ms_peer_call(rep->peer, &spec);
    if (!c->call || ms_call_notify(c->call, r->inbox, c->tag) < 0) {
        ms_rollout_call_drop(r, c);
        return NULL;
    }
    return c;
}

struct open_call *ms_rollout_call_start(struct ms_rollout *r,
                                        struct replica *rep,
                                        enum call_kind kind,
                                        const struct muster_value *argument)
{
    struct ms_plain_writer w;
    struct open_call *c;

    ms_plain_writer_init(&w);
    if (argument)
        ms_value_encode(&w, MS_PLAIN_ITEM, argument);
    c = begin(r, rep, kind, 0, &w);
    ms_plain_writer_finish(&w);
    return c;
}

static struct ms_plain_mark entry(struct ms_plain_writer *w, const char *key)
{
    return ms_plain_begin_entry(w, false, key, strlen(key));
}

static void put_int(struct ms_plain_writer *w, const char *key, int64_t value)
{
    struct ms_plain_mark e = entry(w, key);

    ms_plain_put_int(w, MS_PLAIN_ENTRY_VALUE, value);
    ms_plain_end(w, e);
}

static void
put_value(struct ms_plain_writer *w, const char *key, const struct muster_value *value)
{
    struct ms_plain_mark e = entry(w, key);

    if (value)
        ms_value_encode(w, MS_PLAIN_ENTRY_VALUE, value);
    else
        ms_plain_put_null(w, MS_PLAIN_ENTRY_VALUE);
    ms_plain_end(w, e);
}

static void put_tokens(struct ms_plain_writer *w, const struct ms_rollout_sample *s)
{
    struct ms_plain_mark e = entry(w, "tokens");
    struct ms_plain_mark list = ms_plain_begin(w, MS_PLAIN_ENTRY_VALUE, MUSTER_LIST);

    for (size_t i = 0; i < s->count; i++)
        ms_plain_put_int(w, MS_PLAIN_ITEM, s->tokens[i]);
    ms_plain_end(w, list);
    ms_plain_end(w, e);
}

static void put_request(struct ms_plain_writer *w,
                        const struct request *q,
                        const struct ms_generate_decision *d)
{
    struct ms_plain_mark map = ms_plain_begin(w, MS_PLAIN_ITEM, MUSTER_MAP);
    struct ms_plain_mark rid = entry(w, "rid");

    ms_plain_put_data(
        w, MS_PLAIN_ENTRY_VALUE, MUSTER_TEXT, q->sample->rid, strlen(q->sample->rid));
    ms_plain_end(w, rid);
    put_int(w, "attempt", d->attempt);
    put_value(w, "prompt", q->group->prompt);
    put_tokens(w, q->sample);
    put_int(w, "max_new_tokens", d->max_tokens);
    put_value(w, "sampling", q->group->sampling);
    put_int(w, "version", d->version);
    put_int(w, "seq", d->seq);
    ms_plain_end(w, map);
}

int ms_rollout_call_start_generate(struct ms_rollout *r,
                                   struct replica *rep,
                                   struct request *q,
                                   const struct ms_generate_decision *d)
{
    struct ms_plain_writer w;
    struct open_call *c;

    assert(!q->stream); /* it decodes once at a time */
    ms_plain_writer_init(&w);
    put_request(&w, q, d);
    c = begin(r, rep, CALL_GENERATE, d->id, &w);
    ms_plain_writer_finish(&w);
    if (!c)
        return -ENOMEM;
    c->id = d->id;
    c->attempt = d->attempt;
    c->request = q;
    c->before = c->tokens = (uint32_t)q->sample->count;
    c->max_tokens = d->max_tokens;
    c->version = d->version;
    q->sample->reason[0] = '\0';
    q->stream = c;
    return 0;
}

/* ---- ending ------------------------------------------------------------------------ */

void ms_rollout_call_drop(struct ms_rollout *r, struct open_call *c)
{
    if (c->call) {
        if (c->kind != CALL_RESUME) /* of a replica that is let go; it is to happen */
            ms_call_cancel(c->call);
        ms_call_let_go(c->call);
        ms_call_unref(c->call);
    }
    if (c->request)
        c->request->stream = NULL;
    c->replica->running -= c->kind == CALL_GENERATE;
    ms_list_remove(&c->link);
    ms_map_remove(&r->calls, c->tag);
    free(c);
}

void ms_rollout_call_drop_all(struct ms_rollout *r, struct replica *rep)
{
    ms_list_each (c, &rep->calls, struct open_call, link)
        ms_rollout_call_drop(r, c);
}

static void later(struct ms_rollout *r, const struct open_call *c, uint32_t what)
{
    ms_rollout_later(
        r,
        (struct ms_generate_event){
            .what = what, .id = c->id, .attempt = c->attempt, .tokens = c->tokens});
}

/* `is_final`: the fault is the request's own. */
static void
fail(struct ms_rollout *r, struct open_call *c, const char *why, bool is_final)
{
    if (c->request)
        snprintf(c->request->sample->failure, MS_ROLLOUT_FAILURE, "%s", why);
    ms_rollout_later(r,
                     (struct ms_generate_event){.what = MS_FAILED,
                                                .id = c->id,
                                                .attempt = c->attempt,
                                                .tokens = c->tokens,
                                                .keep = is_final});
    ms_rollout_call_drop(r, c);
}

/* ---- items ------------------------------------------------------------------------- */

/* Of the tokens that have come last. An older one than at the sending is the engine's own word:
 * else tokens have that of the replica. */
static void look_at_version(struct ms_rollout *r, struct open_call *c)
{
    const struct ms_rollout_sample *s = c->request->sample;
    uint32_t version = s->runs[s->run_count - 1].version;

    if (version < c->version)
        ms_rollout_weights_fell_back(r, c, version);
}

/* 0, or -EBADMSG: it has failed and was dropped. */
static int take_chunk(struct ms_rollout *r,
                      struct open_call *c,
                      uint8_t codec,
                      const uint8_t *body,
                      size_t len)
{
    uint32_t before = c->tokens;
    struct ms_error err = {.text = "what generate gave is not plain data"};
    int64_t now_ns = ms_now_ns();
    int rc = codec == MS_CODEC_PLAIN ? 0 : -EBADMSG;

    if (!c->request)
        return 0; /* nobody wants it any more */
    if (rc == 0)
        rc = ms_rollout_chunk_take(c->request->sample,
                                   body,
                                   len,
                                   c->replica->version,
                                   c->before + c->max_tokens,
                                   &err);
    if (rc < 0) {
        fail(r, c, err.text, false);
        return -EBADMSG;
    }
    c->tokens = (uint32_t)c->request->sample->count;
    c->replica->tokens += c->tokens - before;
    ms_rollout_replica_measure(r, c->replica, c, c->tokens - before, now_ns);
    c->heard_ns = now_ns;
    if (c->tokens > before)
        look_at_version(r, c);
    return 0;
}

int ms_rollout_call_take_items(struct ms_rollout *r, struct open_call *c)
{
    uint32_t before = c->tokens;
    bool is_any = false;
    uint8_t codec, *body;
    size_t len;

    while (ms_call_take_item(c->call, &codec, &body, &len, NULL) > 0) {
        int rc = c->kind == CALL_GENERATE ? take_chunk(r, c, codec, body, len) : 0;

        free(body);
        if (rc < 0)
            return rc;
        is_any = true;
    }
    if (is_any && c->kind == CALL_GENERATE)
        later(r, c, c->tokens != before || !c->request ? MS_PROGRESS : MS_WAITING);
    return 0;
}

/* ---- ends -------------------------------------------------------------------------- */

static void finished(struct ms_rollout *r, struct open_call *c)
{
    struct ms_rollout_sample *s = c->request ? c->request->sample : NULL;
    bool is_full = c->tokens >= c->before + c->max_tokens;

    if (s && strcmp(s->reason, "abort") == 0 && c->tokens == c->before) {
        fail(r, c, "its engine has aborted it, unasked, before its first token", false);
        return;
    }
    if (s && strcmp(s->reason, "abort") == 0) {
        s->reason[0] = '\0';
        later(r, c, MS_ABORTED);
    } else if (is_full && (!s || !s->reason[0] || strcmp(s->reason, "length") == 0)) {
        if (s) /* of the attempt; the scheduler knows whether it is all */
            snprintf(s->reason, sizeof s->reason, "length");
        later(r, c, MS_CHUNK);
    } else {
        if (s && !s->reason[0])
            snprintf(s->reason, sizeof s->reason, "stop");
        later(r, c, MS_FINISHED);
    }
    ms_rollout_call_drop(r, c);
}

bool ms_rollout_call_finish_whole(struct ms_rollout *r, struct open_call *c)
{
    const char *reason;
    bool has_ended;

    if (c->kind != CALL_GENERATE || !c->request)
        return false;
    reason = c->request->sample->reason; /* "length": perhaps of the attempt alone */
    has_ended =
        reason[0] && strcmp(reason, "abort") != 0 && strcmp(reason, "length") != 0;
    if (!has_ended && c->tokens < c->request->group->max_new)
        return false;
    finished(r, c);
    return true;
}

/* Only these say that the worker is no more; all else its engine has said itself. */
static bool is_loss(Muster__Failure__Kind kind)
{
    return kind == MUSTER__FAILURE__KIND__WORKER_DIED ||
           kind == MUSTER__FAILURE__KIND__UNREACHABLE ||
           kind == MUSTER__FAILURE__KIND__SHUTTING_DOWN ||
           kind == MUSTER__FAILURE__KIND__DEADLINE;
}

/* Says the engine that no other would take the request either? */
static bool is_refusal(const Muster__Failure *f)
{
    const char *name = f ? strrchr(f->type, '.') : NULL;

    return f && strcmp(name ? name + 1 : f->type, MS_ROLLOUT_REFUSED) == 0;
}

static void describe(const Muster__Failure *f, char *out, size_t room)
{
    char how[MS_EXIT_TEXT_MAX];

    if (!f)
        snprintf(out, room, "it failed, and there was no memory to say how");
    else if (f->exit)
        snprintf(out, room, "%s %s", f->where, ms_exit_describe(f->exit, how));
    else
        snprintf(out,
                 room,
                 "%s%s%s%s%s",
                 f->where,
                 *f->where ? ": " : "",
                 f->type,
                 *f->type ? ": " : "",
                 f->message);
}

static void seek_later(struct ms_rollout *r, struct replica *rep)
{
    rep->seek_ns = ms_now_ns() + MS_ROLLOUT_SEEK_NS;
    if (rep->seek_ns < r->tick_ns)
        r->tick_ns = rep->seek_ns;
    ms_rollout_arm(r);
}

/* The engine stands still, but an item that it made before may still wait for a window to
 * open. Open all; the worker sends such items before it answers the next call. */
static void flush(struct ms_rollout *r, struct replica *rep)
{
    ms_list_each (c, &rep->calls, struct open_call, link)
        ms_rollout_call_take_items(r, c);
    if (rep->running == 0 || !ms_rollout_call_start(r, rep, CALL_FLUSH, NULL))
        ms_rollout_weights_paused(r, rep);
}

/* The engine has answered, with a result or a failure of its own. */
static void answered(struct ms_rollout *r, struct open_call *c, bool has_method)
{
    struct replica *rep = c->replica;
    enum call_kind kind = c->kind;

    if (kind == CALL_ABORT)
        later(r, c, MS_ABORTED);
    if (kind == CALL_PAUSE && !has_method)
        rep->no_pause = true;
    if (kind == CALL_RESUME)
        rep->resumes = 0;
    ms_rollout_call_drop(r, c);
    if (kind == CALL_PROBE)
        ms_rollout_later(r,
                         (struct ms_generate_event){.what = MS_ALIVE,
                                                    .replica = rep->number,
                                                    .epoch = rep->epoch});
    else if (kind == CALL_SEEK)
        ms_rollout_replica_found(r, rep);
    else if (kind == CALL_PAUSE)
        flush(r, rep);
    else if (kind == CALL_FLUSH)
        ms_rollout_weights_paused(r, rep);
}

static void failed(struct ms_rollout *r, struct open_call *c, const Muster__Failure *f)
{
    struct replica *rep = c->replica;
    Muster__Failure__Kind kind = f ? f->kind : MUSTER__FAILURE__KIND__UNKNOWN;
    char why[MS_ROLLOUT_FAILURE];

    describe(f, why, sizeof why);
    if (is_loss(kind) && c->kind == CALL_SEEK) {
        ms_rollout_call_drop(r, c);
        seek_later(r, rep);
    } else if (is_loss(kind)) {
        ms_rollout_replica_down(r, rep, why);
    } else if (c->kind == CALL_GENERATE) {
        if (!ms_rollout_call_finish_whole(r, c))
            fail(r, c, why, is_refusal(f));
    } else if (kind != MUSTER__FAILURE__KIND__NO_METHOD &&
               (c->kind == CALL_PAUSE || c->kind == CALL_RESUME)) {
        enum call_kind asked = c->kind;

        ms_rollout_call_drop(r, c);
        ms_rollout_weights_refused(r, rep, asked, why);
    } else {
        answered(r, c, kind != MUSTER__FAILURE__KIND__NO_METHOD);
    }
}

void ms_rollout_call_hear(struct ms_rollout *r, struct open_call *c)
{
    bool is_done = ms_call_is_done(c->call); /* before its last items are taken */
    struct ms_outcome o;

    if (ms_rollout_replica_has_changed(r, c->replica) ||
        ms_rollout_call_take_items(r, c) < 0 || !is_done)
        return;
    ms_call_outcome(c->call, &o);
    if (o.kind == MS_KIND_ERROR) {
        Muster__Failure *f = muster__failure__unpack(NULL, o.len, o.body);

        failed(r, c, f);
        muster__failure__free_unpacked(f, NULL);
        return;
    }
    if (c->kind != CALL_GENERATE) {
        answered(r, c, true);
        return;
    }
    if (!o.ends_stream && take_chunk(r, c, o.codec, o.body, o.len) < 0)
        return;
    finished(r, c);
}
