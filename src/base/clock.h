/* clock.h - the one place where time comes from
 *
 * Pure code takes `now_ns` as an argument; only the edges call these.
 */
#ifndef MS_BASE_CLOCK_H
#define MS_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define MS_NS_PER_US INT64_C(1000)
#define MS_NS_PER_MS INT64_C(1000000)
#define MS_NS_PER_S  INT64_C(1000000000)

/* A deadline that never comes. */
#define MS_NEVER INT64_MAX

static inline int64_t ms_now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * MS_NS_PER_S + ts.tv_nsec;
}

static inline int64_t ms_wall_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    return ts.tv_sec * MS_NS_PER_S + ts.tv_nsec;
}

static inline struct timespec ms_timespec(int64_t ns)
{
    return (struct timespec){.tv_sec = ns / MS_NS_PER_S, .tv_nsec = ns % MS_NS_PER_S};
}

/* now + delay, saturating at MS_NEVER; a delay of MS_NEVER stays MS_NEVER. */
static inline int64_t ms_deadline_ns(int64_t now_ns, int64_t delay_ns)
{
    return delay_ns >= MS_NEVER - now_ns ? MS_NEVER : now_ns + delay_ns;
}

#endif
