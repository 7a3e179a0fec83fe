/* pace.c - how fast bytes are sent to another node */
#include "store/peers/pace.h"

void ms_pace_init(struct ms_pace *p)
{
    *p = (struct ms_pace){.rate = UINT64_MAX};
}

static uint64_t percent(uint64_t n, uint64_t of)
{
    return n / 100 * of;
}

/* What the way has carried for more than a moment; forgotten slowly. */
static void remember(struct ms_pace *p, uint64_t arriving)
{
    p->smooth = p->smooth ? p->smooth - p->smooth / 8 + arriving / 8 : arriving;
    p->best -= p->best / 1024;
    if (p->best < p->smooth)
        p->best = p->smooth;
}

/* The shortest of the last few: who waits for a processor is late once, a queue is there
 * always. */
static uint32_t queue_now(struct ms_pace *p, uint32_t queue_us)
{
    uint32_t least = UINT32_MAX;

    p->queues[p->looks++ % MS_PACE_LOOKS] = queue_us;
    for (unsigned i = 0; i < MS_PACE_LOOKS && i < p->looks; i++)
        if (p->queues[i] < least)
            least = p->queues[i];
    return least;
}

uint64_t
ms_pace_step(struct ms_pace *p, uint32_t rtt_us, uint32_t min_rtt_us, uint64_t arriving)
{
    uint32_t last_us = rtt_us > min_rtt_us ? rtt_us - min_rtt_us : 0;
    uint32_t queue_us = queue_now(p, last_us);
    uint32_t allowed_us = min_rtt_us > MS_PACE_QUEUE_US ? min_rtt_us : MS_PACE_QUEUE_US;
    uint64_t least;

    if (!arriving)
        return p->rate;
    remember(p, arriving);
    if (queue_us > allowed_us) /* the longer the queue, the more */
        p->rate = percent(arriving, queue_us > 4 * allowed_us ? 70 : 90);
    else if (p->rate != UINT64_MAX && last_us <= allowed_us)
        p->rate = percent(p->rate > arriving ? p->rate : arriving, 101);
    if (p->rate != UINT64_MAX && p->rate > 4 * p->best)
        p->rate = UINT64_MAX; /* it is not held back by us */
    least = p->best / MS_PACE_SHARE_MIN;
    if (least < MS_PACE_RATE_MIN)
        least = MS_PACE_RATE_MIN;
    if (p->rate < least)
        p->rate = least;
    return p->rate;
}
