/* stop_clusters.c - ending a cluster, or all clusters of all drivers */
#include "base/proto.h"
#include "head/clusters/clusters_impl.h"
#include "head/head_impl.h"
#include "head/ops/op.h"
#include "head/ops/request.h"

#include <errno.h>
#include <stdlib.h>

/* It ends when all its clusters have; the request may end before, with the head. */
struct stop {
    struct ms_head *head;
    struct ms_head_op *op; /* the request; NULL: it has failed */
    size_t open;           /* clusters, and 1 while they are being begun */
    Muster__Stopped done;
    struct ms_error why; /* of the first that failed */
};

static void request_failed(struct ms_head_op *op)
{
    struct stop *s = op->data;

    s->op = NULL;
}

static void release(struct stop *s)
{
    if (--s->open > 0)
        return;
    if (s->op)
        s->op->on_failed = NULL;
    if (s->op && s->why.code)
        ms_head_op_fail_with(s->op, &s->why);
    else if (s->op)
        ms_head_op_succeed_copy(s->op, &s->done.base);
    if (!s->why.code && s->done.head)
        s->head->on_stop_asked(s->head->arg);
    free(s);
}

static void on_done(struct ms_head_op *op, void *arg)
{
    struct stop *s = arg;
    struct ms_error err = {0};
    int rc = ms_head_op_result(op, &err);

    /* another request has destroyed it meanwhile: it is gone, as was asked */
    if (rc < 0 && rc != -ENOENT && !s->why.code)
        s->why = err;
    release(s);
}

static void end_cluster(struct stop *s, const struct ms_cluster *c, uint64_t grace_ns)
{
    Muster__DestroyCluster destroy = MUSTER__DESTROY_CLUSTER__INIT;
    struct ms_head_op *op;

    destroy.name = ms_field_text(c->name);
    destroy.grace_ns = grace_ns;
    s->done.clusters++;
    s->done.workers += (uint32_t)c->live;
    s->open++;
    op = ms_head_request_then(
        s->head, MUSTER__DRIVER_TO_HEAD__BODY_DESTROY, &destroy, on_done, s);
    if (!op) {
        s->open--;
        ms_error_set(&s->why, -ENOMEM, "out of memory");
    }
    ms_head_op_unref(op);
}

int ms_head_stop_clusters_run(struct ms_head_op *op)
{
    const Muster__StopRequest *want = op->request->stop;
    const struct ms_cluster *one =
        want->cluster[0] ? ms_head_find_cluster(op, want->cluster) : NULL;
    struct stop *s;

    if (op->error.code)
        return op->error.code;
    s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    s->head = op->head;
    s->op = op;
    s->open = 1;
    muster__stopped__init(&s->done);
    s->done.head = want->head && op->head->on_stop_asked;
    op->data = s;
    op->on_failed = request_failed;
    ms_list_each (c, &op->head->registry.clusters, struct ms_cluster, link)
        if (!one || c == one)
            end_cluster(s, c, want->grace_ns);
    release(s);
    return 0;
}
