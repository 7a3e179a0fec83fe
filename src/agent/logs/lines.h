/* lines.h - what a worker prints, as lines
 *
 * Pure: bytes in, lines out. A line that is longer than MS_LOG_LINE_MAX comes in
 * pieces. A carriage return starts the line anew, as on a terminal, so a progress bar
 * gives one line when it is done and, so that it is seen to move, at most one each
 * MS_LOG_PROGRESS_NS before. "\r\n" ends a line like "\n".
 */
#ifndef MS_AGENT_LOGS_LINES_H
#define MS_AGENT_LOGS_LINES_H

#include "base/buf.h"
#include "base/limits.h"

#include <stdbool.h>

struct ms_lines {
    struct ms_buf part; /* of a line that has not ended; at most MS_LOG_LINE_MAX */
    bool returned;      /* the last byte was a carriage return */
    int64_t shown_ns;   /* when a state of a progress bar was last given out */
};

/* `text` is borrowed, has no newline and no NUL behind it. */
typedef void ms_line_fn(void *arg, const char *text, size_t len);

void ms_lines_init(struct ms_lines *l);
void ms_lines_finish(struct ms_lines *l);

/* Out of memory loses the unfinished line, nothing else. */
void ms_lines_feed(struct ms_lines *l,
                   const char *data,
                   size_t len,
                   int64_t now_ns,
                   ms_line_fn *on_line,
                   void *arg);

/* Nothing more will come: give out the unfinished line, if there is one. */
void ms_lines_end(struct ms_lines *l, ms_line_fn *on_line, void *arg);

/* The last MS_LAST_LINES lines, each cut to MS_LAST_LINE_MAX bytes, kept for reports. Of the
 * stack that a crashing interpreter prints, the first ones. All zero is none. */
struct ms_tail {
    struct ms_buf line[MS_LAST_LINES];
    unsigned count, oldest;
    bool is_crash; /* the last line was part of such a stack */
};

void ms_tail_finish(struct ms_tail *t);
/* A NUL in the text becomes a space: reports are strings. */
void ms_tail_add(struct ms_tail *t, const char *text, size_t len);
/* The i-th, oldest first, as a string; NULL behind the last. Borrowed. */
const char *ms_tail_get(struct ms_tail *t, unsigned i);

#endif
