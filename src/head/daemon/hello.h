/* hello.h - who dials, and what it is told
 *
 * Whoever has proven the secret has MS_HANDSHAKE_NS to say whether it is an agent or a
 * driver; until then its link is owned here. Then its link is handed to
 * nodes/dialled.h or drivers/driver.h, or it is told why not. The head's thread.
 */
#ifndef MS_HEAD_DAEMON_HELLO_H
#define MS_HEAD_DAEMON_HELLO_H

struct ms_head;
struct ms_link;
struct ms_node;

/* on_link of the control server; `arg` is the head. Takes the link. */
void ms_head_on_link(void *arg, struct ms_link *wire);
/* The first message to an agent that has been accepted. */
void ms_hello_welcome_agent(struct ms_head *h, struct ms_node *n);
/* Links that have not said who they are are closed; the loop does not run any more. */
void ms_handshakes_finish(struct ms_head *h);

#endif
