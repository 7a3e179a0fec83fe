/* context.h - what the workers of one driver are started with
 *
 * Interpreter, module path, folder and environment, by the driver's id. Driver 0 is the
 * one whose context came with AgentConfig. A worker holds its context for as long as it
 * lives (who is forked beside it gets the same environment), so a forgotten one goes
 * with its last worker.
 */
#ifndef MS_AGENT_CONTEXT_H
#define MS_AGENT_CONTEXT_H

#include "base/list.h"
#include "proto/muster.pb-c.h"

#include <stdbool.h>
#include <stdint.h>

struct ms_context {
    struct ms_list link;
    uint64_t driver;
    Muster__DriverContext *message; /* owned */
    bool wants_logs; /* of workers of this driver; false once forgotten */
    bool is_forgotten;
    unsigned workers; /* that hold it */
};

struct ms_contexts {
    struct ms_list list;
    unsigned forgotten;
};

void ms_contexts_init(struct ms_contexts *c);
void ms_contexts_finish(struct ms_contexts *c);

/* Add a copy, or take one that was forgotten back. MUSTER_HOME in its environment, where
 * it is another machine's driver, becomes ours. NULL: out of memory. */
struct ms_context *ms_contexts_add(struct ms_contexts *c,
                                   const Muster__DriverContext *message);
/* That of driver 0, from the first message. */
struct ms_context *ms_contexts_add_own(struct ms_contexts *c,
                                       const Muster__AgentConfig *config);

/* NULL: this driver is not known, or forgotten. */
struct ms_context *ms_contexts_find(const struct ms_contexts *c, uint64_t driver);

/* Its driver is gone. */
void ms_contexts_forget(struct ms_contexts *c, uint64_t driver);

/* Free those that are forgotten and held by no worker. */
void ms_contexts_collect(struct ms_contexts *c);

#endif
