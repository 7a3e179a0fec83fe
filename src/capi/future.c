/* future.c - what was begun: its items and its result */
#include "base/clock.h"
#include "capi/capi.h"
#include "plain/value.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

/* ---- results --------------------------------------------------------------------- */

/* A payload of a worker as a value. Takes `memory`. */
static int decode(uint8_t codec,
                  uint8_t *memory,
                  const uint8_t *body,
                  size_t len,
                  struct muster_value **value,
                  struct muster_error *err)
{
    struct ms_error why = {.code = -ENOMEM, .text = "out of memory"};
    struct muster_value *v = NULL;

    if (codec == MS_CODEC_PLAIN) {
        v = ms_value_decode(memory, body, len, &why);
    } else if (codec == MS_CODEC_BYTES) {
        v = ms_value_over_bytes(memory, body, len);
    } else {
        free(memory);
        ms_error_set(&why, -EPROTONOSUPPORT, "the answer is not plain data");
    }
    if (!v) {
        ms_capi_error(&why, err);
        if (err)
            err->kind = MUSTER_ERROR_BAD_RESULT;
        return why.code;
    }
    *value = v;
    return 0;
}

int ms_capi_outcome(struct ms_call *call,
                    struct muster_value **value,
                    struct muster_error *err)
{
    struct ms_outcome o;

    ms_call_outcome(call, &o);
    if (o.kind == MS_KIND_ERROR)
        return ms_capi_failure(o.body, o.len, ms_peer_label(ms_call_peer(call)), err);
    if (!value)
        return 0;
    ms_call_take_body(call, NULL);
    return decode(o.codec, (uint8_t *)(uintptr_t)o.body, o.body, o.len, value, err);
}

int muster_future_result(struct muster_future *f,
                         struct muster_value **value,
                         struct muster_error *err)
{
    int rc;

    if (!f)
        return ms_capi_missing("a future", err);
    while (!ms_call_is_done(f->call)) {
        uint8_t codec, *body;
        size_t len;

        ms_call_wait(f->call, MS_NEVER);
        while (ms_call_take_item(f->call, &codec, &body, &len, NULL))
            free(body); /* of a stream only the end was asked for */
    }
    if (f->taken)
        return muster_error_set(err, -EALREADY, NULL, "the result was taken before");
    rc = ms_capi_outcome(f->call, value, err);
    f->taken = value && rc == 0;
    return rc;
}

int muster_future_next(struct muster_future *f,
                       int64_t timeout_ns,
                       struct muster_value **item,
                       struct muster_error *err)
{
    int64_t until_ns = ms_deadline_ns(ms_now_ns(), timeout_ns);

    if (!f || !item)
        return ms_capi_missing(f ? "room for the item" : "a future", err);
    for (;;) {
        bool done = ms_call_is_done(f->call); /* before looking: items come first */
        uint8_t codec, *body;
        size_t len;
        int rc;

        if (ms_call_take_item(f->call, &codec, &body, &len, NULL)) {
            rc = decode(codec, body, body, len, item, err);
            return rc < 0 ? rc : 1;
        }
        if (done)
            return ms_capi_outcome(f->call, NULL, err);
        rc = ms_call_wait(f->call, until_ns);
        if (rc == -ETIMEDOUT)
            return muster_error_set(err, rc, NULL, "no item of the stream in time");
    }
}

/* ---- waiting --------------------------------------------------------------------- */

bool muster_future_is_done(struct muster_future *f)
{
    return f && ms_call_is_done(f->call);
}

int muster_future_wait(struct muster_future *f, int64_t timeout_ns)
{
    return f ? ms_call_wait(f->call, ms_deadline_ns(ms_now_ns(), timeout_ns)) : -EINVAL;
}

int ms_capi_inbox_wait(struct ms_inbox *inbox, int64_t until_ns, uint64_t *tag)
{
    for (;;) {
        struct pollfd p = {.fd = ms_inbox_fd(inbox), .events = POLLIN};
        int64_t left_ns = until_ns == MS_NEVER ? MS_NEVER : until_ns - ms_now_ns();
        struct timespec ts = {.tv_sec = left_ns / MS_NS_PER_S,
                              .tv_nsec = left_ns % MS_NS_PER_S};

        if (ms_inbox_take(inbox, tag, 1))
            return 0;
        if (left_ns <= 0)
            return -ETIMEDOUT;
        if (ppoll(&p, 1, until_ns == MS_NEVER ? NULL : &ts, NULL) < 0)
            return -errno;
    }
}

int ms_capi_inbox_create(struct muster_future *const *futures,
                         size_t count,
                         struct ms_inbox **inbox,
                         struct muster_error *err)
{
    int rc = (*inbox = ms_inbox_create()) ? 0 : -ENOMEM;

    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = ms_call_notify(futures[i]->call, *inbox, i);
    if (rc < 0)
        muster_error_set(err, rc, NULL, "cannot wait: %s", strerror(-rc));
    return rc;
}

int64_t muster_future_wait_any(struct muster_future *const *futures,
                               size_t count,
                               int64_t timeout_ns)
{
    int64_t until_ns = ms_deadline_ns(ms_now_ns(), timeout_ns);
    struct ms_inbox *inbox;
    uint64_t tag = 0;
    int rc;

    for (size_t i = 0; i < count; i++)
        if (!futures || !futures[i])
            return -EINVAL;
    for (size_t i = 0; i < count; i++)
        if (ms_call_is_done(futures[i]->call) || ms_call_has_items(futures[i]->call))
            return (int64_t)i;
    rc = ms_capi_inbox_create(futures, count, &inbox, NULL);
    if (rc == 0)
        rc = ms_capi_inbox_wait(inbox, until_ns, &tag);
    if (inbox)
        ms_inbox_unref(inbox);
    return rc < 0 ? rc : (int64_t)tag;
}

void muster_future_cancel(struct muster_future *f)
{
    if (f)
        ms_call_cancel(f->call);
}

void muster_future_destroy(struct muster_future *f)
{
    if (!f)
        return;
    ms_call_let_go(f->call);
    ms_call_unref(f->call);
    free(f);
}
