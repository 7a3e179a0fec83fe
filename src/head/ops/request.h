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

/* `run` of every request: carries out op->request here, if op->asker may ask for it. The
 * head's thread, unless the verb says otherwise. */
int ms_head_request_run(struct ms_head_op *op);

/* Who has this worker's place; on_done as with ms_head_request_then. */
void ms_head_request_successor(struct ms_head *h,
                               uint64_t uid,
                               void (*on_done)(struct ms_head_op *op, void *arg),
                               void *arg);

/* A time as it came over a link. */
int64_t ms_head_grace(uint64_t grace_ns);

#endif
