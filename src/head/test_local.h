/* test_local.h - for tests: the head of a driver, with one fake agent on node "here"
 *
 * The test program is its own agent: its main calls fake_agent_main if it is started as
 * one. What the agent does is named by its mode (fake_agent.h).
 */
#ifndef MS_HEAD_TEST_LOCAL_H
#define MS_HEAD_TEST_LOCAL_H

#include "head/test_events.h"
#include "head/test_ops.h"
#include "head/test_spec.h"

#include <sys/types.h>

extern struct test_events local_events; /* what the head told us */

/* A home, and nothing seen yet. Its teardown is ops_home_remove. */
int local_setup(void **state);

/* NULL if it does not start, and `err` says why. */
struct ms_head *local_start_with(const char *path,
                                 const char *mode,
                                 int64_t timeout_ns,
                                 struct ms_error *err);
/* It must start. */
struct ms_head *local_start(const char *mode);

/* `count` workers, up to 4; rank i has device i. */
void local_spec(struct spec *s, const char *name, uint32_t count);
struct ms_head_op *local_create(struct ms_head *h, const char *name, uint32_t count);
pid_t local_agent_pid(struct ms_head *h);

/* Nothing is left of the session in `dir`: no file, no child. */
void local_assert_gone(const char *dir);
int local_count_fds(void);

#endif
