/* grid.h - text in columns
 *
 * Cells are added row by row, left to right; the grid copies them. A row is complete
 * when it has as many cells as there are columns. What would disturb a terminal
 * (control characters, newlines) is replaced by a blank, so any text may be put in. The
 * width of a cell is its number of UTF-8 code points. Running out of memory is
 * remembered and returned by ms_grid_print, so that adding needs no check.
 */
#ifndef MS_RESOURCE_GRID_H
#define MS_RESOURCE_GRID_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

struct ms_grid_cell;

struct ms_grid {
    const char *align; /* one letter a column, 'l' or 'r'; borrowed */
    size_t columns;
    struct ms_grid_cell *cells;
    size_t count, capacity;
    bool colour;      /* styles are printed; false after init */
    bool hides_empty; /* columns with nothing below their first row; false after init */
    size_t room;      /* a line's width at most; 0 after init: any. Text is cut, and
                         a column to the right of it left out if it does not fit */
    int failed;       /* 0 or -ENOMEM */
};

/* `align` says how many columns there are and how each is aligned, e.g. "lrl";
 * at most 16. */
void ms_grid_init(struct ms_grid *g, const char *align);
void ms_grid_finish(struct ms_grid *g);

/* Add the next cell. `style` is a list of SGR numbers ("31", "1;32"; a static string)
 * or NULL for plain. An empty cell is printed as blanks. */
void ms_grid_add(struct ms_grid *g, const char *style, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The text as the next cell, "-" if there is none; it is then empty. */
void ms_grid_move(struct ms_grid *g, struct ms_buf *text);
/* A plain cell for each column, from the first one on. */
void ms_grid_add_titles(struct ms_grid *g, const char *const *titles);

/* Append all rows: two blanks between columns, none at the end of a line. An unfinished
 * row is filled up with empty cells. 0 or -ENOMEM. */
int ms_grid_print(const struct ms_grid *g, struct ms_buf *out);
/* The same, and free it. A failure is in out->failed. */
void ms_grid_end(struct ms_grid *g, struct ms_buf *out);

#endif
