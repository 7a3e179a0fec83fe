/* request.h - from what is wanted to the function that carries it out
 *
 * What is wanted of a head is a DriverToHead message of any asker: this process (head.h),
 * a driver over its link, a tool, HTTP, or the head itself. request.c makes
 * the messages of head.h; ms_head_request_run finds the verb (verbs.h) of a message.
 */
#ifndef MS_HEAD_OPS_REQUEST_H
#define MS_HEAD_OPS_REQUEST_H

#include "proto/muster.pb-c.h"

#include <stdint.h>

struct ms_head;
struct ms_head_op;

/* `run` of every request: carries out op->wanted here, if op->asker may ask for it. The head's
 * thread, unless the verb says otherwise. */
void ms_head_request_run(struct ms_head_op *op);

/* Ask this head, or the one that it has joined; on_done comes on the head's thread, later.
 * `m` is borrowed. Any thread. NULL: out of memory, or a forked child. */
struct ms_head_op *ms_head_ask(struct ms_head *h,
                               const Muster__DriverToHead *m,
                               void (*on_done)(struct ms_head_op *op),
                               void *arg);

/* A time as it came over a link. */
int64_t ms_head_grace(uint64_t grace_ns);

/* The message; NULL: out of memory. */
Muster__DriverToHead *ms_head_wants_successor(uint64_t uid);

#endif
