/* journal.h - named records that outlive this process, in one SQLite file
 *
 * A record is bytes under (space, key). Each change is one transaction in write-ahead mode:
 * it survives the death of the process at any point; of the machine, all but perhaps the
 * last ones. A change is in the file when the function returns.
 *
 * What can go wrong has a reason that a person can act on: the file is damaged (-EBADMSG) or
 * was written by a newer Muster (-ENOTSUP): then it is not touched; another process has it
 * open (-EBUSY); the disk is full (-ENOSPC) or cannot be written (-EROFS, -EACCES).
 *
 * There are two ways to write. ms_journal_write says whether it worked: for what must not be
 * begun otherwise. ms_journal_put does not: with the next change that works all records of the
 * spaces that do not last (ms_journal_open) are deleted, and written anew by the owner
 * (on_rewrite).
 */
#ifndef MS_HEAD_STATE_JOURNAL_H
#define MS_HEAD_STATE_JOURNAL_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ms_journal;

struct ms_journal_ops {
    /* While it is opened: what was kept, by space and key in order. Borrowed. */
    void (*on_record)(
        void *arg, uint32_t space, const char *key, const uint8_t *data, size_t len);
    /* Write all that is written with ms_journal_put: some of it was lost, or a deletion. */
    void (*on_rewrite)(void *arg, struct ms_journal *d);
};

/* The file in the folder `dir`. Its records are read if `is_kept`, else all go but those of
 * spaces from `first_lasting`, which are read. 0 or a negative errno. */
int ms_journal_open(struct ms_journal **out,
                    const char *dir,
                    const char *name,
                    bool is_kept,
                    uint32_t first_lasting,
                    const struct ms_journal_ops *ops,
                    void *arg,
                    struct ms_error *err);
/* The file stays. NULL is nothing. */
void ms_journal_close(struct ms_journal *d);

/* 0, or why it is not in the file; then nothing has changed. `data` NULL: delete it. `d` NULL:
 * nothing is kept, and that is 0. */
int ms_journal_write(struct ms_journal *d,
                     uint32_t space,
                     const char *key,
                     const uint8_t *data,
                     size_t len,
                     struct ms_error *err);
/* Delete all of a space whose keys begin with `prefix`, and are less than `before` unless that
 * is NULL. */
int ms_journal_drop(struct ms_journal *d,
                    uint32_t space,
                    const char *prefix,
                    const char *before,
                    struct ms_error *err);
/* Read those of a space whose keys begin with `prefix`, in order. */
int ms_journal_read(
    struct ms_journal *d,
    uint32_t space,
    const char *prefix,
    void (*on_record)(void *arg, const char *key, const uint8_t *data, size_t len),
    void *arg,
    struct ms_error *err);

/* Of these so many, from the key `from` on. */
int ms_journal_read_some(
    struct ms_journal *d,
    uint32_t space,
    const char *prefix,
    const char *from,
    size_t count_max,
    void (*on_record)(void *arg, const char *key, const uint8_t *data, size_t len),
    void *arg,
    struct ms_error *err);

/* What is written or deleted between the two is all in the file or not at all. Pass what
 * happened meanwhile: with a failure nothing stays, and it is returned. No ms_journal_put. */
int ms_journal_begin(struct ms_journal *d, struct ms_error *err);
int ms_journal_commit(struct ms_journal *d, int rc, struct ms_error *err);

/* Of a space that does not last. `d` may be NULL: nothing is kept. */
void ms_journal_put(struct ms_journal *d,
                    uint32_t space,
                    const char *key,
                    const uint8_t *data,
                    size_t len);
void ms_journal_delete(struct ms_journal *d, uint32_t space, const char *key);

#endif
