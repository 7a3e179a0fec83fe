/* nearest.c - the nearest of some words to one that was mistyped */
#include "base/nearest.h"

#include <stdint.h>
#include <string.h>

enum { WORD_MAX = 31 };

static size_t min(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Insertions, deletions, changes and swaps of neighbours between two words; words longer than
 * WORD_MAX letters are SIZE_MAX apart. d[i][j]: between the first i letters of a and the first j of b. */
static size_t distance_of(const char *a, const char *b)
{
    size_t d[WORD_MAX + 1][WORD_MAX + 1];
    size_t na = strlen(a), nb = strlen(b);

    if (na > WORD_MAX || nb > WORD_MAX)
        return SIZE_MAX;
    for (size_t i = 0; i <= na; i++)
        d[i][0] = i;
    for (size_t j = 0; j <= nb; j++)
        d[0][j] = j;
    for (size_t i = 1; i <= na; i++)
        for (size_t j = 1; j <= nb; j++) {
            size_t change = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);

            d[i][j] = min(change, min(d[i - 1][j], d[i][j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                d[i][j] = min(d[i][j], d[i - 2][j - 2] + 1);
        }
    return d[na][nb];
}

void ms_nearest_consider(struct ms_nearest *n, const char *candidate)
{
    size_t len = strlen(n->word);
    size_t distance = distance_of(n->word, candidate);
    size_t allowed = (len + 2) / 3;

    if (len >= 2 && strncmp(candidate, n->word, len) == 0)
        distance = min(distance, 1);
    if (len == 0 || distance > allowed || (n->best && distance >= n->distance))
        return;
    n->best = candidate;
    n->distance = distance;
}
