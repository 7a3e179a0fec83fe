/* seek.h - where in a log file to begin */
#ifndef MS_AGENT_LOGS_SEEK_H
#define MS_AGENT_LOGS_SEEK_H

#include <stdint.h>

/* Where the last *lines (at least 1) of `size` bytes begin, at most `back_max` before their
 * end; *lines becomes how many are missing. A newline at the very end begins no line. 0 or a
 * negative errno. */
int ms_log_find_lines(
    int fd, uint64_t size, uint64_t back_max, long *lines, uint64_t *start);

/* Where the first line of `size` bytes begins whose timestamp is not before `since_ns`; `size`:
 * there is none. Looks at few places: times only grow, but for a clock that was set back. 0 or
 * a negative errno. */
int ms_log_find_time(int fd, uint64_t size, int64_t since_ns, uint64_t *start);

#endif
