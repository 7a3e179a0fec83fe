/* test_ops.h - for tests of the head: a home of their own, and what operations come to
 *
 * All waiting is for an event, with OPS_DEADLINE_NS as its end.
 */
#ifndef MS_HEAD_TEST_OPS_H
#define MS_HEAD_TEST_OPS_H

#include "base/clock.h"
#include "head/head.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define OPS_DEADLINE_NS (20 * MS_NS_PER_S)

/* MUSTER_HOME of the test that runs: made before it, removed behind it. */
extern char ops_home[32];
int ops_home_make(void **state);
int ops_home_remove(void **state);

/* Wait for its end; its result. */
int ops_finish(struct ms_head_op *op, struct ms_error *err);
/* Wait; it must succeed. What it came to is borrowed from `op`. */
const ProtobufCMessage *ops_message(struct ms_head_op *op);
/* Wait, check the code and what the text has in it (if not NULL), and give it up. */
void ops_expect(struct ms_head_op *op, int code, const char *in_text);
/* The head's status, borrowed from `*op`, which the caller gives up. */
const Muster__Status *ops_status(struct ms_head *h, struct ms_head_op **op);

/* ---- requests that have no function of their own in head.h ------------------------ */

/* `body` is the message of that name in DriverToHead. */
struct ms_head_op *
ops_request(struct ms_head *h, Muster__DriverToHead__BodyCase what, void *body);
/* Whichever cluster has the name. */
struct ms_head_op *ops_destroy(struct ms_head *h, const char *name, int64_t grace_ns);
/* node NULL: any */
struct ms_head_op *
ops_hold_port(struct ms_head *h, const char *node, const char *owner);
struct ms_head_op *ops_drop_port(struct ms_head *h, const char *owner);
struct ms_head_op *ops_prepare(struct ms_head *h, Muster__ZygoteKey *key);
struct ms_head_op *ops_find_cluster(struct ms_head *h, const char *name);
struct ms_head_op *ops_ask_death(struct ms_head *h, uint64_t uid);
/* Wait: how the worker ended nobody can say, for this reason; and give it up. */
void ops_expect_death(struct ms_head_op *op, const char *in_detail);
struct ms_head_op *ops_add_step(struct ms_head *h,
                                const char *cluster,
                                Muster__Step *step,
                                const char *meta);

#endif
