/* file.h - a file that lines are appended to, whatever happens to the disk
 *
 * Writing never fails for the caller: what a full disk does not take is counted as
 * lost, and when there is room again the file says so in a line of its own. At
 * `size_max` the file is renamed to "<path>.1" (which goes) and begun anew.
 */
#ifndef MS_AGENT_LOGS_FILE_H
#define MS_AGENT_LOGS_FILE_H

#include <stddef.h>
#include <stdint.h>

struct ms_log_file {
    char *path;
    int fd; /* -1: could not be opened yet; the next write tries again */
    uint64_t size, size_max;
    uint64_t lost; /* bytes since the last write that succeeded */
};

/* -ENOMEM or 0: a file that cannot be opened now is tried again later. */
int ms_log_file_open(struct ms_log_file *f, const char *path, uint64_t size_max);
void ms_log_file_close(struct ms_log_file *f);

/* 0, or the negative errno that lost some of these bytes. */
int ms_log_file_write(struct ms_log_file *f, const void *data, size_t len);

#endif
