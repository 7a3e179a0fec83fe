/* node_check.h - which nodes are faulty or slow, from two rounds of checks in pairs; pure
 *
 * In the first round neighbours are checked together: (0,1), (2,3), ... In the second the
 * fastest is paired with the slowest, the second fastest with the second slowest, and so on,
 * so that a node which failed has a good one as its partner. A check of two nodes fails
 * for both, and takes the time that it took each. With an odd number the one that is left
 * over is checked alone.
 *
 * Few nodes: of three, both that failed are paired with the third. Of two that failed
 * together, each is checked alone; if both pass that, what is between them is at fault, and
 * both are suspects. One node is checked alone, twice.
 *
 * Verdict:
 *  - A node that fails alone is faulty.
 *  - One that failed with others, and never passed, is faulty if one of them passed with
 *    another node. It is good if it passed alone and those that it failed with are faulty
 *    alone. Else it cannot be told which of them it was, and all are suspects.
 *  - All others are good, or stragglers, if their best time is more than `slow_milli` (twice, if
 *    nothing is said) the median of the best times of all that passed.
 */
#ifndef MS_JOB_NODE_CHECK_H
#define MS_JOB_NODE_CHECK_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MS_NODE_CHECK_ROUNDS = 2, MS_NODE_SLOW_MILLI = 2000 };

enum ms_node_verdict {
    MS_NODE_GOOD,
    MS_NODE_STRAGGLER,
    MS_NODE_SUSPECT,
    MS_NODE_FAULTY
};

/* Two nodes that are checked together; b == a: alone. */
struct ms_node_pair {
    uint32_t a, b;
};

struct ms_node_check {
    uint32_t count;
    unsigned round;      /* that is planned last */
    uint64_t slow_milli; /* thousandths of the median; it may be changed after init */
    /* by round and node; a node that stands in two pairs failed if either did */
    bool *passed[MS_NODE_CHECK_ROUNDS];
    bool *failed[MS_NODE_CHECK_ROUNDS];
    int64_t *time_ns[MS_NODE_CHECK_ROUNDS]; /* the best of a check that passed */
    struct ms_node_pair *pairs[MS_NODE_CHECK_ROUNDS];
    size_t pair_count[MS_NODE_CHECK_ROUNDS];
};

/* `count` is 1 or more. 0, -EINVAL or -ENOMEM. */
int ms_node_check_init(struct ms_node_check *c, uint32_t count, struct ms_error *err);
void ms_node_check_finish(struct ms_node_check *c);

/* The pairs of a round, which is 0 or 1; borrowed. The second is planned from what was
 * reported of the first. */
const struct ms_node_pair *
ms_node_check_plan(struct ms_node_check *c, unsigned round, size_t *count);
/* How the check of this node in this pair went. */
void ms_node_check_report(struct ms_node_check *c,
                          unsigned round,
                          uint32_t node,
                          bool passed,
                          int64_t time_ns);

enum ms_node_verdict ms_node_check_verdict(const struct ms_node_check *c,
                                           uint32_t node);
/* The best time of a node; -1: it never passed. */
int64_t ms_node_check_time_ns(const struct ms_node_check *c, uint32_t node);
/* Of the best times; -1: nobody passed. */
int64_t ms_node_check_median_ns(const struct ms_node_check *c);

#endif
