/* tail.h - a log file from its last lines on, through renames
 *
 * The file may grow, and may be renamed to "<name>.1" with a new one in its place; then
 * the old one is read to its end before the new one. Reading never waits.
 */
#ifndef MS_CLI_LOGS_TAIL_H
#define MS_CLI_LOGS_TAIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { MS_TAILFILE_NAME_MAX = 96 };

struct ms_tailfile {
    int dir; /* borrowed */
    int fd;
    int old; /* "<name>.1", which is read first; -1: not, or no more */
    char name[MS_TAILFILE_NAME_MAX];
    uint64_t at, old_at; /* what was given out */
    bool started;        /* where to begin was found */
    int64_t first_ns; /* of the line before that, which a first line without one has */
};

/* 0 or a negative errno. */
int ms_tailfile_open(struct ms_tailfile *t, int dir, const char *name);
void ms_tailfile_close(struct ms_tailfile *t);

/* Begin with the last lines_max lines (-1: all) of "<name>.1" and this file, and of these with
 * the first that was read at since_ns or later (0: any). 0 or a negative errno. */
int ms_tailfile_start(struct ms_tailfile *t, long lines_max, int64_t since_ns);

/* What comes next: how many bytes, 0 if there are none now, or a negative errno. */
int ms_tailfile_read(struct ms_tailfile *t, void *data, size_t room);

#endif
