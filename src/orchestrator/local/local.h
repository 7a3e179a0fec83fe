/* local.h - the orchestrator of this host: an agent is a child process of ours */
#ifndef MS_ORCHESTRATOR_LOCAL_LOCAL_H
#define MS_ORCHESTRATOR_LOCAL_LOCAL_H

#include "io/loop.h"
#include "orchestrator/orchestrator.h"

/* NULL: out of memory. Its agents must be released before it is destroyed. */
struct ms_orchestrator *ms_orchestrator_local(struct ms_loop *loop);

#endif
