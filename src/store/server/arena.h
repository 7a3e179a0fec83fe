/* arena.h - the shared memory itself: one sparse file without a name
 *
 * Its size is fixed and sealed, so that no process that maps it meets SIGBUS. Memory is
 * allocated run by run before use, on a thread of its own (clearing pages takes 0.25 ms a
 * MiB), and punched out of the file when it is not needed. Both are done in the order of
 * asking. Before memory is allocated the machine and the container are asked whether they
 * have any: the answer
 * is -ENOMEM, and never the kernel's out-of-memory killer.
 */
#ifndef MS_STORE_ARENA_H
#define MS_STORE_ARENA_H

#include "base/error.h"
#include "io/loop.h"
#include "store/server/space.h"

struct ms_arena {
    struct ms_work *work;
    int fd; /* -1: it is not open */
    uint64_t size;
    uint8_t *memory;
    uint64_t (*memory_left)(void); /* may be NULL; see struct ms_store_options */
};

/* `size` and `memory_left` are set. */
int ms_arena_open(struct ms_arena *a, struct ms_loop *loop, struct ms_error *err);
/* When the loop does not run any more. Waits for the thread; completions that have not
 * come do so now, with -ECANCELED. */
void ms_arena_close(struct ms_arena *a);

/* Memory for all of these runs (copied); on_done comes once, on the loop, never before
 * this returns: with 0, or why the runs behind the first `done` have none. -ENOMEM. */
typedef void
ms_commit_fn(void *arg, int rc, const struct ms_block_run *runs, size_t done);
int ms_arena_commit(struct ms_arena *a,
                    const struct ms_block_run *runs,
                    size_t count,
                    ms_commit_fn *on_done,
                    void *arg);
/* Give it back; what was there is lost. */
int ms_arena_punch(struct ms_arena *a, const struct ms_block_run *run);

#endif
