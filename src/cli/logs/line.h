/* line.h - one line of a log: whose it is, and how it is shown */
#ifndef MS_CLI_LOGS_LINE_H
#define MS_CLI_LOGS_LINE_H

#include "base/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ms_logline {
    char cluster[MS_NAME_MAX + 1]; /* "": not a worker's */
    char node[MS_NAME_MAX + 1];    /* "": not known */
    uint32_t rank;
    const char *text; /* borrowed, without its newline */
    size_t len;
    int64_t time_ns; /* when it was read; 0: not known */
    bool has_time;   /* before it in the file, not that of the line before */
};

/* Take the timestamp off a line of a file. False, and nothing changed, if it has none. */
bool ms_logline_take_time(struct ms_logline *l);

/* Take "cluster/rank@node: " off a line of the merged file. False, and nothing changed,
 * if it does not begin like that. */
bool ms_logline_split(struct ms_logline *l);

/* On stdout: {"time": ..., "cluster": ..., "rank": ..., "node": ..., "line": ...} with what
 * is known. 0 or -ENOMEM. */
int ms_logline_print_json(const struct ms_logline *l);

/* On stdout: the text; before it, in colour if there are colours, "cluster/rank" with
 * "@node: " if the node is known; before that its time, if it is known and wanted. */
void ms_logline_print(const struct ms_logline *l, bool with_time);

#endif
