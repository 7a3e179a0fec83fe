/* test_serve.h - for tests: a daemon head on loopback, agents and drivers that dial it
 *
 * The agents are those of test_agents.h, the drivers are heads that join.
 */
#ifndef MS_HEAD_TEST_SERVE_H
#define MS_HEAD_TEST_SERVE_H

#include "head/nodes/test_agents.h"
#include "head/test_events.h"
#include "head/test_ops.h"
#include "head/test_spec.h"

extern struct ms_head *serve_head;
extern char serve_address[128];
extern const char *serve_agent_path; /* NULL: the head hosts no jobs */

/* For cmocka: a home, the agents' thread, and a head; all of it ends. */
int serve_setup(void **state);
/* The same; who is away for a second is given up. */
int serve_setup_hasty(void **state);
int serve_teardown(void **state);

/* The head: at an address; NULL and `err`, or with serve_begin it must start. */
struct ms_head *serve_at(const char *listen, struct ms_error *err);
void serve_begin(const char *listen);
/* It is gone without a word; serve_begin starts the next one. */
void serve_crash(void);
const uint8_t *serve_secret(void);
/* How many clusters it has. */
size_t serve_count(void);

/* A node with 4 devices. */
struct test_agent *serve_agent(const char *node);

/* A driver; what it is told goes to `s`. */
struct ms_head *serve_join(struct test_events *s);
struct ms_head *serve_join_at(struct test_events *s, const char *address);

/* A cluster of two, on nodes "a" and "b" with devices 2 and 3 of each. */
void serve_spec(struct spec *s, const char *name);
struct ms_head_op *serve_ask(struct ms_head *h, const char *name, bool detached);
/* It must be made; the uids of its workers. */
void serve_create(struct ms_head *h, const char *name, bool detached, uint64_t uids[2]);

#endif
