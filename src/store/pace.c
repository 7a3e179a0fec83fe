#include "store/pace.h"

void ms_pace_init(struct ms_pace *p)
{
    *p = (struct ms_pace){.rate = UINT64_MAX};
}

static uint64_t percent(uint64_t n, uint64_t of)
{
    return n / 100 * of;
}

uint64_t ms_pace_step(struct ms_pace *p,
                      uint32_t rtt_us,
                      uint32_t min_rtt_us,
                      uint64_t arriving_per_s)
{
    uint32_t queue_us = rtt_us > min_rtt_us ? rtt_us - min_rtt_us : 0;
    uint32_t allowed_us = min_rtt_us > MS_PACE_QUEUE_US ? min_rtt_us : MS_PACE_QUEUE_US;
    uint64_t least;

    if (!arriving_per_s)
        return p->rate;
    if (arriving_per_s > p->best)
        p->best = arriving_per_s;
    if (queue_us > allowed_us) /* the longer the queue, the more */
        p->rate = percent(arriving_per_s, queue_us > 4 * allowed_us ? 70 : 90);
    else if (p->rate != UINT64_MAX)
        p->rate = percent(p->rate > arriving_per_s ? p->rate : arriving_per_s, 103);
    if (p->rate != UINT64_MAX && p->rate > 4 * p->best)
        p->rate = UINT64_MAX; /* it is not held back by us */
    least = p->best / MS_PACE_SHARE_MIN;
    if (least < MS_PACE_RATE_MIN)
        least = MS_PACE_RATE_MIN;
    if (p->rate < least)
        p->rate = least;
    return p->rate;
}
