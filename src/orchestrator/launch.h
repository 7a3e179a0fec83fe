/* launch.h - what reserve, grow and release do to the mirror, alike in all engines that
 * keep the books themselves */
#ifndef MS_ORCHESTRATOR_LAUNCH_H
#define MS_ORCHESTRATOR_LAUNCH_H

#include "orchestrator/mirror.h"

/* The pieces of one reserve or grow. */
struct ms_launch {
    const char *key;
    bool is_grow;
    uint64_t mark;  /* of the request (ms_reserve_mark) */
    size_t count;   /* pieces */
    uint32_t first; /* the number of the first one, once they are written down */
};

/* Write its pieces down: 1. 0: a reserve of what is there already, which ends as that one
 * does. Otherwise the reason: -EEXIST (another one has the key), -ENOENT (nothing to grow),
 * -ENOMEM, -E2BIG. */
int ms_launch_begin(struct ms_mirror *m, struct ms_launch *l, struct ms_error *why);
/* They came to nothing at once. */
void ms_launch_undo(struct ms_mirror *m, const struct ms_launch *l);
/* All run: 1; not all, so far: 0; one has ended or is gone: -ECHILD with the reason. */
int ms_launch_progress(const struct ms_mirror *m,
                       const struct ms_launch *l,
                       struct ms_error *why);

/* Nobody waits for it, and what it has are pieces that run and pieces that have ended: it
 * was lent, and to reserve the same again is to have it as it is. */
bool ms_launch_is_held(const struct ms_mirror *m, const struct ms_launch *l);

/* The key of an operation. One that is too long is nobody's; it is not cut to be another's.
 * NULL: "". */
void ms_launch_key(char out[MS_ORCH_KEY_MAX + 1], const char *key);

/* A copy of the numbers of a release; of none: NULL. 0, -ENOMEM. */
int ms_launch_numbers(uint32_t **out,
                      size_t *out_count,
                      const uint32_t *numbers,
                      size_t count);

/* What was released is gone: these pieces, or with NULL all, and the reservation itself if
 * it has none left. */
void ms_launch_forget(struct ms_mirror *m,
                      const char *key,
                      const uint32_t *numbers,
                      size_t count);

#endif
