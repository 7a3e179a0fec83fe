/* reorder.h - pieces of several logs, in the order of their times
 *
 * Pure: time is passed in. Pieces come over different connections, so an older one may
 * arrive later. Each is held for `hold_ns` after its arrival and given out behind all that
 * are older by the time at which they were written. One that arrives after that is printed
 * out of order.
 */
#ifndef MS_CLI_LOGS_REORDER_H
#define MS_CLI_LOGS_REORDER_H

#include "base/list.h"

#include <stdint.h>

/* Embedded in a piece. */
struct ms_reorder_item {
    struct ms_list link;
    int64_t due_ns;
    uint64_t time_ns;
};

struct ms_reorder {
    struct ms_list items; /* oldest first */
    int64_t hold_ns;
};

void ms_reorder_init(struct ms_reorder *m, int64_t hold_ns);

/* `time_ns` is by the clock of who wrote it, `now_ns` by ours. Of the same time: the one
 * that came first. */
void ms_reorder_add(struct ms_reorder *m,
                    struct ms_reorder_item *i,
                    uint64_t time_ns,
                    int64_t now_ns);

/* The oldest, if it or a younger one is due; NULL: none is. MS_NEVER: whatever is there. */
struct ms_reorder_item *ms_reorder_take(struct ms_reorder *m, int64_t now_ns);

/* When one is due next; MS_NEVER: there is none. */
int64_t ms_reorder_next_ns(const struct ms_reorder *m);

#endif
