#include "head/rest/rest_impl.h"

#include <errno.h>

enum { GRACE_MAX_S = 3600 };

struct end {
    struct rest_wait wait;
    struct ms_head_op *op;
};

static int status_of(int code)
{
    switch (code) {
    case -EINVAL:
        return 400;
    case -ENOENT:
        return 404;
    case -ETIMEDOUT:
        return 504;
    case -ESHUTDOWN:
    case -ENOMEM:
        return 503;
    default:
        return 500;
    }
}

static void reply(struct ms_http_conn *c, const struct ms_head_op *op)
{
    struct ms_error err = {0};
    int rc = ms_head_op_result(op, &err);

    if (rc == 0)
        ms_http_conn_reply(c, 204, NULL, NULL, NULL, 0);
    else
        ms_http_conn_fail(c, status_of(rc), err.text);
}

/* The operation goes on; nobody hears how it ends. */
static void end_destroy(struct rest_wait *w)
{
    struct end *e = (struct end *)w;

    e->op->on_done = NULL;
    ms_head_op_unref(e->op);
    ms_list_remove(&w->link);
    free(e);
}

static void on_done(struct ms_head_op *op)
{
    struct end *e = op->done_arg;

    if (e->wait.conn)
        reply(e->wait.conn, op);
    end_destroy(&e->wait);
}

void ms_rest_end(const struct rest_ask *ask)
{
    int64_t grace_s =
        ms_rest_number(ask, "grace", MS_STOP_GRACE_NS / MS_NS_PER_S, 0, GRACE_MAX_S);
    struct ms_head_op *op;
    struct end *e;

    if (grace_s < 0)
        return;
    e = calloc(1, sizeof *e);
    if (!e) {
        ms_http_conn_fail(ask->conn, 503, "out of memory");
        return;
    }
    op = ms_head_destroy_cluster(ask->rest->head, ask->name, grace_s * MS_NS_PER_S);
    if (ms_head_op_result(op, NULL) != -EINPROGRESS) {
        reply(ask->conn, op);
        ms_head_op_unref(op);
        free(e);
        return;
    }
    /* it runs on this thread, later */
    e->op = op;
    e->wait.destroy = end_destroy;
    op->on_done = on_done;
    op->done_arg = e;
    ms_rest_wait_begin(&e->wait, ask);
}
