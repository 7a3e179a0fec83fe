/* private_map.c - private, writable maps of stored objects, and whether they were written */
#include "store/client/private_map.h"

#include "base/cleanup.h"
#include "base/limits.h"
#include "store/client/state.h"
#include "store/pages.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Of an entry of /proc/self/pagemap: one for each page. */
#define ENTRY_PRESENT (UINT64_C(1) << 63)
#define ENTRY_SWAPPED (UINT64_C(1) << 62)
#define ENTRY_SHARED  (UINT64_C(1) << 61) /* of a file: not a copy of our own */
enum { ENTRIES = 512 };

/* ---- life ------------------------------------------------------------------------ */

static int map_part(struct ms_private_map *o)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t at = o->held->at + o->offset, first = at / page * page;

    o->map_len = (size_t)((at + o->len + page - 1) / page * page - first);
    o->map = ms_pages_map_private(o->held->client->arena_fd, first, o->map_len);
    if (!o->map)
        return -ENOMEM;
    o->bytes = o->map + (at - first);
    return 0;
}

/* 0: there may be no more of them. */
static int add(struct ms_store_client *c, struct ms_private_map *o)
{
    bool has_room;

    pthread_mutex_lock(&c->lock);
    has_room = c->private_map_count < MS_STORE_PRIVATE_MAX && c->arena_fd >= 0;
    if (has_room) {
        ms_list_add_head(&c->private_maps, &o->link);
        c->private_map_count++;
    }
    pthread_mutex_unlock(&c->lock);
    return has_room;
}

static void remove_from(struct ms_store_client *c, struct ms_private_map *o)
{
    pthread_mutex_lock(&c->lock);
    ms_list_remove(&o->link);
    c->private_map_count--;
    pthread_mutex_unlock(&c->lock);
}

struct ms_private_map *
ms_private_map_create(struct ms_held *h, uint64_t offset, uint64_t len)
{
    struct ms_private_map *o;

    if (!h->read || !len || offset > h->len || len > h->len - offset)
        return NULL;
    o = calloc(1, sizeof *o);
    if (!o)
        return NULL;
    o->held = h;
    o->offset = offset;
    o->len = len;
    if (map_part(o) < 0 || !add(h->client, o)) {
        if (o->map)
            munmap(o->map, o->map_len);
        free(o);
        return NULL;
    }
    ms_held_ref(h);
    return o;
}

void ms_private_map_destroy(struct ms_private_map *o)
{
    if (!o)
        return;
    remove_from(o->held->client, o);
    munmap(o->map, o->map_len);
    ms_held_unref(o->held);
    free(o);
}

/* ---- finding --------------------------------------------------------------------- */

static bool is_copy(uint64_t entry)
{
    return entry & (ENTRY_PRESENT | ENTRY_SWAPPED) && !(entry & ENTRY_SHARED);
}

/* Whether one of these pages is a copy of ours; also if that cannot be told. */
static bool was_written(const uint8_t *at, size_t len)
{
    MS_CLEANUP(ms_cleanup_fd) int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = (uintptr_t)at / page;
    uintptr_t end = ((uintptr_t)at + len + page - 1) / page;
    uint64_t entries[ENTRIES];

    while (fd >= 0 && first < end) {
        size_t want = end - first < ENTRIES ? end - first : ENTRIES;
        off_t from = (off_t)(first * sizeof *entries);
        ssize_t got = pread(fd, entries, want * sizeof *entries, from);

        if (got != (ssize_t)(want * sizeof *entries))
            return true;
        for (size_t i = 0; i < want; i++)
            if (is_copy(entries[i]))
                return true;
        first += want;
    }
    return fd < 0;
}

/* Locked. The one that [at, at + len) lies in, or NULL. */
static const struct ms_private_map *
find_map(const struct ms_store_client *c, const uint8_t *at, size_t len)
{
    ms_list_each (o, &c->private_maps, struct ms_private_map, link)
        if (at >= o->bytes && len <= o->len &&
            (uint64_t)(at - o->bytes) <= o->len - len)
            return o;
    return NULL;
}

struct ms_held *ms_private_map_find(struct ms_store_client *c,
                                    const uint8_t *at,
                                    size_t len,
                                    uint64_t *offset)
{
    const struct ms_private_map *o;
    struct ms_held *h = NULL;
    uint64_t found = 0;

    pthread_mutex_lock(&c->lock);
    o = c->private_map_count ? find_map(c, at, len) : NULL;
    if (o && o->held->counts) {
        h = ms_held_ref_locked(o->held);
        found = o->offset + (uint64_t)(at - o->bytes);
    }
    pthread_mutex_unlock(&c->lock);
    if (!h)
        return NULL;
    if (was_written(at, len)) {
        ms_held_unref(h);
        return NULL;
    }
    *offset = found;
    return h;
}
