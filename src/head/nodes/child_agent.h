/* child_agent.h - a node of this machine, whose agent the head has started itself
 *
 * The agent is a child of this process, with a link over a socket pair: process and link
 * end together, and the end of one is followed by force if the other does not come. Made
 * before the head's thread runs; all else happens on it.
 */
#ifndef MS_HEAD_NODES_CHILD_AGENT_H
#define MS_HEAD_NODES_CHILD_AGENT_H

#include "proto/muster.pb-c.h"

struct ms_head;
struct ms_head_op;
struct ms_head_options;
struct ms_child_agent;

/* Make a node; takes the configuration (NULL: out of memory). */
int ms_child_agent_init(struct ms_head *h,
                        const struct ms_head_options *o,
                        Muster__HeadToAgent *config);
/* `run` of the start of all of them: it completes when all are ready, or one will not be.
 * The options are used until it has run. */
int ms_child_agent_run(struct ms_head_op *op);
/* Of the node, which owns it. NULL is nothing. */
void ms_child_agent_destroy(struct ms_child_agent *l);
/* Takes the message. */
void ms_child_agent_is_ready(struct ms_child_agent *l, Muster__AgentReady *ready);
/* End it by force; it will be found gone. */
void ms_child_agent_kill(struct ms_child_agent *l);
/* Close the link to it. */
void ms_child_agent_hang_up(struct ms_child_agent *l);

#endif
