/* nearest.h - the nearest of some words to one that was mistyped */
#ifndef MS_BASE_NEAREST_H
#define MS_BASE_NEAREST_H

#include <stddef.h>

struct ms_nearest {
    const char *word; /* what was written */
    const char *best; /* NULL: nothing is near */
    size_t distance;
};

/* Begin with {.word = ...}, consider every candidate; best is then the nearest one that
 * is near enough: at most one mistake in three letters, or what was written begins it.
 * The first of equals wins. Borrows its arguments. */
void ms_nearest_consider(struct ms_nearest *n, const char *candidate);

#endif
