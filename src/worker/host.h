/* host.h - the RPC server of a worker
 *
 * Owns the worker's I/O thread: a loop that accepts callers, answers health, stack and
 * alloc_ports without ever touching the interpreter, watches the agent, and is the client
 * for calls that the worker makes itself. The engine's thread is the caller's own (the
 * main thread): it takes requests from ms_host_server.
 *
 * When the agent is gone (its pidfd says so, or the control socket ended) the host kills
 * every descendant of this process and then the process itself.
 */
#ifndef MS_WORKER_HOST_H
#define MS_WORKER_HOST_H

#include "base/error.h"
#include "proto/muster.pb-c.h"
#include "wire/client/client.h"
#include "wire/server/server.h"

struct ms_host;
struct ms_debug;
struct ms_worker_http;

struct ms_host_options {
    int control_fd; /* these three are taken over, also on failure; WorkerBoot is the first
                       message on this one */
    int listen_fd;
    int listen_tcp_fd;   /* -1: none */
    int python_stack_fd; /* where the interpreter writes its stacks; -1: none */
    /* See struct ms_server_ops; `arg` is the host, and may come before ms_host_start has
     * returned it. */
    void (*on_cancel)(void *arg, struct ms_request *r);
    void (*on_queued)(void *arg);
    void (*on_unread)(void *arg, const struct ms_request *r);
    /* See struct ms_client_options; may be NULL. */
    void *(*on_stored)(void *arg, const uint8_t *body, size_t len);
    void (*on_stored_drop)(void *token);
};

/* Start the I/O thread and listen. NULL with the reason in err. There is one host in a
 * process, and it lives as long as the process. */
struct ms_host *ms_host_start(const struct ms_host_options *o, struct ms_error *err);

const Muster__WorkerBoot *ms_host_boot(const struct ms_host *h);
struct ms_server *ms_host_server(struct ms_host *h);
struct ms_client *ms_host_client(struct ms_host *h);
struct ms_debug *ms_host_debug(struct ms_host *h);
/* How many changes of clusters (resized, initialized) its agent knows of. Any thread. */
uint64_t ms_host_changes(const struct ms_host *h);

/* The engines that health reports; the names are copied. Any thread. */
int ms_host_set_engines(struct ms_host *h, const char *const *names, size_t count);

/* By which others reach this node. */
const char *ms_host_address(const struct ms_host *h);

/* Hold `count` free ports of that address until the process ends, all or none: bound, not
 * listening, so that others can bind them with SO_REUSEADDR. Their numbers go into `ports`.
 * 0 or a negative errno. `host` is the host. Any thread. */
int ms_host_alloc_ports(void *host,
                        uint32_t count,
                        uint32_t *ports,
                        struct ms_error *err);

/* Its tensors for HTTP: ms_worker_http_keep and ms_worker_http_shards. */
struct ms_worker_http *ms_host_http(struct ms_host *h);

/* The worker ends: what can still be answered is. Any thread. */
void ms_host_end(struct ms_host *h);

/* In a forked child of the worker (a data loader): close what was inherited, so that
 * open descriptors are not taken for a living worker. */
void ms_host_forget(struct ms_host *h);

/* This process gets on with its work: a job's controller takes it for one that does not
 * hang. From any thread. */
void ms_host_report_progress(void);

#endif
