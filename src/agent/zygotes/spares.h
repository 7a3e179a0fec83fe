/* spares.h - in a zygote: processes that were forked ahead and wait for their request
 *
 * Where workers have ended others are likely to begin, so a zygote that has nothing else to do
 * forks a spare for each worker that ended. A spare reads the next request from the zygote's
 * socket itself and becomes what it asks for: the fork is already done then. It ends with its
 * zygote while it waits.
 *
 * What a spare does is in memory that it shares with its zygote, so that a request that was
 * read by one that died is reported as failed.
 */
#ifndef MS_AGENT_ZYGOTES_SPARES_H
#define MS_AGENT_ZYGOTES_SPARES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { MS_SPARES_MAX = 8 }; /* that wait in one zygote */

struct ms_spares {
    uint64_t *doing;           /* shared, by slot; NULL: no memory, so no spares */
    pid_t pids[MS_SPARES_MAX]; /* by slot, 0: free */
    unsigned wanted;
    unsigned slot; /* of the fork under way, and in a spare its own */
};

void ms_spares_init(struct ms_spares *s);
void ms_spares_finish(struct ms_spares *s);

/* A worker has ended. */
void ms_spares_want(struct ms_spares *s);
/* True: one is to be forked now, into `slot`. */
bool ms_spares_begin(struct ms_spares *s);
/* In the zygote, after that fork; pid <= 0: it failed. */
void ms_spares_forked(struct ms_spares *s, pid_t pid);

/* In the spare: it reads the request `uid` (0: none after all), and has reported that it is the
 * process. */
void ms_spares_take(struct ms_spares *s, uint64_t uid);
void ms_spares_reported(struct ms_spares *s);

/* In the zygote: this child has ended. True: it was a spare, and `*lost` is the request that
 * died with it, 0 if there was none. */
bool ms_spares_reaped(struct ms_spares *s, pid_t pid, uint64_t *lost);

#endif
