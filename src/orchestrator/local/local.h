/* local.h - the orchestrator `local`: this host lends itself
 *
 * Its nodes are this host as a whole, or nodes that are described: then they exist in the
 * books, and all of their agents run here. A node may have a prefix, a command that its
 * agents are started by, such as `ip netns exec NAME`: then it is a host of its own as far
 * as the network goes.
 *
 * A gang is placed by ms_place on what is free, all or none, in the order of asking; one
 * that does not fit waits. Then one agent is started for each node that its pieces are on,
 * which lends what they hold (offer.h). It has its node's name, or that with ".2", ".3"
 * behind while others are there. Its pieces run when it has joined the head, and end when
 * its process ends: that is then free again. When some of its pieces are released it goes
 * on for the others, with what it has.
 *
 * Agents end with this process, however that ends; unless there is a state_dir: then they go
 * on, and the next controller with the same folder, nodes and prefix has what was lent
 * (MS_ORCH_DURABLE).
 */
#ifndef MS_ORCHESTRATOR_LOCAL_LOCAL_H
#define MS_ORCHESTRATOR_LOCAL_LOCAL_H

#include "io/loop.h"
#include "orchestrator/orchestrator.h"
#include "proto/muster.pb-c.h"

#include <sys/types.h>

/* Borrowed until the orchestrator exists, but the loop, which outlives it. */
struct ms_local_options {
    struct ms_loop *loop;   /* all of it runs there */
    const char *agent_path; /* the muster executable */
    const Muster__NodeShape *const *nodes;
    size_t node_count;                  /* 0: this host as a whole, "localhost" */
    const char *const *const *prefixes; /* of each node, NULL-terminated; NULL: none */
    const char *agent_prefix; /* before the names of agents; NULL or empty: nothing */
    const char *state_dir; /* what is lent outlives this process, and the next one finds
                                 it here; NULL: agents end with `end_with` */
    const char
        *log_dir;     /* the output of agents is in agent-NODE.log there; NULL: lost */
    pid_t end_with;   /* whose end ends the agents; 0: this process */
    int64_t grace_ns; /* from SIGTERM to SIGKILL; 0: MS_LOCAL_GRACE_NS */
};

/* Agents end their workers first, and those have a grace of their own. */
#define MS_LOCAL_GRACE_NS (15 * INT64_C(1000000000))

/* NULL: with the reason. */
struct ms_orchestrator *ms_orchestrator_local(const struct ms_local_options *o,
                                              struct ms_error *err);

#endif
