/* steps.h - what a worker does before its first caller: the steps of its cluster
 *
 * The head sends a worker its steps (make an engine, set variables, call a method) through
 * the agent. They go into the engine's queue one after the other; the first that fails is
 * the last. The answers of all of them travel back in one message.
 *
 * If they take too long the head asks where they are (is_late): the answer is a failure with
 * the engine's stack. The steps go on; the head ends the worker.
 *
 * A run is known by its number. One that is asked for again, because a link broke on the
 * way, is done once: it is answered when it is over, or with the same answer again.
 */
#ifndef MS_WORKER_STEPS_H
#define MS_WORKER_STEPS_H

#include "base/buf.h"
#include "proto/muster.pb-c.h"
#include "wire/server/server.h"

struct ms_steps;

struct ms_steps_ops {
    /* A run is over; `done` is borrowed. Loop's thread. */
    void (*on_done)(void *arg, const Muster__StepsDone *done);
    /* Where the engine is now. Loop's thread; may be NULL. */
    void (*stack)(void *arg, struct ms_buf *out);
};

/* `server` is the engine's; `ops` is borrowed. NULL: out of memory. */
struct ms_steps *
ms_steps_create(struct ms_server *server, const struct ms_steps_ops *ops, void *arg);
/* Before the server, and not while a run is under way on a loop that still runs. */
void ms_steps_destroy(struct ms_steps *s);

/* When the run under way began; 0: there is none. Loop's thread. */
int64_t ms_steps_since_ns(const struct ms_steps *s);

/* Takes the message. Loop's thread. */
void ms_steps_run(struct ms_steps *s, Muster__RunSteps *run);

#endif
