/* call.c - calls to workers, to one or to many */
#include "base/cleanup.h"
#include "base/clock.h"
#include "capi/capi.h"
#include "plain/value.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#define GATHER_READ_NS (2 * MS_NS_PER_MS)

static const char default_engine[] = "default";

/* A call that is ready to be sent to any worker of its cluster. */
struct message {
    struct ms_plain_writer w;
    struct iovec iov[MS_PLAIN_IOV_MAX];
    struct ms_call_spec spec;
    const char *engine, *method;
};

static void message_init(struct message *m,
                         const struct muster_cluster *c,
                         const char *method,
                         const struct muster_call_options *options)
{
    int64_t timeout_ns;

    assert(c); /* check() has seen it */
    timeout_ns = c->timeout_ns;
    m->engine = default_engine;
    m->method = method;
    if (options && options->timeout_ns)
        timeout_ns = options->timeout_ns;
    if (options && options->engine)
        m->engine = options->engine;
    m->spec = (struct ms_call_spec){
        .codec = MS_CODEC_PLAIN,
        .stream = true,
        .deadline_ns = ms_deadline_ns(ms_now_ns(), timeout_ns),
        .iov = m->iov,
    };
    ms_plain_writer_init(&m->w);
}

static int
check(const struct muster_cluster *c, const char *method, struct muster_error *err)
{
    return !c        ? ms_capi_missing("a cluster", err)
           : !method ? ms_capi_missing("the name of a method", err)
                     : 0;
}

/* The writer's failure, told. */
static int message_failed(int rc, const char *method, struct muster_error *err)
{
    muster_error_set(
        err,
        rc,
        NULL,
        "the arguments of '%s' cannot be sent: %s",
        method,
        rc == -EINVAL  ? "they are a list, and the named ones a map"
        : rc == -E2BIG ? "they are beyond a limit (nested too deep, too many, too big)"
                       : strerror(-rc));
    if (err)
        err->kind = MUSTER_ERROR_BAD_ARGUMENT;
    return rc;
}

/* 0, and message_finish is due; or a failure, and it is not. */
static int message_encode(struct message *m,
                          const struct muster_cluster *c,
                          const char *method,
                          const struct muster_value *args,
                          const struct muster_call_options *options,
                          struct muster_error *err)
{
    int rc = check(c, method, err);

    if (rc < 0)
        return rc;
    message_init(m, c, method, options);
    ms_value_encode_arguments(&m->w, args, options ? options->kwargs : NULL);
    m->spec.count = ms_plain_iov(&m->w, m->iov);
    if (m->spec.count >= 0)
        return 0;
    ms_plain_writer_finish(&m->w);
    return message_failed(m->spec.count, method, err);
}

static void message_finish(struct message *m)
{
    ms_plain_writer_finish(&m->w);
}

/* NULL with the reason. */
static struct ms_call *send_to(struct muster_cluster *c,
                               uint32_t rank,
                               struct message *m,
                               struct muster_error *err)
{
    struct ms_call *call;
    int op;

    if (rank >= c->world_size) {
        muster_error_set(err,
                         -ERANGE,
                         NULL,
                         "%s has no worker %u: it has %u",
                         c->name,
                         rank,
                         c->world_size);
        return NULL;
    }
    if (!c->workers[rank].peer) { /* a change of the cluster has failed half-way */
        muster_error_set(err, -EAGAIN, NULL, "%s/%u is not there", c->name, rank);
        return NULL;
    }
    op = ms_peer_method(c->workers[rank].peer, m->engine, m->method);
    if (op < 0) {
        muster_error_set(err,
                         op,
                         NULL,
                         "'%s' cannot be called: %s",
                         m->method,
                         op == -EILSEQ ? "a name is UTF-8 without control characters"
                                       : strerror(-op));
        return NULL;
    }
    m->spec.op = (uint16_t)op;
    call = ms_peer_call(c->workers[rank].peer, &m->spec);
    if (!call)
        ms_capi_no_memory(err);
    return call;
}

/* ---- one worker ------------------------------------------------------------------ */

int muster_cluster_call_sync(struct muster_cluster *c,
                             uint32_t rank,
                             const char *method,
                             const struct muster_value *args,
                             const struct muster_call_options *options,
                             struct muster_value **result,
                             struct muster_error *err)
{
    struct muster_error own = {.code = 0}, *why = err ? err : &own;
    struct muster_future future = {0};
    struct message m;
    int rc = message_encode(&m, c, method, args, options, err);

    if (rc < 0)
        return rc;
    m.spec.waits = true;
    future.call = send_to(c, rank, &m, why);
    message_finish(&m);
    if (!future.call)
        return why->code;
    rc = muster_future_result(&future, result, err);
    ms_call_unref(future.call);
    return rc;
}

static struct muster_future *future_of(struct ms_call *call, struct muster_error *err)
{
    struct muster_future *f = call ? calloc(1, sizeof *f) : NULL;

    if (call && !f) {
        ms_call_unref(call);
        ms_capi_no_memory(err);
    }
    if (f)
        f->call = call;
    return f;
}

struct muster_future *muster_cluster_call(struct muster_cluster *c,
                                          uint32_t rank,
                                          const char *method,
                                          const struct muster_value *args,
                                          const struct muster_call_options *options,
                                          struct muster_error *err)
{
    struct muster_future *f = NULL;

    return muster_cluster_call_some(c, &rank, 1, method, args, options, &f, err) == 0
               ? f
               : NULL;
}

struct muster_future *
muster_cluster_call_bytes(struct muster_cluster *c,
                          uint32_t rank,
                          const char *method,
                          const void *data,
                          size_t len,
                          const struct muster_call_options *options,
                          struct muster_error *err)
{
    struct muster_future *f;
    struct message m;

    if (check(c, method, err) < 0 || (!data && len && ms_capi_missing("data", err) < 0))
        return NULL;
    message_init(&m, c, method, options);
    m.spec.codec = MS_CODEC_BYTES;
    m.iov[0] = (struct iovec){(void *)(uintptr_t)data, len};
    m.spec.count = 1;
    f = future_of(send_to(c, rank, &m, err), err);
    message_finish(&m);
    return f;
}

/* ---- many workers ---------------------------------------------------------------- */

/* Drop what was begun: nobody will ask for it. */
static void give_up(struct muster_future **futures, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        muster_future_cancel(futures[i]);
        muster_future_destroy(futures[i]);
    }
}

int muster_cluster_call_some(struct muster_cluster *c,
                             const uint32_t *ranks,
                             size_t count,
                             const char *method,
                             const struct muster_value *args,
                             const struct muster_call_options *options,
                             struct muster_future **futures,
                             struct muster_error *err)
{
    struct muster_error why = {.code = 0};
    struct message m;
    int rc = futures ? message_encode(&m, c, method, args, options, err)
                     : ms_capi_missing("room for futures", err);

    for (size_t i = 0; rc == 0 && i < count; i++) {
        uint32_t rank = ranks ? ranks[i] : (uint32_t)i;

        futures[i] = future_of(send_to(c, rank, &m, &why), &why);
        if (futures[i])
            continue;
        give_up(futures, i);
        memset(futures, 0, count * sizeof(struct muster_future *));
        if (err)
            *err = why;
        rc = why.code;
        message_finish(&m);
        return rc;
    }
    if (rc == 0)
        message_finish(&m);
    return rc;
}

/* One of them has news: if it is done, take its value. */
static int take(struct muster_future *f,
                struct muster_value **value,
                size_t *left,
                struct muster_error *err)
{
    if (f->taken || !ms_call_is_done(f->call))
        return 0;
    f->taken = true;
    (*left)--;
    return ms_capi_outcome(f->call, value, err);
}

/* Results as they come; the first failure ends it. Answers that come at once are read
 * here, without a hand-over from the loop's thread. */
static int gather(struct muster_future **futures,
                  size_t count,
                  struct muster_value **values,
                  struct muster_error *err)
{
    int64_t until_ns = ms_now_ns() + GATHER_READ_NS;
    struct ms_inbox *inbox = NULL;
    size_t left = count;
    int rc = 0;

    for (size_t i = 0; i < count; i++) {
        assert(futures[i]);
        if (ms_call_wait(futures[i]->call, until_ns) < 0)
            break;
    }
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = take(futures[i], &values[i], &left, err);
    if (rc == 0 && left)
        rc = ms_capi_inbox_create(futures, count, &inbox, err);
    while (rc == 0 && left) {
        uint64_t tag = 0;

        rc = ms_capi_inbox_wait(inbox, MS_NEVER, &tag);
        if (rc == 0)
            rc = take(futures[tag], &values[tag], &left, err);
        else if (rc == -EINTR)
            rc = 0;
        else
            muster_error_set(err, rc, NULL, "cannot wait: %s", strerror(-rc));
    }
    if (inbox)
        ms_inbox_unref(inbox);
    return rc;
}

int muster_cluster_call_all_sync(struct muster_cluster *c,
                                 const char *method,
                                 const struct muster_value *args,
                                 const struct muster_call_options *options,
                                 struct muster_value **results,
                                 struct muster_error *err)
{
    size_t n = c ? c->world_size : 0;
    MS_CLEANUP(ms_cleanup_free)
    struct muster_future **futures = calloc(n + 1, sizeof(struct muster_future *));
    MS_CLEANUP(ms_cleanup_free)
    struct muster_value **values = calloc(n + 1, sizeof(struct muster_value *));
    int rc;

    if (!futures || !values)
        return ms_capi_no_memory(err);
    rc = muster_cluster_call_some(c, NULL, n, method, args, options, futures, err);
    if (rc < 0)
        return rc;
    rc = gather(futures, n, values, err);
    for (size_t i = 0; i < n; i++) {
        if (rc < 0 || !results)
            muster_value_destroy(values[i]);
        else
            results[i] = values[i];
        if (rc < 0) /* nobody can ask for it any more */
            muster_future_cancel(futures[i]);
        muster_future_destroy(futures[i]);
    }
    return rc;
}
