/* seek.h - where in a log file to begin */
#ifndef MS_AGENT_LOGS_SEEK_H
#define MS_AGENT_LOGS_SEEK_H

#include "base/limits.h"

#include <stddef.h>
#include <stdint.h>

/* Lines of the same time, of which only the first has it, are written together: they are not
 * longer than this. What is longer and has no time was not written by an agent that writes
 * times. */
#define MS_LOG_RUN_MAX (2 * MS_LOG_READ_MAX + MS_LOG_LINE_MAX)

/* Where the last *lines (at least 1) of `size` bytes begin, at most `back_max` before their
 * end; *lines becomes how many are missing. A newline at the very end begins no line. 0 or a
 * negative errno. */
int ms_log_find_lines(
    int fd, uint64_t size, uint64_t back_max, long *lines, uint64_t *start);

/* Where the first line of `size` bytes begins whose timestamp is not before `since_ns`; `size`:
 * there is none. Looks at few places: times only grow, but for a clock that was set back; and
 * lines without times, MS_LOG_RUN_MAX of them and more, are older than those with. 0 or a
 * negative errno. */
int ms_log_find_time(int fd, uint64_t size, int64_t since_ns, uint64_t *start);

/* The time of a line that begins at `at` and has none: that of the last one before it. 0: not
 * known. */
int64_t ms_log_time_before(int fd, uint64_t at);

#endif
