/* view.h - the log files of a session, read once and then followed
 *
 * A view shows one file as it is (a worker's, the merged one, the agent's), or those of
 * several workers with CLUSTER/RANK before each line. Lines of the merged file begin
 * with "CLUSTER/RANK@NODE: "; JSON has those as fields, a terminal in colour. At
 * MS_LOG_FILE_MAX the agent renames x.log to x.log.1 and begins anew; the view reads
 * the old one first and follows through the rename. Everything here blocks at most on
 * the disk and on stdout.
 */
#ifndef MS_CLI_LOGS_VIEW_H
#define MS_CLI_LOGS_VIEW_H

#include "base/buf.h"
#include "cli/selector.h"

#include <stdbool.h>
#include <stddef.h>

#define MS_LOGVIEW_MERGED "merged.log"

struct ms_logview_file;

struct ms_logview {
    int dir;            /* the logs folder */
    const char *single; /* this file only, e.g. "merged.log"; NULL: by selector */
    struct ms_cli_selector selector; /* which workers */
    bool json;                       /* one object a line */
    bool labels;                     /* CLUSTER/RANK before each line */
    bool merged, by_line;            /* what that means for printing */
    long lines_max;                  /* of each file at first; -1: all */
    struct ms_logview_file *files;
    size_t count;
};

/* A log whose lines are printed, of a file here or on another machine. */
struct ms_log {
    char cluster[MS_NAME_MAX + 1]; /* "": not a worker's */
    char node[MS_NAME_MAX + 1];    /* "": of this machine */
    uint32_t rank;
    struct ms_buf part; /* a line that has not ended */
};

/* Print the whole lines of what comes next, keep the rest. 0 or a negative errno. */
int ms_log_print(const struct ms_logview *v,
                 struct ms_log *l,
                 const char *data,
                 size_t len);
/* Print the unfinished last line: nothing will come behind it. */
int ms_log_print_rest(const struct ms_logview *v, struct ms_log *l);

/* Open the folder. The caller has set single or selector, json, labels and lines_max;
 * the other fields are set here. 0 or a negative errno. */
int ms_logview_open(struct ms_logview *v, const char *path);
void ms_logview_close(struct ms_logview *v);

/* Look for files that belong to the view and are not in it yet. How many there are now,
 * or a negative errno. */
int ms_logview_scan(struct ms_logview *v);

/* Print what is there and has not been printed. The first time a file is read, only its
 * last lines_max lines. 0 or a negative errno. */
int ms_logview_print(struct ms_logview *v);

/* ms_log_print_rest of all files. */
int ms_logview_end(struct ms_logview *v);

/* Is this the log of a worker ("actor-0.log", "actor-0.<driver>.log")? Then whose. */
bool ms_logview_is_worker(const char *name,
                          char cluster[MS_NAME_MAX + 1],
                          uint32_t *rank);

#endif
