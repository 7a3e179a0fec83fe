/* far_impl.h - what the files of far_agent.h share */
#ifndef MS_HEAD_NODES_FAR_IMPL_H
#define MS_HEAD_NODES_FAR_IMPL_H

#include "base/list.h"
#include "head/nodes/far_agent.h"
#include "io/loop.h"
#include "proto/muster.pb-c.h"
#include "wire/link/link.h"

#include <pthread.h>

enum { FAR_WORKERS_MAX = 256, FAR_PORTS_MAX = 16 };

struct far_worker {
    Muster__WorkerSpec *spec;
    bool lives;
    char *steps; /* "method=argument ..."; NULL: none */
};

struct far_agent {
    struct ms_list link;
    struct ms_link *wire;
    char address[128], node[65];
    uint8_t secret[32];
    uint64_t id, head;
    unsigned gpus;
    enum ms_tls_mode tls;
    enum far_mode mode;
    bool welcome, refused, ended;
    struct far_worker workers[FAR_WORKERS_MAX];
    size_t count, contexts, runs;
    char owners[FAR_PORTS_MAX][96]; /* of ports */
    size_t ports;
    uint64_t last_start; /* request */
    uint64_t kept;       /* the same, if its answer was kept */
};

/* The one loop of all agents. */
struct far_loop {
    struct ms_loop *loop;
    pthread_t thread;
    pthread_mutex_t lock; /* all of the agents' fields */
    pthread_cond_t changed;
    struct ms_list agents;
    char refusal[600];
};

extern struct far_loop far;

/* On the loop's thread, with far.lock held: */
void far_send(struct far_agent *a, Muster__AgentToHead *m);
/* For the last `n` workers. */
void far_answer_started(struct far_agent *a, uint64_t request, size_t n);
void far_end_worker(struct far_agent *a, size_t i, int code);

/* On the loop's thread: dial; the argument is the agent. */
void far_connect(void *arg);
/* Wait until the head has answered; whether it is welcome. */
bool far_wait_welcome(struct far_agent *a);

#endif
