/* test_agents_impl.h - what the files of test_agents.h share */
#ifndef MS_HEAD_NODES_TEST_AGENTS_IMPL_H
#define MS_HEAD_NODES_TEST_AGENTS_IMPL_H

#include "base/list.h"
#include "head/nodes/test_agents.h"
#include "io/loop.h"
#include "proto/muster.pb-c.h"
#include "wire/link/link.h"

#include <pthread.h>

enum { TEST_AGENT_WORKERS_MAX = 256, TEST_AGENT_PORTS_MAX = 16 };

struct test_agent_worker {
    Muster__WorkerSpec *spec;
    bool lives;
    char *steps; /* "method=argument ..."; NULL: none */
};

struct test_agent {
    struct ms_list link;
    struct ms_link *wire;
    char address[128], node[65];
    uint8_t secret[32];
    uint64_t id, head;
    unsigned gpus;
    enum ms_tls_mode tls;
    enum test_agent_mode mode;
    bool welcome, refused, ended;
    struct test_agent_worker workers[TEST_AGENT_WORKERS_MAX];
    size_t count, contexts, runs;
    char owners[TEST_AGENT_PORTS_MAX][96]; /* of ports */
    size_t ports;
    uint64_t last_start; /* request */
    uint64_t kept;       /* the same, if its answer was kept */
};

/* The one loop of all agents. */
struct test_agent_loop {
    struct ms_loop *loop;
    pthread_t thread;
    pthread_mutex_t lock; /* all of the agents' fields */
    pthread_cond_t changed;
    struct ms_list agents;
    char refusal[600];
};

extern struct test_agent_loop test_agents;

/* On the loop's thread, with test_agents.lock held: */
void test_agent_send(struct test_agent *a, Muster__AgentToHead *m);
/* For the last `n` workers. */
void test_agent_answer_started(struct test_agent *a, uint64_t request, size_t n);
void test_agent_end_worker(struct test_agent *a, size_t i, int code);

/* On the loop's thread: dial; the argument is the agent. */
void test_agent_connect(void *arg);
/* Wait until the head has answered; whether it is welcome. */
bool test_agent_wait_welcome(struct test_agent *a);

#endif
