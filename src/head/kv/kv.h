/* kv.h - the key-value store of a head, pure: no loop, no clock
 *
 * Entries by key, in the order of the keys. An entry may belong to a driver or a worker and
 * goes with it. Every change has a revision, which grows by one; the last changes are kept,
 * so that a watch can go on where it was. A watch that has missed more than that is given
 * all that there is.
 *
 * Values are shared between an entry and the changes that tell of it.
 */
#ifndef MS_HEAD_KV_KV_H
#define MS_HEAD_KV_KV_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ms_kv_kind { MS_KV_DRIVER, MS_KV_WORKER, MS_KV_NONE };

struct ms_kv_owner {
    enum ms_kv_kind kind;
    uint64_t id; /* of the driver, or uid of the worker */
};

struct ms_kv_value {
    size_t refs;
    size_t len;
    uint32_t codec;
    uint8_t data[];
};

struct ms_kv_entry {
    char *key;
    struct ms_kv_value *value; /* in a change NULL: deleted */
    struct ms_kv_owner owner;
    uint64_t revision;
};

struct ms_kv {
    uint64_t id;                  /* of this store, never 0 */
    uint64_t revision;            /* of the last change; 0: there was none */
    struct ms_kv_entry **entries; /* by key */
    size_t count, room;
    size_t bytes; /* keys and values of the entries */
    /* the last changes, oldest first, as a ring; NULL until there is one */
    struct ms_kv_entry *changes;
    size_t change_first, change_count;
    size_t change_bytes;
};

void ms_kv_init(struct ms_kv *kv, uint64_t id);
void ms_kv_finish(struct ms_kv *kv);

/* What is put; borrowed. */
struct ms_kv_put {
    const char *key;
    const uint8_t *value;
    size_t len;
    uint32_t codec;
    struct ms_kv_owner owner;
    bool only_if_absent;
};

/* 1: stored; 0: there is one, and only_if_absent was asked. -EINVAL: the key; -E2BIG: the
 * value; -ENOSPC: the store is full; -ENOMEM. */
int ms_kv_put(struct ms_kv *kv, const struct ms_kv_put *put, struct ms_error *err);
/* The entry is a whole number in decimal digits: *value is what it is when `amount` was added,
 * 0 before if there is none. Owned by nobody, as it was. 1; -EINVAL: it is no such number;
 * -ERANGE: it would not fit; and as ms_kv_put. */
int ms_kv_add(struct ms_kv *kv,
              const char *key,
              int64_t amount,
              int64_t *value,
              struct ms_error *err);
/* Put it if the entry is `expected` (codec 0); if that is empty also if there is none. 1: it
 * was put; 0: the entry is another one, or there is none; and as ms_kv_put. */
int ms_kv_compare_set(struct ms_kv *kv,
                      const struct ms_kv_put *put,
                      const uint8_t *expected,
                      size_t len,
                      struct ms_error *err);
/* All below the prefix goes; how many. */
size_t ms_kv_delete_below(struct ms_kv *kv, const char *prefix);

/* ---- from what was kept ---- */

/* An entry of a store that is made again, with the revision that it had. As ms_kv_put. */
int ms_kv_restore(struct ms_kv *kv, const struct ms_kv_put *put, uint64_t revision);
/* That was all, of the store with this id. No revision is given twice; the changes of before
 * are not known, so that all who watch are given all that there is. */
void ms_kv_restored(struct ms_kv *kv, uint64_t id);

/* NULL: there is none. Borrowed until the next change. */
const struct ms_kv_entry *ms_kv_find(const struct ms_kv *kv, const char *key);
/* 1, or 0: there is none. */
int ms_kv_delete(struct ms_kv *kv, const char *key);
/* All that belongs to it goes; how many. */
size_t ms_kv_drop(struct ms_kv *kv, struct ms_kv_owner owner);

/* Those that begin with `prefix`: how many, and the index of the first. */
size_t ms_kv_range(const struct ms_kv *kv, const char *prefix, size_t *first);

/* The change with the lowest revision above `after` whose key begins with `prefix`; NULL:
 * none. */
const struct ms_kv_entry *
ms_kv_next_change(const struct ms_kv *kv, const char *prefix, uint64_t after);
/* Are all changes after this revision still known? */
bool ms_kv_has_changes(const struct ms_kv *kv, uint64_t after);

int ms_kv_check_key(const char *key, struct ms_error *err);

#endif
