/* zygote_key.h - which workers can come from which zygote
 *
 * A worker can be forked from an interpreter of the same command, with the same values
 * of those variables that libraries read when they load, that has imported what the
 * worker asks for. Pure.
 *
 * A normal key has the default interpreter filled in; no variable that the driver's
 * environment has with the same value; OMP_NUM_THREADS=1 where nobody says otherwise
 * (many workers on one machine must not each start a thread for every core); variables
 * sorted; before its own modules those that the driver wants in all its workers; and no module twice or among those that are always there.
 */
#ifndef MS_AGENT_ZYGOTE_KEY_H
#define MS_AGENT_ZYGOTE_KEY_H

#include "proto/muster.pb-c.h"

#include <stdbool.h>
#include <stddef.h>

/* The normal form, to be freed with muster__zygote_key__free_unpacked. `key` may be
 * NULL: the default. NULL: out of memory. */
Muster__ZygoteKey *ms_zygote_key_normal(const Muster__ZygoteKey *key,
                                        const Muster__DriverContext *context);

/* Both normal. */
bool ms_zygote_key_equal(const Muster__ZygoteKey *a, const Muster__ZygoteKey *b);

/* Whether `base`, with more imports, becomes `key`. */
bool ms_zygote_key_extends(const Muster__ZygoteKey *key, const Muster__ZygoteKey *base);

/* The modules of `key` that `base` lacks, borrowed, into `out` (room for all of key's);
 * how many. */
size_t ms_zygote_key_missing(const Muster__ZygoteKey *key,
                             const Muster__ZygoteKey *base,
                             char **out);

#endif
