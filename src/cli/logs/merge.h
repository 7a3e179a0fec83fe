/* merge.h - the lines of one log or of several, in the order of their times
 *
 * Pure but for what its callbacks do. What was read of a log is kept here until its lines
 * are given out. Each line has the time at which its agent has read it; one without a
 * timestamp has that of the line before it.
 */
#ifndef MS_CLI_LOGS_MERGE_H
#define MS_CLI_LOGS_MERGE_H

#include "base/buf.h"
#include "cli/logs/line.h"

/* A log, of a file here or on another machine. */
struct ms_logtext {
    char cluster[MS_NAME_MAX + 1]; /* "": not a worker's */
    char node[MS_NAME_MAX + 1];    /* "": of this machine */
    uint32_t rank;
    struct ms_buf bytes; /* what was read... */
    size_t at;           /* ...and given out of it */
    int64_t time_ns;     /* of the last line that had one */
};

/* What was read next. 0 or -ENOMEM. */
int ms_logtext_add(struct ms_logtext *t, const char *data, size_t len);
/* The next whole line, if there is one; borrowed until the next add. */
bool ms_logtext_next(struct ms_logtext *t, struct ms_logline *line);
/* The unfinished last line, if there is one: nothing will come behind it. */
bool ms_logtext_rest(struct ms_logtext *t, struct ms_logline *line);

struct ms_logmerge_ops {
    struct ms_logtext *(*log)(void *arg, size_t i);
    /* Read more of it: how many bytes, 0 if there are none now, or a negative errno. */
    int (*more)(void *arg, size_t i);
    /* 0, or a negative errno to stop with it. */
    int (*on_line)(void *arg, size_t i, const struct ms_logline *line);
};

/* Give out all whole lines that there are now of `count` logs; of the same time, those of the
 * first log first. 0 or a negative errno. */
int ms_logmerge(const struct ms_logmerge_ops *ops, void *arg, size_t count);

#endif
