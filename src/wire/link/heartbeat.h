/* heartbeat.h - the heartbeats of many network links
 *
 * One timer for all links of a server, or for one that was dialled. At each tick those on
 * which little was sent lately say that they are here, all in a row, so that thousands of
 * idle ones cost one wake-up. Ticks are at multiples of the period on the wall clock. They stand in the order in which something last came from
 * them, so only the first can be the next to become suspect. Loop's thread.
 */
#ifndef MS_WIRE_LINK_HEARTBEAT_H
#define MS_WIRE_LINK_HEARTBEAT_H

#include "base/list.h"
#include "io/loop.h"

struct ms_beat {
    struct ms_list link;
    int64_t heard_ns; /* as far as the list's order knows */
    bool is_suspect;
};

struct ms_heartbeat_ops {
    /* The truth: when something last came, and was last sent. */
    int64_t (*heard_ns)(struct ms_beat *b);
    int64_t (*sent_ns)(struct ms_beat *b);
    void (*send_beat)(struct ms_beat *b);
    /* The beat may be removed here, and others too. */
    void (*on_suspect)(struct ms_beat *b, bool is_suspect);
};

struct ms_heartbeat;

/* NULL: out of memory. */
struct ms_heartbeat *ms_heartbeat_create(struct ms_loop *loop,
                                         const struct ms_heartbeat_ops *ops);
struct ms_heartbeat *ms_heartbeat_ref(struct ms_heartbeat *p);
void ms_heartbeat_unref(struct ms_heartbeat *p);

void ms_heartbeat_add(struct ms_heartbeat *p, struct ms_beat *b);
void ms_heartbeat_remove(struct ms_heartbeat *p, struct ms_beat *b);
/* Something has come. */
void ms_heartbeat_heard(struct ms_heartbeat *p, struct ms_beat *b);

#endif
