/* far_agent.h - for tests: agents that dial a head, played by a thread of the test
 *
 * Each is a link and a table of workers that are nothing but numbers. All of them live on
 * one loop; the functions below may be called from the test's own thread.
 */
#ifndef MS_HEAD_NODES_FAR_AGENT_H
#define MS_HEAD_NODES_FAR_AGENT_H

#include "wire/transport/tls.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct far_agent;

/* What an agent does with StartWorkers, and with RunSteps. Each step of an honest one is
 * answered with its argument. */
enum far_mode {
    FAR_HONEST,
    FAR_FAILS,
    FAR_KEEPS,       /* it begins and does not answer */
    FAR_STEPS_FAIL,  /* the first step raises "no such model" */
    FAR_STEPS_NEVER, /* they do not end */
    FAR_STEPS_DIE,   /* the worker ends in them, with exit code 7 */
};

void far_start(void); /* the thread */
void far_stop(void);  /* the thread, and all agents, without a word */

/* Dial and wait until it is welcome; NULL: it was refused, and far_refusal says why. */
struct far_agent *
far_dial(const char *address, const uint8_t *secret, const char *node, unsigned gpus);
const char *far_refusal(void);
/* Many, called n0, n1, ...; returns when all are welcome. */
void far_dial_many(const char *address,
                   const uint8_t *secret,
                   enum ms_tls_mode tls,
                   size_t count);

void far_set_mode(struct far_agent *a, enum far_mode mode);
/* Answer what was kept. */
void far_answer(struct far_agent *a);
/* When its link has broken: dial again, and tell what it has. */
bool far_come_back(struct far_agent *a, const char *address);
/* Its process ends. */
void far_end(struct far_agent *a);
/* A worker of it ends. */
void far_exit(struct far_agent *a, uint64_t uid, int code);
/* A worker of it prints. */
void far_print(struct far_agent *a, uint64_t uid, const char *line);

size_t far_living(struct far_agent *a);   /* workers */
size_t far_started(struct far_agent *a);  /* ever */
size_t far_contexts(struct far_agent *a); /* drivers whose context it has */
size_t far_ports(struct far_agent *a);
size_t far_runs(struct far_agent *a); /* RunSteps that came, ever */
/* All steps that a worker of it was told to do, as "method=argument ...". */
void far_steps(struct far_agent *a, uint64_t uid, char *out, size_t room);
/* A variable that a worker of it was started with; empty: it was not. */
void far_env(
    struct far_agent *a, uint64_t uid, const char *name, char *out, size_t room);
/* Wait until it has that many. */
void far_wait_living(struct far_agent *a, size_t count);
void far_wait_contexts(struct far_agent *a, size_t count);
void far_wait_started(struct far_agent *a, size_t count);
void far_wait_runs(struct far_agent *a, size_t count);
void far_wait_ports(struct far_agent *a, size_t count);

#endif
