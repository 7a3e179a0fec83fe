/* tail.h - a log file from its last lines on, through renames
 *
 * The file may grow, and may be renamed to "<name>.1" with a new one in its place; then
 * the old one is read to its end before the new one. Reading never waits.
 */
#ifndef MS_CLI_LOGS_TAIL_H
#define MS_CLI_LOGS_TAIL_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { MS_TAILFILE_NAME_MAX = 96 };

struct ms_tailfile {
    int dir; /* borrowed */
    int fd;
    char name[MS_TAILFILE_NAME_MAX];
    off_t at;     /* what was given out */
    bool started; /* the first read has happened */
};

/* 0 or a negative errno. */
int ms_tailfile_open(struct ms_tailfile *t, int dir, const char *name);
void ms_tailfile_close(struct ms_tailfile *t);

/* Hand out what is new. The first time: the last lines_max lines (-1: all) of this file
 * and of "<name>.1" before it. on_data returns 0, or a negative errno to stop with it.
 */
int ms_tailfile_read(struct ms_tailfile *t,
                     long lines_max,
                     int (*on_data)(void *arg, const char *data, size_t len),
                     void *arg);

#endif
