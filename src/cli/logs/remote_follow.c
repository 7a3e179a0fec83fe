/* remote_follow.c - several logs of other machines, as they are written */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/list.h"
#include "base/proto.h"
#include "cli/logs/remote.h"
#include "cli/logs/reorder.h"
#include "cli/out.h"
#include "io/loop.h"

#include <errno.h>
#include <sys/epoll.h>

/* Pieces of several logs that come within this time are printed in the order of their own
 * times. */
#define MERGE_NS (20 * MS_NS_PER_MS)
enum question_kind { ASKS_STATUS, ASKS_JOB, ASKS_LOG };

struct piece {
    struct ms_reorder_item item; /* first */
    size_t log;
    Muster__LogPiece *message;
};

struct follow {
    struct ms_remote_logs *logs;
    struct ms_loop *loop;
    struct ms_list questions; /* under way */
    struct ms_watch reader;
    int reader_fd; /* an epoll that has an event when the reader of stdout has gone */
    struct ms_timer print, late;
    struct ms_reorder pieces;
    bool is_lost;      /* the link */
    enum ms_exit code; /* why it ended, if not so */
};

struct question {
    struct ms_list link; /* follow.questions */
    struct follow *follow;
    enum question_kind kind;
    size_t log;
    struct ms_head_op *op;
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

static void lose(void *arg)
{
    struct follow *f = arg;

    f->is_lost = true;
    ms_loop_stop(f->loop);
}

/* ---- questions ------------------------------------------------------------------- */

static void question_destroy(struct question *q)
{
    ms_list_remove(&q->link);
    if (q->kind == ASKS_LOG)
        q->follow->logs->at[q->log].is_asked = false;
    ms_head_op_unref(q->op);
    free(q);
}

static void take(void *arg);

/* On the thread of the link. */
static void on_done(struct ms_head_op *op, void *arg)
{
    struct question *q = arg;

    (void)op;
    ms_loop_post(q->follow->loop, take, q);
}

static bool ask(struct follow *f,
                Muster__DriverToHead__BodyCase what,
                const ProtobufCMessage *want,
                enum question_kind kind,
                size_t log)
{
    struct question *q = calloc(1, sizeof *q);

    if (q) {
        *q = (struct question){.follow = f, .kind = kind, .log = log};
        q->op =
            ms_head_request_then(f->logs->target->tool.head, what, want, on_done, q);
    }
    if (q && q->op) {
        ms_list_add_tail(&f->questions, &q->link);
        return true;
    }
    free(q);
    end_memory(f);
    return false;
}

static void ask_status(struct follow *f)
{
    Muster__StatusRequest want = MUSTER__STATUS_REQUEST__INIT;

    want.seen = f->logs->change;
    want.wait_ns = MS_HOLD_MAX_NS;
    ask(f, MUSTER__DRIVER_TO_HEAD__BODY_STATUS, &want.base, ASKS_STATUS, 0);
}

/* Until the job is over; NULL: it is not about a job. */
static void ask_job(struct follow *f)
{
    Muster__WaitJob want = MUSTER__WAIT_JOB__INIT;

    if (!f->logs->job)
        return;
    want.name = f->logs->job->name;
    want.wait_ns = MS_HOLD_MAX_NS;
    ask(f, MUSTER__DRIVER_TO_HEAD__BODY_WAIT_JOB, &want.base, ASKS_JOB, 0);
}

static void ask_log(struct follow *f, size_t i)
{
    struct ms_remote_log *l = &f->logs->at[i];
    Muster__ReadLog want;

    ms_remote_log_want(f->logs, l, &want);
    want.wait_ns = MS_HOLD_MAX_NS;
    l->is_asked =
        ask(f, MUSTER__DRIVER_TO_HEAD__BODY_READ_LOG, &want.base, ASKS_LOG, i);
}

/* For each log that none is under way for. */
static void ask_logs(struct follow *f)
{
    for (size_t i = 0; i < f->logs->count; i++)
        if (f->logs->at[i].is_listed && !f->logs->at[i].failed &&
            !f->logs->at[i].is_asked)
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

static void add_piece(struct follow *f, size_t log, const Muster__LogPiece *m)
{
    struct piece *p = calloc(1, sizeof *p);

    if (p)
        p->message = (Muster__LogPiece *)ms_proto_copy(&m->base);
    if (!p || !p->message) {
        free(p);
        end_memory(f);
        return;
    }
    p->log = log;
    if (ms_reorder_next_ns(&f->pieces) == MS_NEVER)
        ms_timer_set(&f->print, MERGE_NS);
    ms_reorder_add(&f->pieces, &p->item, m->time_ns, ms_now_ns());
}

/* ---- answers --------------------------------------------------------------------- */

/* A node that refuses is left out. */
static void take_failure(struct follow *f,
                         enum question_kind kind,
                         size_t log,
                         const struct ms_error *why)
{
    if (why->code == -EPIPE || kind == ASKS_STATUS) {
        lose(f);
    } else if (kind == ASKS_JOB) { /* it was deleted */
        f->logs->is_over = true;
        ms_loop_stop(f->loop);
    } else if (!f->logs->job) {
        f->logs->at[log].failed = true;
        ms_out_fail(f->logs->target->cli,
                    MS_EXIT_FAILED,
                    "%s refuses: %s",
                    f->logs->target->who,
                    why->text);
    } /* else its node has gone: what it has left is read at the end */
}

static void take_status(struct follow *f, const Muster__Status *s)
{
    if (ms_remote_logs_add(f->logs, s) < 0)
        end_memory(f);
    ask_status(f);
    ask_logs(f);
}

static void take_job(struct follow *f, const Muster__JobStatus *s)
{
    f->logs->is_over = s->is_over;
    if (f->logs->is_over)
        ms_loop_stop(f->loop);
    else
        ask_job(f);
}

static void take_piece(struct follow *f, size_t i, const Muster__LogPiece *m)
{
    struct ms_remote_log *l = &f->logs->at[i];

    ms_remote_log_move(l, m);
    if (m->data.len || l->is_listed)
        ask_log(f, i); /* else no process writes there any more */
    if (m->data.len)
        add_piece(f, i, m);
}

static void take(void *arg)
{
    struct question *q = arg, done = *q;
    struct follow *f = q->follow;
    struct ms_error why = {0};
    const ProtobufCMessage *m = ms_head_op_message(q->op);
    int rc = ms_head_op_result(q->op, &why);

    q->op = NULL;
    question_destroy(q); /* it may be asked again */
    ms_timer_set(&f->late, MS_HOLD_MAX_NS + f->logs->target->timeout_ns);
    if (rc < 0)
        take_failure(f, done.kind, done.log, &why);
    else if (done.kind == ASKS_STATUS)
        take_status(f, (const Muster__Status *)m);
    else if (done.kind == ASKS_JOB)
        take_job(f, (const Muster__JobStatus *)m);
    else
        take_piece(f, done.log, (const Muster__LogPiece *)m);
    ms_head_op_unref(done.op);
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

static int follow_open(struct follow *f, struct ms_error *err)
{
    int rc = ms_target_join(f->logs->target, err);

    if (rc < 0)
        return rc;
    f->loop = ms_loop_create();
    if (!f->loop)
        return ms_error_set(err, -ENOMEM, "out of memory");
    rc = ms_timer_init(&f->print, f->loop, on_due, f);
    if (rc == 0)
        rc = ms_timer_init(&f->late, f->loop, lose, f);
    if (rc == 0)
        rc = watch_reader(f);
    return rc < 0 ? ms_error_sys(err, rc, "cannot follow") : 0;
}

/* What was asked and is not answered ends with the link. */
static void follow_close(struct follow *f)
{
    ms_tool_leave(&f->logs->target->tool);
    ms_list_each (q, &f->questions, struct question, link)
        question_destroy(q);
    print_until(f, MS_NEVER);
    ms_watch_finish(&f->reader);
    ms_fd_close(&f->reader_fd);
    ms_timer_finish(&f->print);
    ms_timer_finish(&f->late);
    ms_loop_destroy(f->loop);
}

/* Until it is lost, or there is no need any more. */
static enum ms_exit follow_once(struct follow *f)
{
    struct ms_error err = {0};
    enum ms_exit code;

    ms_list_init(&f->questions);
    ms_reorder_init(&f->pieces, MERGE_NS);
    if (follow_open(f, &err) < 0) {
        f->code = ms_out_fail(f->logs->target->cli, MS_EXIT_FAILED, "%s", err.text);
    } else {
        ask_status(f);
        ask_job(f);
        ask_logs(f);
        ms_timer_set(&f->late, MS_HOLD_MAX_NS + f->logs->target->timeout_ns);
        ms_loop_run(f->loop);
    }
    code = f->code; /* what cannot be printed at the end does not matter */
    follow_close(f);
    return code;
}

/* A head of jobs may be on its way back: its watchdog starts it again. */
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

/* A link that was lost is made again if the head still answers. */
enum ms_exit ms_remote_logs_follow(struct ms_remote_logs *logs)
{
    enum ms_exit code = MS_EXIT_OK;

    logs->following = true;
    while (!code) {
        struct follow f = {.logs = logs, .reader_fd = -1};

        code = follow_once(&f);
        if (code || !f.is_lost)
            return code;
        code = look_again(logs);
    }
    return code;
}
