/* map.h - from a 64-bit key to a pointer
 *
 * Open addressing with linear probing and backward-shift deletion. Key 0 is not allowed.
 * The map owns its table, never the values.
 */
#ifndef MS_BASE_MAP_H
#define MS_BASE_MAP_H

#include <stddef.h>
#include <stdint.h>

struct ms_map_slot {
    uint64_t key; /* 0: empty */
    void *value;
};

struct ms_map {
    struct ms_map_slot *slots;
    size_t capacity; /* 0 or a power of two */
    size_t count;
};

void ms_map_init(struct ms_map *m);
void ms_map_finish(struct ms_map *m);

/* The value, or NULL if the key is absent. */
void *ms_map_find(const struct ms_map *m, uint64_t key);

/* 0, -EEXIST if the key is there, -EINVAL for key 0, -ENOMEM. */
int ms_map_add(struct ms_map *m, uint64_t key, void *value);

/* Remove and return the value, or NULL. */
void *ms_map_remove(struct ms_map *m, uint64_t key);

/* Walk in no particular order: start with *at = 0; NULL at the end. Adding or removing
 * while walking is not allowed. */
void *ms_map_next(const struct ms_map *m, size_t *at);

#endif
