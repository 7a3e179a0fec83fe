/* rest_impl.h - what the files of the head's HTTP share
 *
 * rest.c         listening, who may, routes
 * rest_look.c    the Status message for a request, also with what workers do
 * rest_read.c    what is read from it, as view.h shows it
 * rest_verb.c    verbs that have a route of their own (head/ops/verbs.h)
 * rest_worker.c  stack of a worker
 * rest_log.c     its log, here or on another machine
 * rest_job_log.c what a job has printed, of all of its nodes
 * metrics.c      for Prometheus
 */
#ifndef MS_HEAD_REST_REST_IMPL_H
#define MS_HEAD_REST_REST_IMPL_H

#include "head/ops/op.h"
#include "head/ops/verbs.h"
#include "head/rest/rest.h"
#include "head/rest/view.h"
#include "io/http/conn.h"
#include "io/http/token.h"
#include "wire/client/client.h"

struct rest_ask;

struct ms_rest {
    struct ms_head *head;
    struct ms_http_server server;
    struct ms_http_token token;
    bool open_metrics;
    int listen_fd;
    struct ms_watch listen_watch;
    char address[300];
    uint64_t requests;

    /* stacks are asked for as any caller would; made for the first one */
    struct ms_client *client;
    struct ms_inbox *inbox;
    struct ms_watch inbox_watch;
    struct ms_list waits; /* requests that wait for a worker or an operation */
};

/* A path that answers GET; what else there is are verbs (head/ops/verbs.h). */
struct rest_route {
    const char *path; /* "*" stands for any segment: the first is a name, then a rank */
    void (*get)(const struct rest_ask *ask); /* NULL: `show` */
    const char *field; /* a list in the Status message, and an element of it as JSON */
    json_t *(*view)(const ProtobufCMessage *m);
    bool is_open; /* without the token */
    void (*show)(const struct rest_ask *ask, const Muster__Status *s);
    bool asks_workers; /* what they do */
};

/* One request; `name` and `rank` are the first and second variable of its path. */
struct rest_ask {
    struct ms_rest *rest;
    struct ms_http_conn *conn;
    const struct ms_http_request *request;
    const struct rest_route *route; /* NULL: it is for a verb */
    const char *name, *rank;
};

/* What a request waits for; first in the struct that knows more. */
struct rest_wait {
    struct ms_list link; /* rest->waits */
    struct ms_rest *rest;
    struct ms_http_conn *conn;            /* NULL: the client is gone */
    void (*destroy)(struct rest_wait *w); /* the rest of it ends */
};

void ms_rest_wait_begin(struct rest_wait *w, const struct rest_ask *ask);

/* Percent-decode into `to` (which may be `from`), with a NUL; false: it is malformed, or
 * there is a NUL in it. */
bool ms_rest_decode(const char *from, size_t len, char *to);

/* The value of that name in the query as it is there, cut to `room`. False: there is none. */
bool ms_rest_text(const struct rest_ask *ask, const char *name, char *out, size_t room);
/* A number in the query: `fallback` if it is not there, -1 if it is none within least and
 * most, and that was answered. */
int64_t ms_rest_number(const struct rest_ask *ask,
                       const char *name,
                       int64_t fallback,
                       int64_t least,
                       int64_t most);

/* rest_look.c */
/* Call `show` of the route, now or when workers have answered. */
void ms_rest_look(const struct rest_ask *ask);

/* rest_read.c */
void ms_rest_health(const struct rest_ask *ask);
void ms_rest_version(const struct rest_ask *ask);
void ms_rest_status(const struct rest_ask *ask, const Muster__Status *s);
void ms_rest_list(const struct rest_ask *ask,
                  const Muster__Status *s); /* what the route names */
void ms_rest_element(const struct rest_ask *ask,
                     const Muster__Status *s); /* one of it, by its name */
void ms_rest_workers(const struct rest_ask *ask, const Muster__Status *s);
void ms_rest_worker(const struct rest_ask *ask, const Muster__Status *s);

/* The worker that was asked for; NULL: there is none, and that was answered. */
const Muster__WorkerStatus *ms_rest_find_worker(const struct rest_ask *ask,
                                                const Muster__Status *s);

/* rest_worker.c */
void ms_rest_stack(const struct rest_ask *ask, const Muster__Status *s);
void ms_rest_worker_finish(struct ms_rest *rest);

/* rest_log.c */
void ms_rest_logs(const struct rest_ask *ask, const Muster__Status *s);
/* The time `since` of the query, if it is there. False: it is none, and that was answered. */
bool ms_rest_since(const struct rest_ask *ask, int64_t *since_ns);

/* rest_job_log.c */
void ms_rest_job_logs(const struct rest_ask *ask);

/* rest_verb.c */
void ms_rest_verb(const struct rest_ask *ask, const struct ms_verb *v);
int ms_rest_status_of(int code); /* of an operation's error */

/* metrics.c */
void ms_rest_metrics(const struct rest_ask *ask, const Muster__Status *s);

/* doc/openapi.json, with a NUL */
extern const char ms_rest_openapi[];

#endif
