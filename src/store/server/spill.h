/* spill.h - objects that no process reads, in files; for the files of server/ and peers/
 *
 * An object that is idle (see table.h) is written to a file without a name, one for each,
 * and loses its room; it is read back before its bytes are used. A thread writes and
 * reads; the object is pinned meanwhile. If it is used while it is written, the file is
 * dropped, and nothing has happened.
 *
 * place.c asks for room; spill.c decides what goes; spill_file.c writes and reads.
 */
#ifndef MS_STORE_SPILL_H
#define MS_STORE_SPILL_H

#include "store/server/state.h"
#include "store/server/work.h"

/* Objects go into files of `dir`, `limit` bytes at most (0: half of what is free there).
 * Removes what an agent that was killed may have left there. That nothing can be written
 * there is said when it is needed. -ENOMEM. */
int ms_spill_start(struct ms_store *s,
                   const char *dir,
                   uint64_t limit,
                   struct ms_error *err);
/* Before the arena goes: what is written or read is given up. */
void ms_spill_stop(struct ms_store *s);

/* See to it that `need` bytes become free. False: so much cannot be had. When it has
 * succeeded or failed, ms_store_retry_places or ms_store_fail_places is called. */
bool ms_spill_some(struct ms_store *s, uint64_t need);
/* Whether so much can be had as soon as those who were promised objects say that they have
 * them; ms_store_retry_places is called then. */
bool ms_spill_will(const struct ms_store *s, uint64_t need);
/* `fn` comes when the bytes of a spilled object are in memory again, or with why not;
 * perhaps at once. */
void ms_spill_want(struct ms_store *s,
                   struct ms_object *o,
                   ms_object_fn *fn,
                   void *arg);
/* A spilled object goes. */
void ms_spill_drop(struct ms_store *s, struct ms_object *o);

/* What a person should know about spilling when there is no room; NULL: nothing. */
const char *ms_spill_explain(const struct ms_store *s);

/* ---- spill_file.c ---------------------------------------------------------------- */

/* A new file without a name, with disk space for `len` bytes; its descriptor, or why not. */
int ms_spill_open(const char *dir, uint64_t len, struct ms_error *err);
/* Write all of an object's bytes, or read them, chunk by chunk. 0, a negative errno, or
 * -ECANCELED when `work` ends. */
int ms_spill_move(
    int fd, uint8_t *memory, uint64_t len, bool is_write, const struct ms_work *work);
/* Files that were left by agents that were killed in the wrong moment. */
void ms_spill_clean(const char *dir);

#endif
