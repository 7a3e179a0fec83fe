/* waiting.h - operations that wait until something is known
 *
 * A head that was started again learns from agents what there is. An operation that needs
 * a node which has not come back waits for it, up to MS_RECOVERY_NS (state/persist.h), and
 * is then run once more. Who asks how a worker ended waits until it has. The head's thread.
 */
#ifndef MS_HEAD_OPS_WAITING_H
#define MS_HEAD_OPS_WAITING_H

#include "base/list.h"
#include "proto/muster.pb-c.h"

#include <stdbool.h>
#include <stdint.h>

struct ms_driver;
struct ms_head;
struct ms_head_op;

struct ms_head_waiting {
    struct ms_list for_nodes;  /* operations that need a node which may come */
    struct ms_list for_deaths; /* operations that ask how a worker ended */
};

/* True if nodes are missing: the operation will be run again. */
bool ms_head_wait_for_nodes(struct ms_head_op *op);
/* A node is there, and what it has is known: who waited for it goes on. */
void ms_head_node_has_come(struct ms_head *h, const char *name);

/* A worker has ended: those who ask are answered. */
void ms_head_answer_deaths(struct ms_head *h, uint64_t uid, const Muster__Exit *exit);
/* Who has not been reported by now will not be: who asks about one that no cluster has is
 * told so. */
void ms_head_deaths_settle(struct ms_head *h);

/* All that this driver waits for fails, in whichever folder it waits. */
void ms_head_fail_waiting(struct ms_head *h, const struct ms_driver *d);

#endif
