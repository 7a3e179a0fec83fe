/* view.h - the log files of a session, read once and then followed
 *
 * A view shows one file (a worker's, the merged one, the agent's), or those of several
 * workers in the order of their times, with CLUSTER/RANK before each line. Lines of the merged file begin
 * with "CLUSTER/RANK@NODE: "; JSON has those as fields, a terminal in colour. At
 * MS_LOG_FILE_MAX the agent renames x.log to x.log.1 and begins anew; the view reads
 * the old one first and follows through the rename. Everything here blocks at most on
 * the disk and on stdout.
 */
#ifndef MS_CLI_LOGS_VIEW_H
#define MS_CLI_LOGS_VIEW_H

#include "cli/logs/merge.h"
#include "cli/selector.h"

#include <regex.h>
#include <stdbool.h>
#include <stddef.h>

#define MS_LOGVIEW_MERGED "merged.log"

struct ms_logview_file;

struct ms_logview {
    int *dirs; /* the logs folders: of the session, and of nodes beside it */
    size_t dir_count;
    const char *single; /* this file only, e.g. "merged.log"; NULL: by selector */
    struct ms_cli_selector selector; /* which workers */
    bool json;                       /* one object a line */
    bool labels;                     /* CLUSTER/RANK before each line */
    bool timestamps;                 /* before all that */
    bool merged;                     /* lines begin with CLUSTER/RANK@NODE */
    long lines_max;                  /* of each file at first; -1: all */
    int64_t since_ns;                /* only lines that were read then or later */
    const char *job;                 /* only lines of this job; NULL: all */
    const regex_t *grep;             /* only lines with this in them; NULL: all */
    struct ms_logview_file *files;
    size_t count;
};

/* Print a line, if it is wanted. 0 or a negative errno. */
int ms_logview_print_line(const struct ms_logview *v,
                          const struct ms_logtext *t,
                          const struct ms_logline *line);
/* Print the whole lines of what comes next, keep the rest. 0 or a negative errno. */
int ms_logview_add(const struct ms_logview *v,
                   struct ms_logtext *t,
                   const char *data,
                   size_t len);
/* Print the unfinished last line: nothing will come behind it. */
int ms_logview_rest(const struct ms_logview *v, struct ms_logtext *t);

/* Where to begin in a file, in lines from its end: with --grep, last lines are counted among
 * those that match, by ms_logview_keep_last. */
long ms_logview_lines_back(const struct ms_logview *v);
/* Read all that there is now of a log, and keep of it the last lines that are wanted. 0 or a
 * negative errno. */
int ms_logview_keep_last(const struct ms_logview *v,
                         const struct ms_logmerge_ops *ops,
                         void *arg,
                         size_t i);

/* Open a folder, below the folder `at` (or AT_FDCWD). The caller has set which logs and lines
 * are wanted, and how; the other fields are zero before the first. 0 or a negative errno. */
int ms_logview_open(struct ms_logview *v, int at, const char *path);
void ms_logview_close(struct ms_logview *v);

/* Look for files that belong to the view and are not in it yet. How many there are now,
 * or a negative errno. */
int ms_logview_scan(struct ms_logview *v);

/* Print what is there and has not been printed, merged. The first time a file is read, only
 * its last lines_max lines. 0 or a negative errno. */
int ms_logview_print(struct ms_logview *v);

/* ms_logview_rest of all files. */
int ms_logview_end(struct ms_logview *v);

/* Is this the log of a worker ("actor-0.log", "actor-0.<driver>.log")? Then whose. */
bool ms_logview_is_worker(const char *name,
                          char cluster[MS_NAME_MAX + 1],
                          uint32_t *rank);

#endif
