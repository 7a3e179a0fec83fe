#include "base/cleanup.h"
#include "head/control_impl.h"
#include "head/head_impl.h"
#include "head/op.h"

#include <errno.h>

/* One `muster stop`: it ends when all its clusters have. The head's thread. */
struct stop {
    struct ms_head *head;
    struct ms_request *request;
    size_t open; /* operations, and 1 while they are being begun */
    Muster__Stopped done;
    struct ms_error why; /* of the first that failed */
};

static void release(struct stop *s)
{
    if (--s->open > 0)
        return;
    if (s->why.code)
        ms_request_fail_text(
            s->request, MUSTER__FAILURE__KIND__REFUSED, "%s", s->why.text);
    else
        ms_head_control_reply(s->request, &s->done.base);
    if (!s->why.code && s->done.head)
        s->head->on_stop_asked(s->head->arg);
    free(s);
}

static void note(struct stop *s, const struct ms_head_op *op)
{
    struct ms_error err = {0};
    int rc = ms_head_op_result(op, &err);

    /* somebody else has destroyed it meanwhile: so it is gone as was wanted */
    if (rc < 0 && rc != -ENOENT && !s->why.code)
        s->why = err;
}

static void on_done(struct ms_head_op *op)
{
    note(op->done_arg, op);
    release(op->done_arg);
}

/* Operations run on this thread later, so that on_done is set before they complete. */
static void
end_cluster(struct ms_head *h, struct stop *s, struct ms_cluster *c, int64_t grace_ns)
{
    struct ms_head_op *op;

    s->done.clusters++;
    s->done.workers += (uint32_t)c->live;
    op = ms_head_destroy_cluster(h, c->name, grace_ns);
    if (ms_head_op_result(op, NULL) == -EINPROGRESS) {
        op->on_done = on_done;
        op->done_arg = s;
        s->open++;
    } else {
        note(s, op);
    }
    ms_head_op_unref(op);
}

static void begin(struct ms_head *h, struct stop *s, const Muster__StopRequest *want)
{
    int64_t grace_ns = want->grace_ns > INT64_MAX ? INT64_MAX : (int64_t)want->grace_ns;
    struct ms_cluster *one;

    if (!want->cluster[0]) {
        ms_list_each (c, &h->registry.clusters, struct ms_cluster, link)
            end_cluster(h, s, c, grace_ns);
        return;
    }
    one = ms_registry_find(&h->registry, want->cluster);
    if (one)
        end_cluster(h, s, one, grace_ns);
    else
        ms_error_set(&s->why, -ENOENT, "there is no cluster '%s'", want->cluster);
}

void ms_head_control_stop(struct ms_head *h, struct ms_request *r)
{
    Muster__StopRequest *want = muster__stop_request__unpack(NULL, r->len, r->body);
    struct stop *s = want ? calloc(1, sizeof *s) : NULL;

    if (!s) {
        ms_request_fail_text(r,
                             want ? MUSTER__FAILURE__KIND__NO_MEMORY
                                  : MUSTER__FAILURE__KIND__BAD_ARGUMENT,
                             want ? "out of memory" : "the request cannot be read");
    } else {
        s->head = h;
        s->request = r;
        s->open = 1;
        muster__stopped__init(&s->done);
        s->done.head = want->head && h->on_stop_asked;
        begin(h, s, want);
        release(s);
    }
    if (want)
        muster__stop_request__free_unpacked(want, NULL);
}
