#include "head/request.h"
#include "head/rest/rest_impl.h"
#include "head/rest/view_objects.h"

#include <stdlib.h>

struct asking {
    struct rest_wait wait;
    struct ms_head_op *op; /* NULL: it has completed */
};

static void destroy(struct rest_wait *w)
{
    struct asking *a = (struct asking *)w;

    if (a->op)
        a->op->on_done = NULL;
    ms_head_op_unref(a->op);
    ms_list_remove(&w->link);
    free(a);
}

static void on_done(struct ms_head_op *op)
{
    struct asking *a = op->done_arg;
    const Muster__Objects *all = (const Muster__Objects *)op->message;
    struct ms_error err = {0};
    int rc = ms_head_op_result(op, &err);

    if (a->wait.conn && rc < 0)
        ms_http_conn_fail(a->wait.conn, 502, err.text);
    else if (a->wait.conn)
        ms_http_reply_json(a->wait.conn,
                           200,
                           json_pack("{s:o, s:o}",
                                     "objects",
                                     ms_view_objects(all),
                                     "nodes",
                                     ms_view_stores(all)));
    destroy(&a->wait);
}

void ms_rest_objects(const struct rest_ask *ask)
{
    Muster__ListObjects want = MUSTER__LIST_OBJECTS__INIT;
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;
    struct asking *a = calloc(1, sizeof *a);

    if (!a) {
        ms_http_conn_fail(ask->conn, 503, "out of memory");
        return;
    }
    ms_list_init(&a->wait.link);
    a->wait.destroy = destroy;
    ms_rest_wait_begin(&a->wait, ask);
    m.body_case = MUSTER__DRIVER_TO_HEAD__BODY_OBJECTS;
    m.objects = &want;
    a->op = ms_head_ask(ask->rest->head, &m, on_done, a);
    if (!a->op) {
        ms_http_conn_fail(ask->conn, 503, "out of memory");
        destroy(&a->wait);
    }
}
