/* log_limits.h - how much stays of the logs of what has ended
 *
 * Logs of ended sessions stay up to three limits, changed by variables of the environment:
 *   MUSTER_LOGS_KEPT       how many sessions  MS_SESSIONS_KEPT
 *   MUSTER_LOGS_KEPT_SIZE  bytes together     MS_SESSIONS_KEPT_SIZE
 *   MUSTER_LOGS_KEPT_AGE   since the last line  MS_SESSIONS_KEPT_AGE_NS
 * The newest go first. The very newest stays whatever its size: people want to see why the
 * last run failed. A session that begins sweeps; sessions that live are never looked at.
 */
#ifndef MS_IO_SESSION_LOG_LIMITS_H
#define MS_IO_SESSION_LOG_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

struct ms_log_limits {
    uint64_t count_max, size_max;
    int64_t age_max_ns;
    uint64_t count, size;  /* of what stays */
    bool remembers;        /* what was measured: for sessions that never write again */
    const char *not_known; /* a variable that could not be understood; NULL: none */
};

/* The limits of the environment; a variable that cannot be understood does not count. */
void ms_log_limits_init(struct ms_log_limits *k);

/* Newest first: does something of this size and age stay? Then it counts. */
bool ms_log_limits_take(struct ms_log_limits *k, uint64_t size, int64_t age_ns);

/* The same of the folder of a session that has ended; one without logs does not stay. */
bool ms_log_limits_take_dir(struct ms_log_limits *k, int dir);

/* Remove log files beyond the limits of size and age from a folder that is used again. */
void ms_log_limits_sweep(int dir);

#endif
