/* remote_follow.c - several logs of other machines, as they are written */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "cli/logs/remote.h"
#include "cli/logs/reorder.h"
#include "cli/out.h"
#include "io/loop.h"
#include "wire/client/client.h"
#include "wire/frame.h"

#include <errno.h>
#include <sys/epoll.h>

/* Pieces of several logs that come within this time are printed in the order of their own
 * times. */
#define MERGE_NS (20 * MS_NS_PER_MS)
/* The head's socket is gone: for how long it may be one that is being started again. */
#define EXIT_WAIT_NS (200 * MS_NS_PER_MS)

enum { TAG_STATUS = 0, TAG_JOB = 1, TAG_LOG = 2, TAGS_MAX = 64, TRIES_MAX = 3 };

struct piece {
    struct ms_reorder_item item; /* first */
    size_t log;
    Muster__LogPiece *message;
};

struct follow {
    struct ms_remote_logs *logs;
    struct ms_loop *loop;
    struct ms_client *client;
    struct ms_peer *peer;
    struct ms_inbox *inbox;
    struct ms_watch answers, reader;
    int reader_fd; /* an epoll that has an event when the reader of stdout has gone */
    struct ms_timer print;
    struct ms_reorder pieces;
    struct ms_call *status, *job;
    bool had_answer;   /* the connection works */
    bool is_lost;      /* and does no more */
    enum ms_exit code; /* why it ended, if not so */
};

static void end(struct follow *f, enum ms_exit code)
{
    f->code = code;
    ms_loop_stop(f->loop);
}

static void end_memory(struct follow *f)
{
    end(f, ms_out_fail(f->logs->target->cli, MS_EXIT_FAILED, "out of memory"));
}

static void drop(struct ms_call **c)
{
    if (*c) {
        ms_call_cancel(*c);
        ms_call_unref(*c);
    }
    *c = NULL;
}

/* ---- questions ------------------------------------------------------------------- */

static struct ms_call *ask(struct follow *f,
                           Muster__DriverToHead__BodyCase what,
                           const ProtobufCMessage *want,
                           uint64_t tag)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf packed = {0};
    int rc = ms_target_pack(what, want, &packed);
    struct iovec iov = {packed.data, packed.len};
    struct ms_call_spec spec = {.op = MS_OP_ASK,
                                .codec = MS_CODEC_PROTO,
                                .deadline_ns = ms_now_ns() + MS_HOLD_MAX_NS +
                                               f->logs->target->timeout_ns,
                                .iov = &iov,
                                .count = 1};
    struct ms_call *c = rc == 0 ? ms_peer_call(f->peer, &spec) : NULL;

    if (c && ms_call_notify(c, f->inbox, tag) == 0)
        return c;
    drop(&c);
    end_memory(f);
    return NULL;
}

static void ask_status(struct follow *f)
{
    Muster__StatusRequest want = MUSTER__STATUS_REQUEST__INIT;

    want.seen = f->logs->change;
    want.wait_ns = MS_HOLD_MAX_NS;
    f->status = ask(f, MUSTER__DRIVER_TO_HEAD__BODY_STATUS, &want.base, TAG_STATUS);
}

/* Until the job is over; NULL: it is not about a job. */
static void ask_job(struct follow *f)
{
    Muster__WaitJob want = MUSTER__WAIT_JOB__INIT;

    if (!f->logs->job)
        return;
    want.name = f->logs->job->name;
    want.wait_ns = MS_HOLD_MAX_NS;
    f->job = ask(f, MUSTER__DRIVER_TO_HEAD__BODY_WAIT_JOB, &want.base, TAG_JOB);
}

static void ask_log(struct follow *f, size_t i)
{
    struct ms_remote_log *l = &f->logs->at[i];
    Muster__ReadLog want;

    ms_remote_log_want(f->logs, l, &want);
    want.wait_ns = MS_HOLD_MAX_NS;
    l->call = ask(f, MUSTER__DRIVER_TO_HEAD__BODY_READ_LOG, &want.base, TAG_LOG + i);
}

/* For each log that none is under way for. */
static void ask_logs(struct follow *f)
{
    for (size_t i = 0; i < f->logs->count; i++)
        if (f->logs->at[i].is_listed && !f->logs->at[i].failed && !f->logs->at[i].call)
            ask_log(f, i);
}

/* ---- lines ----------------------------------------------------------------------- */

/* All that are due at this time. */
static void print_until(struct follow *f, int64_t now_ns)
{
    struct piece *p;

    while ((p = (struct piece *)ms_reorder_take(&f->pieces, now_ns))) {
        const ProtobufCBinaryData *data = &p->message->data;

        if (ms_logview_add(f->logs->view,
                           &f->logs->at[p->log].log,
                           (char *)data->data,
                           data->len) < 0)
            end_memory(f);
        muster__log_piece__free_unpacked(p->message, NULL);
        free(p);
    }
    fflush(stdout);
    if (ferror(stdout))
        end(f, MS_EXIT_FAILED);
}

static void on_due(void *arg)
{
    struct follow *f = arg;
    int64_t now_ns = ms_now_ns(), next_ns;

    print_until(f, now_ns);
    next_ns = ms_reorder_next_ns(&f->pieces);
    if (next_ns != MS_NEVER)
        ms_timer_set(&f->print, next_ns - now_ns);
}

/* Takes the message. */
static void add_piece(struct follow *f, size_t log, Muster__LogPiece *m)
{
    struct piece *p = malloc(sizeof *p);

    if (!p) {
        muster__log_piece__free_unpacked(m, NULL);
        end_memory(f);
        return;
    }
    p->log = log;
    p->message = m;
    if (ms_reorder_next_ns(&f->pieces) == MS_NEVER)
        ms_timer_set(&f->print, MERGE_NS);
    ms_reorder_add(&f->pieces, &p->item, m->time_ns, ms_now_ns());
}

/* ---- answers --------------------------------------------------------------------- */

/* A node that refuses is left out; anything else is the connection's end. */
static void take_failure(struct follow *f, uint64_t tag, const struct ms_outcome *o)
{
    Muster__Failure *why = muster__failure__unpack(NULL, o->len, o->body);

    if (tag == TAG_JOB && why && why->code < 0) { /* it was deleted */
        f->logs->is_over = true;
        ms_loop_stop(f->loop);
    } else if (tag >= TAG_LOG && f->logs->job && why && why->code < 0) {
        ; /* its node has gone: what it has left is read at the end */
    } else if (tag >= TAG_LOG && why && why->code < 0) { /* the head's own */
        f->logs->at[tag - TAG_LOG].failed = true;
        ms_out_fail(f->logs->target->cli,
                    MS_EXIT_FAILED,
                    "%s refuses: %s",
                    f->logs->target->who,
                    why->message);
    } else {
        f->is_lost = true;
        ms_loop_stop(f->loop);
    }
    if (why)
        muster__failure__free_unpacked(why, NULL);
}

/* NULL: it is none, and that was said. */
static ProtobufCMessage *read_answer(struct follow *f,
                                     Muster__DriverToHead__BodyCase asked,
                                     const struct ms_outcome *o)
{
    ProtobufCMessage *answer = NULL;

    if (ms_target_read(asked, o->body, o->len, &answer) < 0)
        end(f, ms_target_fail_unreadable(f->logs->target));
    return answer;
}

static void take_status(struct follow *f, const struct ms_outcome *o)
{
    Muster__Status *s =
        (Muster__Status *)read_answer(f, MUSTER__DRIVER_TO_HEAD__BODY_STATUS, o);

    if (!s)
        return;
    if (ms_remote_logs_add(f->logs, s) < 0)
        end_memory(f);
    muster__status__free_unpacked(s, NULL);
    ask_status(f);
    ask_logs(f);
}

static void take_job(struct follow *f, const struct ms_outcome *o)
{
    Muster__JobStatus *s =
        (Muster__JobStatus *)read_answer(f, MUSTER__DRIVER_TO_HEAD__BODY_WAIT_JOB, o);

    if (!s)
        return;
    f->logs->is_over = s->is_over;
    muster__job_status__free_unpacked(s, NULL);
    if (f->logs->is_over)
        ms_loop_stop(f->loop);
    else
        ask_job(f);
}

static void take_piece(struct follow *f, size_t i, const struct ms_outcome *o)
{
    struct ms_remote_log *l = &f->logs->at[i];
    Muster__LogPiece *m =
        (Muster__LogPiece *)read_answer(f, MUSTER__DRIVER_TO_HEAD__BODY_READ_LOG, o);

    if (!m)
        return;
    ms_remote_log_move(l, m);
    if (m->data.len || l->is_listed)
        ask_log(f, i); /* else no process writes there any more */
    if (m->data.len)
        add_piece(f, i, m);
    else
        muster__log_piece__free_unpacked(m, NULL);
}

static void take(struct follow *f, uint64_t tag)
{
    struct ms_call **at = tag == TAG_STATUS ? &f->status
                          : tag == TAG_JOB  ? &f->job
                                            : &f->logs->at[tag - TAG_LOG].call;
    struct ms_call *c = *at;
    struct ms_outcome o;

    if (!c || !ms_call_is_done(c) || f->is_lost)
        return;
    *at = NULL;
    ms_call_outcome(c, &o);
    if (o.kind == MS_KIND_ERROR) {
        take_failure(f, tag, &o);
    } else {
        f->had_answer = true;
        if (tag == TAG_STATUS)
            take_status(f, &o);
        else if (tag == TAG_JOB)
            take_job(f, &o);
        else
            take_piece(f, tag - TAG_LOG, &o);
    }
    ms_call_unref(c);
}

static void on_answers(void *arg, unsigned events)
{
    struct follow *f = arg;
    uint64_t tags[TAGS_MAX];
    size_t count;

    (void)events;
    while ((count = ms_inbox_take(f->inbox, tags, TAGS_MAX)) > 0)
        for (size_t i = 0; i < count; i++)
            take(f, tags[i]);
}

static void on_nobody_reads(void *arg, unsigned events)
{
    (void)events;
    end(arg, MS_EXIT_OK);
}

/* ---- a connection, from its beginning to its end ---------------------------------- */

/* A file has no reader: then there is nothing to watch. */
static int watch_reader(struct follow *f)
{
    struct epoll_event nothing = {.events = 0}; /* errors and hang-ups come anyhow */

    f->reader_fd = epoll_create1(EPOLL_CLOEXEC);
    if (f->reader_fd < 0)
        return -errno;
    if (epoll_ctl(f->reader_fd, EPOLL_CTL_ADD, STDOUT_FILENO, &nothing) < 0)
        return errno == EPERM ? 0 : -errno;
    return ms_watch_init(
        &f->reader, f->loop, f->reader_fd, MS_READ, on_nobody_reads, f);
}

static int follow_open(struct follow *f, enum ms_tls_mode tls, struct ms_error *err)
{
    const struct ms_target *t = f->logs->target;
    int rc;

    f->loop = ms_loop_create();
    f->inbox = ms_inbox_create();
    if (!f->loop || !f->inbox)
        return ms_error_set(err, -ENOMEM, "out of memory");
    f->client =
        ms_client_create(&(struct ms_client_options){.loop = f->loop,
                                                     .secret = t->secret,
                                                     .tls = tls,
                                                     .exit_wait_ns = EXIT_WAIT_NS,
                                                     .grace_ns = t->timeout_ns});
    if (!f->client)
        return ms_error_set(err, -ENOMEM, "out of memory");
    f->peer = ms_peer_create(f->client, t->address, 0, t->who, err);
    if (!f->peer)
        return err->code ? err->code : -ENOMEM;
    rc = ms_watch_init(
        &f->answers, f->loop, ms_inbox_fd(f->inbox), MS_READ, on_answers, f);
    if (rc == 0)
        rc = ms_timer_init(&f->print, f->loop, on_due, f);
    if (rc == 0)
        rc = watch_reader(f);
    return rc < 0 ? ms_error_sys(err, rc, "cannot follow") : 0;
}

static void follow_close(struct follow *f)
{
    drop(&f->status);
    drop(&f->job);
    for (size_t i = 0; i < f->logs->count; i++)
        drop(&f->logs->at[i].call);
    print_until(f, MS_NEVER);
    ms_watch_finish(&f->reader);
    ms_fd_close(&f->reader_fd);
    ms_timer_finish(&f->print);
    ms_watch_finish(&f->answers);
    ms_peer_unref(f->peer);
    ms_client_destroy(f->client, "it ends");
    ms_inbox_unref(f->inbox);
    ms_loop_destroy(f->loop);
}

/* Until it is lost, or there is no need any more. */
static enum ms_exit follow_once(struct follow *f, enum ms_tls_mode tls)
{
    struct ms_error err = {0};
    enum ms_exit code;

    ms_reorder_init(&f->pieces, MERGE_NS);
    if (follow_open(f, tls, &err) < 0) {
        f->code = ms_out_fail(f->logs->target->cli, MS_EXIT_FAILED, "%s", err.text);
    } else {
        ask_status(f);
        ask_job(f);
        ask_logs(f);
        ms_loop_run(f->loop);
    }
    code = f->code; /* what cannot be printed at the end does not matter */
    follow_close(f);
    return code;
}

/* A head of jobs may be on its way back: its supervisor starts it again. */
static enum ms_exit look_again(struct ms_remote_logs *logs)
{
    Muster__JobRef want = MUSTER__JOB_REF__INIT;
    ProtobufCMessage *answer = NULL;
    enum ms_exit code = MS_EXIT_OK;

    if (logs->job) {
        want.name = logs->job->name;
        code = ms_jobs_ask(
            logs->target, MUSTER__DRIVER_TO_HEAD__BODY_GET_JOB, &want.base, &answer);
        protobuf_c_message_free_unpacked(answer, NULL);
    }
    return code ? code : ms_remote_logs_look(logs);
}

/* A connection that was lost is made again if the head still answers; one that never
 * worked is tried with TLS, which it may want here too. */
enum ms_exit ms_remote_logs_follow(struct ms_remote_logs *logs)
{
    enum ms_tls_mode tls = MS_TLS_AUTO;
    unsigned tries = 0;
    enum ms_exit code = MS_EXIT_OK;

    logs->following = true;
    while (!code && tries < TRIES_MAX) {
        struct follow f = {.logs = logs, .reader_fd = -1};

        code = follow_once(&f, tls);
        if (code || !f.is_lost)
            return code;
        tries = f.had_answer ? 0 : tries + 1;
        if (!f.had_answer)
            tls = tls == MS_TLS_AUTO ? MS_TLS_ON : MS_TLS_AUTO;
        code = look_again(logs);
    }
    return code ? code
                : ms_out_fail(logs->target->cli,
                              MS_EXIT_UNREACHABLE,
                              "%s does not answer any more",
                              logs->target->who);
}
