/* uplink.h - a head that has joined another one: all requests travel there
 *
 * It has no nodes and no clusters of its own; head->uplink is set. ms_head_join (head.h)
 * makes it. A request is answered by the other head, also if the link breaks meanwhile and
 * comes back. When that head is lost all that is open fails. The head's thread.
 */
#ifndef MS_HEAD_DRIVERS_UPLINK_H
#define MS_HEAD_DRIVERS_UPLINK_H

struct ms_head_op;
struct ms_uplink;

/* `run` of every request, and of the end. */
int ms_uplink_ask_run(struct ms_head_op *op);
int ms_uplink_stop_run(struct ms_head_op *op);
void ms_uplink_destroy(struct ms_uplink *u); /* NULL is nothing */

/* For tests: the next request has the number of the last one, as if that had not been answered. */
void ms_uplink_unanswer(struct ms_uplink *u);

#endif
