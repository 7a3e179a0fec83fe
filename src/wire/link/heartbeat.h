/* heartbeat.h - the heartbeats of many network links
 *
 * One timer for all links of a server, or for one that was dialled. At each tick those on
 * which little was sent lately say that they are here, all in a row, so that thousands of
 * idle ones cost one wake-up. Ticks are at multiples of the period on the wall clock. Links
 * stand in the order in which something last came from them, so only the first can be the
 * next to become suspect. Loop's thread.
 */
#ifndef MS_WIRE_LINK_HEARTBEAT_H
#define MS_WIRE_LINK_HEARTBEAT_H

#include "io/loop.h"

struct ms_heartbeat;
struct ms_link;

/* NULL: out of memory. */
struct ms_heartbeat *ms_heartbeat_create(struct ms_loop *loop);
struct ms_heartbeat *ms_heartbeat_ref(struct ms_heartbeat *p);
void ms_heartbeat_unref(struct ms_heartbeat *p);

void ms_heartbeat_add(struct ms_heartbeat *p, struct ms_link *l);
void ms_heartbeat_remove(struct ms_heartbeat *p, struct ms_link *l);
/* Something has come. */
void ms_heartbeat_heard(struct ms_heartbeat *p, struct ms_link *l);

#endif
