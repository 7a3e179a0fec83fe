/* frame.h - what `muster top` shows: two statuses in, one screen of text out
 *
 * The head of it says how many workers do what and how full the stores are; below is a line
 * for each worker, as many as there is room for. Rates are between the two statuses. Pure.
 */
#ifndef MS_CLI_TOP_FRAME_H
#define MS_CLI_TOP_FRAME_H

#include "base/buf.h"
#include "cli/selector.h"
#include "proto/muster.pb-c.h"

enum ms_top_sort {
    MS_TOP_BY_TROUBLE, /* what is not as it should be, then who is busy for longest */
    MS_TOP_BY_CPU,
    MS_TOP_BY_MEMORY,
    MS_TOP_BY_CALLS, /* a second */
    MS_TOP_BY_NAME,
    MS_TOP_SORTS
};

/* The key that chooses it, and its name. */
extern const struct ms_top_sort_name {
    char key;
    const char *name;
} ms_top_sorts[MS_TOP_SORTS];

struct ms_top_view {
    struct ms_cli_selector selector; /* which workers */
    enum ms_top_sort sort;
    size_t skip;           /* so many workers are above the screen */
    size_t lines, columns; /* of the screen; 0: any number */
    bool colour;
    bool has_keys; /* the last line says what they do */
};

/* Append the frame. `before` may be NULL: there are no rates. If there are fewer workers than
 * `skip`, that is made smaller. 0 or -ENOMEM. */
int ms_top_frame(struct ms_top_view *v,
                 const Muster__Status *before,
                 const Muster__Status *now,
                 struct ms_buf *out);

#endif
