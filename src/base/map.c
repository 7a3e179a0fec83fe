/* map.c - from a 64-bit key to a pointer */
#include "base/map.h"

#include <errno.h>
#include <stdlib.h>

enum { CAPACITY_MIN = 16 };

void ms_map_init(struct ms_map *m)
{
    *m = (struct ms_map){0};
}

void ms_map_finish(struct ms_map *m)
{
    free(m->slots);
    *m = (struct ms_map){0};
}

static size_t home(const struct ms_map *m, uint64_t key)
{
    return (size_t)((key * UINT64_C(0x9E3779B97F4A7C15)) >> 20) & (m->capacity - 1);
}

/* The slot that holds the key, or the empty one where it would go. */
static size_t probe(const struct ms_map *m, uint64_t key)
{
    size_t i = home(m, key);

    while (m->slots[i].key && m->slots[i].key != key)
        i = (i + 1) & (m->capacity - 1);
    return i;
}

static int grow(struct ms_map *m)
{
    struct ms_map bigger = {.capacity = m->capacity ? m->capacity * 2 : CAPACITY_MIN,
                            .count = m->count};

    bigger.slots = calloc(bigger.capacity, sizeof *bigger.slots);
    if (!bigger.slots)
        return -ENOMEM;
    for (size_t i = 0; i < m->capacity; i++)
        if (m->slots[i].key)
            bigger.slots[probe(&bigger, m->slots[i].key)] = m->slots[i];
    free(m->slots);
    *m = bigger;
    return 0;
}

void *ms_map_find(const struct ms_map *m, uint64_t key)
{
    size_t i;

    if (!m->count || !key)
        return NULL;
    i = probe(m, key);
    return m->slots[i].key ? m->slots[i].value : NULL;
}

int ms_map_add(struct ms_map *m, uint64_t key, void *value)
{
    size_t i;

    if (!key)
        return -EINVAL;
    if ((m->count + 1) * 4 > m->capacity * 3) {
        int rc = grow(m);

        if (rc < 0)
            return rc;
    }
    i = probe(m, key);
    if (m->slots[i].key)
        return -EEXIST;
    m->slots[i] = (struct ms_map_slot){key, value};
    m->count++;
    return 0;
}

/* Close the gap at `hole`: move back every later entry of the run whose home is not
 * between the hole and itself. */
static void shift_back(struct ms_map *m, size_t hole)
{
    size_t mask = m->capacity - 1;

    for (size_t i = (hole + 1) & mask; m->slots[i].key; i = (i + 1) & mask) {
        size_t from_home = (i - home(m, m->slots[i].key)) & mask;

        if (from_home >= ((i - hole) & mask)) {
            m->slots[hole] = m->slots[i];
            hole = i;
        }
    }
    m->slots[hole] = (struct ms_map_slot){0};
}

void *ms_map_remove(struct ms_map *m, uint64_t key)
{
    size_t i;
    void *value;

    if (!m->count || !key)
        return NULL;
    i = probe(m, key);
    if (!m->slots[i].key)
        return NULL;
    value = m->slots[i].value;
    shift_back(m, i);
    m->count--;
    return value;
}

void *ms_map_next(const struct ms_map *m, size_t *at)
{
    while (*at < m->capacity) {
        const struct ms_map_slot *s = &m->slots[(*at)++];

        if (s->key)
            return s->value;
    }
    return NULL;
}
