/* host_impl.h - a worker's host, inside host*.c only
 *
 * host.c      life: start, what the agent says, the end
 * host_ops.c  what the I/O thread answers itself: health, stacks, ports
 */
#ifndef MS_WORKER_HOST_IMPL_H
#define MS_WORKER_HOST_IMPL_H

#include "base/limits.h"
#include "io/loop.h"
#include "wire/client/client.h"
#include "wire/link/link.h"
#include "worker/debug.h"
#include "worker/host.h"
#include "worker/http/http.h"
#include "worker/steps.h"

#include <pthread.h>

struct ms_host {
    struct ms_loop *loop;
    struct ms_server *server;
    struct ms_client *client;
    struct ms_link *link;
    struct ms_spin *spin;
    struct ms_worker_http *http;
    struct ms_steps *steps;
    struct ms_debug *debug;
    Muster__WorkerBoot *boot;
    pthread_t thread;
    pid_t main_tid;
    int agent_pidfd, control_fd;
    struct ms_watch agent_watch;
    int python_stack_fd;
    struct ms_server_ops server_ops;

    pthread_mutex_t lock;    /* guards the engines and the ports */
    Muster__Health *engines; /* their names alone; NULL: none */
    int port_fds[MS_PORTS_MAX];
    uint32_t ports[MS_PORTS_MAX];
    size_t port_count;
};

/* host_ops.c */
/* The names of the engines of the host `arg`, as a new list of JSON; NULL: no memory. */
json_t *ms_host_engines(void *arg);
/* The server's; its argument is the host. */
void ms_host_on_request(void *arg, struct ms_request *r);

/* Of all its threads; NULL: out of memory. */
Muster__Stack *ms_host_stack(const struct ms_host *h);
/* How often this process has reported progress. */
uint64_t ms_host_progress(void);

#endif
