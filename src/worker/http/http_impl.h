/* http_impl.h - what the files of a worker's HTTP share
 *
 * http.c      routes, who may, health, ports
 * call.c      what the engine's thread answers
 * data.c      tensors that are fetched; tensors.h: what is kept; store.h: where
 * put.c       tensors that come
 * children.c  processes beside the worker
 */
#ifndef MS_WORKER_HTTP_HTTP_IMPL_H
#define MS_WORKER_HTTP_HTTP_IMPL_H

#include "io/http/conn.h"
#include "io/http/token.h"
#include "worker/http/http.h"

#define MS_HTTP_DATA "/data/"

#include <netinet/in.h>
#include <stdatomic.h>

/* What a request waits for; first in the struct that knows more. */
struct http_wait {
    struct ms_http_conn *conn;            /* NULL: the client is gone */
    void (*on_gone)(struct http_wait *w); /* NULL: it goes on without the client */
};

struct ms_worker_http {
    struct ms_worker_http_options o;
    struct ms_http_server server;
    struct ms_http_token token;
    _Atomic bool is_ending;
    int end_fd; /* wakes the loop for the end */
    struct ms_watch end_watch;
    struct ms_list calls;    /* of the engine */
    struct ms_list children; /* forked beside this worker */
    size_t children_living;
    json_t *env; /* what /set_env has set: for children */
    struct ms_http_tensors shards;
    struct ms_timer lease; /* of the shard that was not used for longest */
    struct ms_http_store *store;
};

/* http.c */
/* The request of `c` waits for `w`. */
void ms_http_wait_begin(struct http_wait *w, struct ms_http_conn *c);

/* The address by which the client has found us. */
void ms_http_own_host(struct ms_http_conn *c, char out[INET6_ADDRSTRLEN]);

/* call.c */
void ms_http_call(struct ms_worker_http *h,
                  struct ms_http_conn *c,
                  const struct ms_http_request *r,
                  uint16_t op);
void ms_http_calls_end(struct ms_worker_http *h);
void ms_http_calls_forget(struct ms_worker_http *h); /* the server is gone */
void ms_http_calls_finish(struct ms_worker_http *h);

/* data.c */
int ms_http_lease_init(struct ms_worker_http *h);
void ms_http_data(struct ms_worker_http *h,
                  struct ms_http_conn *c,
                  const struct ms_http_request *r);

/* As AReaL's clients read it. */
void ms_http_data_fail(struct ms_http_conn *c, int status, const char *why);

/* put.c */
/* The body of this request comes part by part from now on; without memory it has no tag. */
void ms_http_put_begin(struct ms_worker_http *h,
                       struct ms_http_conn *c,
                       const struct ms_http_request *r,
                       const char *id);
void ms_http_put_part(struct http_wait *w, const uint8_t *data, size_t len);
/* All of it has come. */
void ms_http_put_whole(struct http_wait *w);

/* children.c */
void ms_http_fork(struct ms_worker_http *h, struct ms_http_conn *c, json_t *json);
void ms_http_kill(struct ms_worker_http *h, struct ms_http_conn *c, json_t *json);
/* [{"role", "worker_index", "exit_code"}] of those that have ended by themselves and were not
 * killed yet; NULL: none. */
json_t *ms_http_children_ended(const struct ms_worker_http *h);
void ms_http_children_finish(struct ms_worker_http *h);

#endif
