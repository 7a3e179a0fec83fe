/* tail.h - the last lines of a log, for an error's text */
#ifndef MS_HEAD_NODES_TAIL_H
#define MS_HEAD_NODES_TAIL_H

#include <stddef.h>

/* The end of the file in one line of at most room - 1 bytes, " | " between its lines.
 * Empty if there is nothing. Returns `out`. */
const char *ms_tail_read(const char *path, char *out, size_t room);

#endif
