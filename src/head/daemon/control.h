/* control.h - the server of the head: head.sock for tools, and where others dial
 *
 * One server carries out what tools ask (MS_OP_ASK: any verb of verbs.h that is for them) and
 * hands links of agents and drivers to hello.h. The head's thread, or before it runs.
 */
#ifndef MS_HEAD_DAEMON_CONTROL_H
#define MS_HEAD_DAEMON_CONTROL_H

#include "base/error.h"

struct ms_head;

int ms_head_control_open(struct ms_head *h, struct ms_error *err);
/* Also at all of these, "HOST:PORT", NULL-terminated; they are added to h->addresses. */
int ms_head_control_listen(struct ms_head *h,
                           const char *const *addresses,
                           struct ms_error *err);
void ms_head_control_close(struct ms_head *h);

#endif
