/* local_nodes.h - the nodes that a head of its own has on this machine
 *
 * One that is called as the host is, or several that the options describe; each gets an
 * agent of its own (child_agent.h). What is not described is looked for by the agent, but devices
 * are looked for only by one that is alone: several would all find the same.
 */
#ifndef MS_HEAD_NODES_LOCAL_NODES_H
#define MS_HEAD_NODES_LOCAL_NODES_H

#include "head/head.h"

struct ms_local_nodes {
    Muster__NodeShape **shapes; /* owned; each has a name of its own */
    size_t count;
};

/* `host`: what the one node is called if the options do not say. 0; -EINVAL, -EEXIST,
 * -E2BIG with the reason; -ENOMEM. */
int ms_local_nodes_init(struct ms_local_nodes *d,
                        const struct ms_head_options *o,
                        const char *host,
                        struct ms_error *err);
void ms_local_nodes_finish(struct ms_local_nodes *d);

/* What the workers of the driver of this process are started with. Borrowed from `o`. */
void ms_local_nodes_context(Muster__DriverContext *c, const struct ms_head_options *o);

/* What the agent of one of them is told first; NULL: out of memory. */
Muster__HeadToAgent *ms_local_nodes_config(const struct ms_local_nodes *d,
                                           size_t index,
                                           const struct ms_session *session,
                                           const struct ms_head_options *o);

#endif
