/* test_agents.h - for tests: agents that dial a head, played by a thread of the test
 *
 * Each is a link and a table of workers that are nothing but numbers. All of them live on
 * one loop; the functions below may be called from the test's own thread.
 */
#ifndef MS_HEAD_NODES_TEST_AGENTS_H
#define MS_HEAD_NODES_TEST_AGENTS_H

#include "wire/transport/tls.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct test_agent;

/* What an agent does with StartWorkers, and with RunSteps. Each step of an honest one is
 * answered with its argument. */
enum test_agent_mode {
    TEST_AGENT_HONEST,
    TEST_AGENT_FAILS,
    TEST_AGENT_KEEPS,       /* it begins and does not answer */
    TEST_AGENT_STEPS_FAIL,  /* the first step raises "no such model" */
    TEST_AGENT_STEPS_NEVER, /* they do not end */
    TEST_AGENT_STEPS_DIE,   /* the worker ends in them, with exit code 7 */
};

void test_agent_start(void); /* the thread */
void test_agent_stop(void);  /* the thread, and all agents, without a word */

/* Dial and wait until it is welcome; NULL: it was refused, and test_agent_refusal says why. */
struct test_agent *test_agent_dial(const char *address,
                                   const uint8_t *secret,
                                   const char *node,
                                   unsigned gpus);
const char *test_agent_refusal(void);
/* Many, called n0, n1, ...; returns when all are welcome. */
void test_agent_dial_many(const char *address,
                          const uint8_t *secret,
                          enum ms_tls_mode tls,
                          size_t count);

void test_agent_set_mode(struct test_agent *a, enum test_agent_mode mode);
/* Answer what was kept. */
void test_agent_answer(struct test_agent *a);
/* When its link has broken: dial again, and tell what it has. */
bool test_agent_come_back(struct test_agent *a, const char *address);
/* Its process ends. */
void test_agent_end(struct test_agent *a);
/* A worker of it ends. */
void test_agent_exit(struct test_agent *a, uint64_t uid, int code);
/* A worker of it prints. */
void test_agent_print(struct test_agent *a, uint64_t uid, const char *line);

size_t test_agent_living(struct test_agent *a);   /* workers */
size_t test_agent_started(struct test_agent *a);  /* ever */
size_t test_agent_contexts(struct test_agent *a); /* drivers whose context it has */
size_t test_agent_ports(struct test_agent *a);
size_t test_agent_runs(struct test_agent *a); /* RunSteps that came, ever */
/* All steps that a worker of it was told to do, as "method=argument ...". */
void test_agent_steps(struct test_agent *a, uint64_t uid, char *out, size_t room);
/* A variable that a worker of it was started with; empty: it was not. */
void test_agent_env(
    struct test_agent *a, uint64_t uid, const char *name, char *out, size_t room);
/* How many bytes a worker of it may have; 0: as many as there are. */
uint64_t test_agent_memory(struct test_agent *a, uint64_t uid);
/* Wait until it has that many. */
void test_agent_wait_living(struct test_agent *a, size_t count);
void test_agent_wait_contexts(struct test_agent *a, size_t count);
void test_agent_wait_started(struct test_agent *a, size_t count);
void test_agent_wait_runs(struct test_agent *a, size_t count);
void test_agent_wait_ports(struct test_agent *a, size_t count);

#endif
