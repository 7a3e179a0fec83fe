/* lanes.h - which thread of its track each event of a trace is on
 *
 * Perfetto draws spans of a thread within each other, so those of one lane are apart, or,
 * if both say that they nest, one lies within the other.
 */
#ifndef MS_CLI_TIMELINE_LANES_H
#define MS_CLI_TIMELINE_LANES_H

#include "cli/timeline/trace.h"

/* Of events that are sorted by their beginnings, the longer first: their `lane`, and the
 * `first` and `lanes` of tracks. 0 or -ENOMEM. */
int ms_lanes_assign(struct ms_trace *t);

#endif
