/* partials.h - what was begun as surplus, until its prompt is submitted again (APRIL)
 *
 * When a group has enough samples the rest is aborted. What those have is kept here, by the
 * prompt's key, and samples of a later group of that prompt go on behind it: the oldest first,
 * as long as their weights are not too old. There is room for so many tokens; beyond it the
 * oldest are let go. Pure; what a partial is made of is the caller's (`what`).
 */
#ifndef MS_GENERATE_PARTIALS_H
#define MS_GENERATE_PARTIALS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ms_partials;

struct ms_partial {
    uint64_t key;    /* of the prompt; not 0 */
    uint64_t asked;  /* a digest of what was asked: only the same goes on behind it */
    uint32_t tokens; /* at least 1 */
    uint32_t oldest; /* version of its oldest token */
    void *what;
};

struct ms_partials_stats {
    uint64_t held, tokens;  /* now */
    uint64_t kept, resumed; /* in all; of these the samples that went on behind one */
};

/* `release` is called for each that is let go. NULL: out of memory. */
struct ms_partials *ms_partials_create(uint64_t tokens_max,
                                       void (*release)(void *what));
void ms_partials_destroy(struct ms_partials *p); /* NULL is fine */

/* It is taken over at 0, and then may be let go at once. -EINVAL, -ENOMEM: it is not. */
int ms_partials_keep(struct ms_partials *p, const struct ms_partial *one);

/* Is any kept by this key? */
bool ms_partials_has(const struct ms_partials *p, uint64_t key);

/* The oldest of that prompt with less than `below` tokens: the caller's again, or NULL. */
void *
ms_partials_take(struct ms_partials *p, uint64_t key, uint64_t asked, uint32_t below);

/* Let go what has tokens of versions before this one. */
void ms_partials_expire(struct ms_partials *p, uint32_t version);

struct ms_partials_stats ms_partials_stats(const struct ms_partials *p);

#endif
