/* logs_far.h - logs of workers on other machines, read through the head
 *
 * A daemon head has no logs of its own: each node keeps those of its workers. The head is
 * asked for them piece by piece; to follow them means to ask again and again.
 */
#ifndef MS_CLI_LOGS_FAR_H
#define MS_CLI_LOGS_FAR_H

#include "cli/logview.h"
#include "cli/target.h"

/* What `v` selects: its `single` means all workers, or the agents. */
enum ms_exit ms_logs_far(const struct ms_target *t, const struct ms_logview *v);

#endif
