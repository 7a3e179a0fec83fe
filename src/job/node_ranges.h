/* node_ranges.h - nodes of a job that come later: entries with `count: "min:max:unit"`; pure
 *
 * A job needs all nodes of entries without a range, and the first `min` of each range. The
 * others are asked for in whole units, and do not wait for each other. Nodes of one range are
 * alike: which of them are there does not matter, only how many. A job without `nodes` has
 * one node, this machine.
 */
#ifndef MS_JOB_NODE_RANGES_H
#define MS_JOB_NODE_RANGES_H

#include "job/file.h"

enum ms_job_node_is {
    MS_JOB_NODE_ABSENT, /* nobody has asked for it */
    MS_JOB_NODE_ASKED,
    MS_JOB_NODE_LENT,
    MS_JOB_NODE_ENDED, /* it was lent, and was not given back */
};

/* How many nodes are described; all that is passed below has room for so many. */
size_t ms_job_nodes_count(const struct ms_job *job);

/* Those that it needs, by their index. How many. */
size_t ms_job_nodes_least(const struct ms_job *job, uint32_t *out);

/* One that is to be asked for again, by itself: its machine has ended, or the job has less
 * than it needs. False: there is none. */
bool ms_job_nodes_find_lost(const struct ms_job *job,
                            const uint8_t *is,
                            uint32_t *node);

/* The next nodes to ask for beyond the least, of one range: they are ASKED from then on, and
 * in `out`. What one range lacks to a whole unit comes first, then a unit each. How many; 0:
 * this range has all. A range that has less than its least gets none. */
size_t
ms_job_nodes_more(const struct ms_job *job, size_t range, uint8_t *is, uint32_t *out);

/* How many there are, or are asked for, of a range; never less than its least. */
uint32_t ms_job_nodes_held(const struct ms_job *job, size_t range, const uint8_t *is);

#endif
