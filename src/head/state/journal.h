/* journal.h - a few named things that outlive this process: a log of changes in a file
 *
 * Each change is one record at the end of the file (its length, its CRC, a KeptRecord),
 * written at once: it survives the death of the process, not that of the machine. A record
 * that was cut short by the end is passed over. When the file has grown to twice what it
 * was made with, its owner writes all that there is into a new one.
 *
 * A disk that is full loses changes, nothing else: the next one that fits writes all anew.
 */
#ifndef MS_HEAD_STATE_JOURNAL_H
#define MS_HEAD_STATE_JOURNAL_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ms_journal;

struct ms_journal_ops {
    /* While it is opened: what was kept; `data` NULL: it was deleted. Borrowed. */
    void (*on_record)(
        void *arg, uint32_t space, const char *key, const uint8_t *data, size_t len);
    /* Write all that there is with ms_journal_put; also before ms_journal_open returns. */
    void (*on_rewrite)(void *arg, struct ms_journal *d);
};

/* The file in the folder `dir`; its records are read if `is_kept`, else it begins anew.
 * 0 or a negative errno. */
int ms_journal_open(struct ms_journal **out,
                    const char *dir,
                    const char *name,
                    bool is_kept,
                    const struct ms_journal_ops *ops,
                    void *arg,
                    struct ms_error *err);
/* The file stays. NULL is nothing. */
void ms_journal_close(struct ms_journal *d);

/* `d` may be NULL: nothing is kept. */
void ms_journal_put(struct ms_journal *d,
                    uint32_t space,
                    const char *key,
                    const uint8_t *data,
                    size_t len);
void ms_journal_delete(struct ms_journal *d, uint32_t space, const char *key);

#endif
