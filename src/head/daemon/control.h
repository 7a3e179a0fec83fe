/* control.h - the server of the head: head.sock for tools, and where others dial
 *
 * One server takes links of agents, and of drivers and tools (hello.c): a peer that has proven
 * the secret has MS_HANDSHAKE_NS to say who it is. Then its link is handed to nodes/dialled.h or
 * drivers/driver.h, or it is told why not. The head's thread, or before it runs.
 */
#ifndef MS_HEAD_DAEMON_CONTROL_H
#define MS_HEAD_DAEMON_CONTROL_H

#include "base/error.h"

struct ms_head;
struct ms_link;
struct ms_node;

int ms_head_control_open(struct ms_head *h, struct ms_error *err);
/* Also at all of these, "HOST:PORT", NULL-terminated; they are added to h->addresses. */
int ms_head_control_listen(struct ms_head *h,
                           const char *const *addresses,
                           struct ms_error *err);
void ms_head_control_close(struct ms_head *h);

/* on_link of the server; `arg` is the head. Takes the link. */
void ms_head_on_link(void *arg, struct ms_link *wire);
/* The first message to an agent that has been accepted. */
void ms_hello_welcome_agent(struct ms_head *h, struct ms_node *n);
/* Links that have not said who they are are closed; the loop does not run any more. */
void ms_handshakes_finish(struct ms_head *h);

#endif
