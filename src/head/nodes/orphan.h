/* orphan.h - workers whose agent has died
 *
 * A worker ends by itself when its agent goes, and takes its descendants with it. What
 * has not done so after a while (a command that knows nothing of us) is killed here
 * with its process group. A process is known by a pidfd, and only taken for a worker if
 * it is not younger than what the agent told of it, so that a reused pid is never
 * touched. Daemons of workers are the agent's supervisor's to kill; if that was killed
 * too they are killed here (io/supervised.h).
 */
#ifndef MS_HEAD_NODES_ORPHAN_H
#define MS_HEAD_NODES_ORPHAN_H

#include "base/list.h"
#include "io/loop.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct ms_head;

struct ms_orphans {
    struct ms_head *head;
    struct ms_list list; /* that are still there */
    struct ms_timer patience;
};

/* When the last one has gone, an end of the head goes on. */
int ms_orphans_init(struct ms_orphans *o, struct ms_head *h);
void ms_orphans_finish(struct ms_orphans *o);

/* Watch for the end of `pid`, which was known at known_ns (monotonic) already. Nothing
 * happens if it is gone, or another process has that number. */
void ms_orphans_add(struct ms_orphans *o, pid_t pid, int64_t known_ns);

/* Kill what is left when delay_ns has passed (again: moves it). */
void ms_orphans_kill_after(struct ms_orphans *o, int64_t delay_ns);

#endif
