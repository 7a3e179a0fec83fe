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

struct ms_arena;

/* `memory_left` may be NULL; see struct ms_store_options. */
struct ms_arena *ms_arena_create(struct ms_loop *loop,
                                 uint64_t size,
                                 uint64_t (*memory_left)(void),
                                 struct ms_error *err);
/* When the loop does not run any more. Waits for the thread; completions that have not
 * come do so now, with -ECANCELED. */
void ms_arena_destroy(struct ms_arena *a);

int ms_arena_fd(const struct ms_arena *a);
uint8_t *ms_arena_memory(const struct ms_arena *a);

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
