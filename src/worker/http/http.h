/* http.h - HTTP on a worker's port, as AReaL's clients speak it
 *
 * GET /health is open and answered by the I/O thread alone, so that it is answered while
 * an engine computes. Everything else needs the token (io/http/token.h), unless the worker
 * was started with http_open. Calls to engines take their place in the engine's queue like
 * all others; they are decoded, run and encoded by the engine's thread (ops
 * MS_OP_HTTP_*). A caller that closes its connection cancels its call. doc/http.md has the
 * routes.
 *
 * Used on the loop's thread, where nothing else is said.
 */
#ifndef MS_WORKER_HTTP_HTTP_H
#define MS_WORKER_HTTP_HTTP_H

#include "base/error.h"
#include "proto/muster.pb-c.h"
#include "wire/server/server.h"
#include "worker/http/tensors.h"

#include <jansson.h>

struct ms_worker_http;

struct ms_worker_http_options {
    struct ms_loop *loop;
    struct ms_server *server;
    const Muster__WorkerBoot *boot; /* borrowed for its life */
    json_t *(*engines)(void *arg);  /* their names, as a new list; NULL: no memory */
    /* Hold `count` ports and give their numbers: 0, or a negative errno and nothing is
     * held. */
    int (*alloc_ports)(void *arg,
                       uint32_t count,
                       uint32_t *ports,
                       struct ms_error *err);
    /* One message with this body, which is borrowed; as ms_link_send. */
    int (*tell_agent)(void *arg,
                      Muster__WorkerToAgent__BodyCase body_case,
                      const void *body);
    void *arg;
};

/* NULL: out of memory. */
struct ms_worker_http *ms_worker_http_create(const struct ms_worker_http_options *o);
/* After the server that it submits to. */
void ms_worker_http_destroy(struct ms_worker_http *h);
/* In a forked child: close the descriptors. */
void ms_worker_http_forget(struct ms_worker_http *h);

/* Serve a connected socket, which is taken over. */
void ms_worker_http_serve(struct ms_worker_http *h, int fd);

/* The worker ends: queued calls and all that come are answered with 503. Any thread. */
void ms_worker_http_end(struct ms_worker_http *h);

/* Keep a tensor that others may fetch, as ms_http_tensors_add; one whose bytes are
 * [offset, offset + len) of an object that this process holds; and what is kept. Any thread, the second
 * waits for the agent. */
int ms_worker_http_keep(struct ms_worker_http *h,
                        const struct ms_http_tensor *with,
                        struct ms_error *err);
int ms_worker_http_keep_object(struct ms_worker_http *h,
                               const struct ms_http_tensor *with,
                               const struct ms_held *held,
                               uint64_t offset,
                               struct ms_error *err);
struct ms_http_tensors *ms_worker_http_shards(struct ms_worker_http *h);

/* Connections: at most MS_HTTP_CONNS_MAX, and 1/`share` of the descriptors that this process
 * may open, because the engine needs some too. */
unsigned ms_worker_http_conns_max(unsigned share);

/* What the agent says of those that were forked beside this worker. */
void ms_worker_http_forked(struct ms_worker_http *h, const Muster__Forked *m);
void ms_worker_http_child_ended(struct ms_worker_http *h,
                                const Muster__WorkerExited *m);

/* An object, parsed with jansson's flags. NULL with the reason. Any thread. */
json_t *ms_http_parse(const void *body, size_t len, size_t flags, struct ms_error *err);

#endif
