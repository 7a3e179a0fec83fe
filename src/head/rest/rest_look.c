/* rest_look.c - the Status message for a request, also with what workers do */
#include "head/head_impl.h"
#include "head/rest/rest_impl.h"
#include "head/status.h"

#include <stdio.h>
#include <stdlib.h>

/* A request that waits for its nodes. Of what was asked the path is kept, and no more. */
struct looking {
    struct rest_wait wait;
    struct ms_head_op *op;
    const struct rest_route *route;
    char name[MS_NAME_MAX + 1], rank[24];
};

static void looking_destroy(struct rest_wait *w)
{
    struct looking *l = (struct looking *)w;

    l->op->on_done = NULL;
    ms_head_op_unref(l->op);
    ms_list_remove(&w->link);
    free(l);
}

static void on_looked(struct ms_head_op *op, void *arg)
{
    struct looking *l = arg;
    struct rest_ask ask = {.rest = l->wait.rest,
                           .conn = l->wait.conn,
                           .route = l->route,
                           .name = l->name,
                           .rank = l->rank};

    if (ask.conn && op->message)
        l->route->show(&ask, (const Muster__Status *)op->message);
    else if (ask.conn)
        ms_http_conn_fail(ask.conn, 503, op->error.text);
    looking_destroy(&l->wait);
}

static struct ms_head_op *ask_for_activity(struct looking *l)
{
    Muster__StatusRequest want = MUSTER__STATUS_REQUEST__INIT;

    want.activity = true;
    return ms_head_request_then(
        l->wait.rest->head, MUSTER__DRIVER_TO_HEAD__BODY_STATUS, &want, on_looked, l);
}

static void look_now(const struct rest_ask *ask)
{
    Muster__Status *s = ms_head_status_message(ask->rest->head);

    if (s)
        ask->route->show(ask, s);
    else
        ms_http_conn_fail(ask->conn, 503, "out of memory");
    muster__status__free_unpacked(s, NULL);
}

static void look_later(const struct rest_ask *ask)
{
    struct looking *l = calloc(1, sizeof *l);

    if (l) {
        l->wait.rest = ask->rest;
        l->wait.destroy = looking_destroy;
        l->route = ask->route;
        snprintf(l->name, sizeof l->name, "%s", ask->name);
        snprintf(l->rank, sizeof l->rank, "%s", ask->rank);
        l->op = ask_for_activity(l);
    }
    if (l && l->op) {
        ms_rest_wait_begin(&l->wait, ask);
        return;
    }
    free(l);
    ms_http_conn_fail(ask->conn, 503, "out of memory");
}

void ms_rest_look(const struct rest_ask *ask)
{
    if (ask->route->asks_workers)
        look_later(ask);
    else
        look_now(ask);
}
