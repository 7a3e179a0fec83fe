/* control_impl.h - what the files of the control server share
 *
 * control.c          the server, who answers what
 * control_status.c   `muster status`
 * control_log.c      `muster logs` of other machines
 * control_objects.c  `muster list objects`
 * control_stop.c     `muster stop`
 */
#ifndef MS_HEAD_CONTROL_IMPL_H
#define MS_HEAD_CONTROL_IMPL_H

#include "head/control.h"
#include "wire/server.h"

void ms_head_control_reply(struct ms_request *r, const ProtobufCMessage *m);
/* An op's on_done: what it came to answers the request that is its done_arg. */
void ms_head_control_answer(struct ms_head_op *op);

/* Each answers one kind of request, now or later. */
void ms_head_control_status(struct ms_head *h, struct ms_request *r);
void ms_head_control_read_log(struct ms_head *h, struct ms_request *r);
void ms_head_control_objects(struct ms_head *h, struct ms_request *r);
void ms_head_control_stop(struct ms_head *h, struct ms_request *r);

#endif
