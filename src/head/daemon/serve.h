/* serve.h - a head that others dial; see ms_head_serve in head.h */
#ifndef MS_HEAD_DAEMON_SERVE_H
#define MS_HEAD_DAEMON_SERVE_H

#include "base/error.h"

struct ms_head;

/* Listen at all of these, NULL-terminated; the control server is open. Before the head's
 * thread runs. */
int ms_head_listen(struct ms_head *h,
                   const char *const *addresses,
                   struct ms_error *err);

#endif
