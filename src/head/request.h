/* request.h - from what is wanted to the function that carries it out
 *
 * What is wanted of a head is a DriverToHead message, whoever asks: this process (head.h),
 * a driver over its link, or the head itself. request.c and request_cluster.c make the
 * messages of head.h; ms_head_request_run finds the `run` of a message.
 */
#ifndef MS_HEAD_REQUEST_H
#define MS_HEAD_REQUEST_H

#include "proto/muster.pb-c.h"

#include <stdint.h>

struct ms_head;
struct ms_head_op;

/* `run` of every request: carries out op->wanted, here. The head's thread. */
void ms_head_request_run(struct ms_head_op *op);

/* Ask this head, or the one that it has joined. `m` is borrowed; on_done may be NULL. Any
 * thread; never NULL. */
struct ms_head_op *ms_head_ask(struct ms_head *h,
                               const Muster__DriverToHead *m,
                               void (*on_done)(struct ms_head_op *op));

/* A time as it came over a link. */
int64_t ms_head_grace(uint64_t grace_ns);

/* The message; NULL: out of memory. */
Muster__DriverToHead *ms_head_wants_successor(uint64_t uid);

#endif
