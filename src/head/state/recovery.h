/* recovery.h - which agents a head that was started again waits for
 *
 * The names of a daemon's nodes stand in the session's folder (`nodes`, one a line). A head
 * that finds the file after a crash expects those agents back, for MS_RECOVERY_NS; what
 * needs nodes waits so long (waiting.h). The head's thread.
 */
#ifndef MS_HEAD_STATE_RECOVERY_H
#define MS_HEAD_STATE_RECOVERY_H

#include "base/list.h"
#include "io/loop.h"

#include <stdint.h>

struct ms_head;

struct ms_head_recovery {
    struct ms_list expected;    /* nodes of the head before that have not come back */
    struct ms_timer note_timer; /* changes are written together */
};

/* Reads the file, if a head before has left one. */
int ms_recovery_init(struct ms_head *h);
void ms_recovery_finish(struct ms_head *h);
/* The head before had this node. */
void ms_recovery_expect(struct ms_head *h, const char *name);
/* The nodes have changed: the file is to be written. */
void ms_recovery_note(struct ms_head *h);
void ms_recovery_has_come(struct ms_head *h, const char *name);
/* How long to wait for those that are missing; 0: none is, or for too long. */
int64_t ms_recovery_left_ns(const struct ms_head *h);

#endif
