/* stop.h - the orderly end, on the head's thread
 *
 * Drivers are told, workers are stopped, then agents, then what an orchestrator has lent is
 * given back. Each part has its time (stop.c), after which the end goes on without it. From
 * the begin on head->stop_op is set: nothing new is begun.
 */
#ifndef MS_HEAD_STOP_H
#define MS_HEAD_STOP_H

#include "io/loop.h"

#include <stdbool.h>
#include <stdint.h>

struct ms_head;
struct ms_head_op;

struct ms_head_stopping {
    int64_t deadline_ns;
    bool sent; /* the agents were told to end */
    bool done;
    struct ms_timer timer;
};

/* `run` of the end; op->grace_ns is what workers have. */
int ms_head_stop_run(struct ms_head_op *op);
/* Something has changed: go on. Nothing happens unless the head is ending. */
void ms_head_stop_step(struct ms_head *h);

#endif
