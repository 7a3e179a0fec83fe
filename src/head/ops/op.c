/* op.c - the life of an operation: created, run on the head's thread, completed once */
#include "head/ops/op.h"
#include "base/cleanup.h"
#include "base/proto.h"
#include "head/clusters/bringup.h"
#include "head/head_impl.h"
#include "head/nodes/node.h"
#include "head/ops/request.h"

#include <errno.h>
#include <string.h>

static struct ms_head_op no_memory = {
    .done = true,
    .error = {.code = -ENOMEM, .text = "out of memory"},
};

static struct ms_head_op forked = {
    .done = true,
    .error = {.code = -EPERM, .text = "this process was forked from the driver"},
};

struct ms_head_op *ms_head_op_refused(const struct ms_head *h)
{
    return ms_head_is_forgotten(h) ? &forked : &no_memory;
}

static void init_condition(pthread_cond_t *c)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(c, &attr);
    pthread_condattr_destroy(&attr);
}

struct ms_head_op *ms_head_op_create(struct ms_head *h)
{
    struct ms_head_op *op = ms_head_is_forgotten(h) ? NULL : calloc(1, sizeof *op);

    if (!op)
        return NULL;
    atomic_init(&op->refs, 2);
    pthread_mutex_init(&op->lock, NULL);
    init_condition(&op->changed);
    ms_list_init(&op->wait_link);
    ms_list_init(&op->asks);
    ms_list_init(&op->bringup.link);
    op->head = h;
    op->asker = MS_ASKER_PROCESS;
    op->run = ms_head_request_run;
    pthread_mutex_lock(&h->lock);
    ms_list_add_tail(&h->ops, &op->link);
    pthread_mutex_unlock(&h->lock);
    return op;
}

void ms_head_op_unref(struct ms_head_op *op)
{
    if (!op || op == &no_memory || op == &forked)
        return;
    if (atomic_fetch_sub_explicit(&op->refs, 1, memory_order_acq_rel) > 1)
        return;
    protobuf_c_message_free_unpacked(op->message, NULL);
    muster__driver_to_head__free_unpacked(op->request, NULL);
    muster__failure__free_unpacked(op->failure, NULL);
    ms_buf_finish(&op->table);
    pthread_cond_destroy(&op->changed);
    pthread_mutex_destroy(&op->lock);
    free(op);
}

/* ---- completion ------------------------------------------------------------------ */

static void complete(struct ms_head_op *op, ProtobufCMessage *message)
{
    struct ms_head *h = op->head;

    ms_timer_finish(&op->deadline);
    ms_bringup_finish(op);
    ms_change_plan_finish(&op->plan);
    ms_list_remove(&op->wait_link);
    ms_head_op_drop_asks(op);
    pthread_mutex_lock(&h->lock);
    ms_list_remove(&op->link);
    pthread_mutex_unlock(&h->lock);

    pthread_mutex_lock(&op->lock);
    op->message = message;
    atomic_store_explicit(&op->done, true, memory_order_release);
    pthread_cond_broadcast(&op->changed);
    pthread_mutex_unlock(&op->lock);
    if (op->on_done)
        op->on_done(op, op->done_arg);
    ms_head_op_unref(op);
}

void ms_head_op_succeed(struct ms_head_op *op, ProtobufCMessage *message)
{
    op->error.code = 0;
    complete(op, message);
}

void ms_head_op_answer(struct ms_head_op *op, ProtobufCMessage *message)
{
    if (message)
        ms_head_op_succeed(op, message);
    else
        ms_head_op_fail(op, -ENOMEM, "out of memory");
}

void ms_head_op_succeed_copy(struct ms_head_op *op, const ProtobufCMessage *message)
{
    ms_head_op_answer(op, ms_proto_copy(message));
}

void ms_head_op_complete(struct ms_head_op *op, ProtobufCMessage *message)
{
    if (op->error.code && op->on_failed)
        op->on_failed(op);
    if (op->table.len && !ms_buf_str(&op->table)) /* so that it ends with a NUL */
        op->table.len = 0;
    complete(op, message);
}

void ms_head_op_done(struct ms_head_op *op)
{
    ms_head_op_complete(op, NULL);
}

void ms_head_op_fail_with(struct ms_head_op *op, const struct ms_error *err)
{
    op->error = *err;
    ms_head_op_complete(op, NULL);
}

void ms_head_op_fail(struct ms_head_op *op, int code, const char *fmt, ...)
{
    struct ms_error err = {.code = code};
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(err.text, sizeof err.text, fmt, ap);
    va_end(ap);
    ms_head_op_fail_with(op, &err);
}

/* ---- waiting --------------------------------------------------------------------- */

int ms_head_op_set_deadline(struct ms_head_op *op,
                            void (*on_late)(void *op),
                            int64_t delay_ns)
{
    ms_timer_finish(&op->deadline);
    if (ms_timer_init(&op->deadline, op->head->loop, on_late, op) < 0)
        return -ENOMEM;
    ms_timer_set(&op->deadline, delay_ns);
    return 0;
}

static void on_late(void *arg)
{
    struct ms_head_op *op = arg;

    op->retry(op, true);
}

int ms_head_op_wait_in(struct ms_head_op *op,
                       struct ms_list *list,
                       bool (*retry)(struct ms_head_op *op, bool is_last),
                       int64_t wait_ns)
{
    if (retry(op, wait_ns == 0))
        return 0;
    if (wait_ns < MS_NEVER && ms_head_op_set_deadline(op, on_late, wait_ns) < 0)
        return -ENOMEM;
    op->retry = retry;
    ms_list_add_tail(list, &op->wait_link);
    return 0;
}

void ms_head_op_retry_all(struct ms_list *list)
{
    ms_list_each (op, list, struct ms_head_op, wait_link)
        op->retry(op, false);
}

static void
answered(struct ms_head_op *op, struct ms_node *n, Muster__AgentToHead *answer)
{
    (void)n;
    (void)answer;
    ms_head_op_gather_end(op);
}

static void
refused(struct ms_head_op *op, struct ms_node *n, const struct ms_error *why)
{
    (void)n;
    (void)why;
    ms_head_op_gather_end(op);
}

void ms_head_op_gather(struct ms_head_op *op, void (*next)(struct ms_head_op *op))
{
    op->on_answer = answered;
    op->on_refused = refused;
    op->next = next;
}

void ms_head_op_gather_end(struct ms_head_op *op)
{
    if (ms_list_is_empty(&op->asks))
        op->next(op);
}

void ms_head_op_drop_asks(struct ms_head_op *op)
{
    ms_list_each (a, &op->asks, struct ms_ask, link)
        ms_ask_destroy(a);
}

/* ---- the caller's side ----------------------------------------------------------- */

void ms_head_op_end(struct ms_head_op *op, int rc)
{
    if (rc < 0 && !op->error.code)
        ms_error_set(
            &op->error, rc, "%s", rc == -ENOMEM ? "out of memory" : strerror(-rc));
    if (rc < 0)
        ms_head_op_complete(op, NULL);
}

void ms_head_op_run(struct ms_head_op *op)
{
    ms_head_op_end(op, op->run(op));
}

static void on_posted(void *arg)
{
    ms_head_op_run(arg);
}

int ms_head_op_post(struct ms_head_op *op)
{
    return ms_loop_post(op->head->loop, on_posted, op);
}

struct ms_head_op *ms_head_op_submit(struct ms_head_op *op)
{
    if (ms_head_op_post(op) < 0)
        ms_head_op_fail(op, -ENOMEM, "out of memory");
    return op;
}

int ms_head_op_wait(struct ms_head_op *op, int64_t deadline_ns)
{
    struct timespec at = {.tv_sec = (time_t)(deadline_ns / MS_NS_PER_S),
                          .tv_nsec = (long)(deadline_ns % MS_NS_PER_S)};
    int rc = 0;

    if (atomic_load_explicit(&op->done, memory_order_acquire))
        return 0;
    pthread_mutex_lock(&op->lock);
    while (rc == 0 && !atomic_load_explicit(&op->done, memory_order_relaxed))
        rc = deadline_ns == MS_NEVER
                 ? pthread_cond_wait(&op->changed, &op->lock)
                 : pthread_cond_timedwait(&op->changed, &op->lock, &at);
    if (atomic_load_explicit(&op->done, memory_order_relaxed))
        rc = 0;
    pthread_mutex_unlock(&op->lock);
    return -rc;
}

int ms_head_op_call(struct ms_head *h,
                    ms_verb_run *run,
                    int64_t deadline_ns,
                    struct ms_error *err)
{
    struct ms_head_op *op = ms_head_op_create(h);
    int rc;

    if (!op)
        return ms_error_set(err, -ENOMEM, "out of memory");
    op->run = run;
    rc = ms_head_op_wait(ms_head_op_submit(op), deadline_ns);
    if (rc == 0)
        rc = ms_head_op_result(op, err);
    ms_head_op_unref(op);
    return rc;
}

int ms_head_op_result(const struct ms_head_op *op, struct ms_error *err)
{
    if (!atomic_load_explicit(&op->done, memory_order_acquire))
        return ms_error_set(err, -EINPROGRESS, "the operation has not completed");
    if (op->error.code && err)
        *err = op->error;
    return op->error.code;
}

const char *ms_head_op_table(const struct ms_head_op *op)
{
    return atomic_load_explicit(&op->done, memory_order_acquire) && op->table.len
               ? (const char *)op->table.data
               : NULL;
}

const Muster__Failure *ms_head_op_failure(const struct ms_head_op *op)
{
    return atomic_load_explicit(&op->done, memory_order_acquire) ? op->failure : NULL;
}

const ProtobufCMessage *ms_head_op_message(const struct ms_head_op *op)
{
    return atomic_load_explicit(&op->done, memory_order_acquire) ? op->message : NULL;
}
