/* pace.h - how fast bytes of objects may be sent, so that calls do not wait behind them
 *
 * A connection that sends as fast as it can fills the queue of the narrowest place on its
 * way, and all that shares that place waits in it. So a bulk link watches how much
 * longer than at best its packets take. While that is more than MS_PACE_QUEUE_US (or as
 * much again as the way is long) it sends a little less than what arrives, and the queue
 * empties; otherwise a little more, to find out what the way can carry. It does not give
 * way without end: never below a share of the best that it has seen, since the queue may
 * be that of other traffic.
 *
 * Pure: what the kernel has measured in, a rate out.
 */
#ifndef MS_STORE_PACE_H
#define MS_STORE_PACE_H

#include <stdint.h>

#define MS_PACE_QUEUE_US  300u                /* that may be added to the way */
#define MS_PACE_RATE_MIN  ((uint64_t)4 << 20) /* bytes a second; never less */
#define MS_PACE_SHARE_MIN 2u                  /* nor than this part of the best seen */
#define MS_PACE_LOOKS     3u                  /* of which the best counts */

struct ms_pace {
    uint64_t rate;         /* bytes a second; UINT64_MAX: nothing is known yet */
    uint64_t smooth, best; /* what has arrived, lately and at best */
    uint32_t queues[MS_PACE_LOOKS];
    unsigned looks;
};

void ms_pace_init(struct ms_pace *p);
/* One look: the rate from now on. To be called a few times in 10 ms while bytes flow. */
uint64_t ms_pace_step(struct ms_pace *p,
                      uint32_t rtt_us,
                      uint32_t min_rtt_us,
                      uint64_t arriving);

#endif
