/* pages.c - maps of the arena, and huge pages behind them */
#include "store/pages.h"

#include "store/server/space.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* Address space alone: `size` bytes from a multiple of a block on, and `phase` more. */
static uint8_t *reserve(uint64_t size, uint64_t phase)
{
    uint8_t *room, *at;

    if (size > SIZE_MAX - MS_SPACE_BLOCK)
        return NULL;
    room = mmap(NULL,
                size + MS_SPACE_BLOCK,
                PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                -1,
                0);
    if (room == MAP_FAILED)
        return NULL;
    at = room +
         (MS_SPACE_BLOCK + phase - (uintptr_t)room % MS_SPACE_BLOCK) % MS_SPACE_BLOCK;
    if (at > room)
        munmap(room, (size_t)(at - room));
    munmap(at + size, (size_t)(room + MS_SPACE_BLOCK - at));
    return at;
}

/* Where huge pages of the file fit: it lies in the map as it does in the file. */
static uint8_t *map(int fd, uint64_t at, uint64_t size, int prot, int flags)
{
    uint8_t *room = reserve(size, at % MS_SPACE_BLOCK);

    if (!room)
        return NULL;
    flags |= MAP_NORESERVE | MAP_FIXED;
    if (mmap(room, size, prot, flags, fd, (off_t)at) == MAP_FAILED) {
        munmap(room, size);
        return NULL;
    }
    return room;
}

void *ms_pages_map(int fd, uint64_t size, int prot)
{
    uint8_t *at = map(fd, 0, size, prot, MAP_SHARED);

    if (!at)
        return NULL;
    madvise(at, size, MADV_HUGEPAGE);
    madvise(at, size, MADV_DONTDUMP);
    return at;
}

void *ms_pages_map_private(int fd, uint64_t at, uint64_t len)
{
    void *own;

    if (len >= MS_SPACE_BLOCK)
        return map(fd, at, len, PROT_READ | PROT_WRITE, MAP_PRIVATE);
    own = mmap(
        NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd, (off_t)at);
    return own == MAP_FAILED ? NULL : own;
}

/* One page of each block is made first: what is empty cannot be joined. */
static bool commit_huge(uint8_t *at, uint64_t len)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    for (uint64_t block = 0; block < len; block += MS_SPACE_BLOCK)
        if (madvise(at + block, page, MADV_POPULATE_WRITE) < 0)
            return false;
    return madvise(at, len, MADV_COLLAPSE) == 0;
}

int ms_pages_commit(uint8_t *at, uint64_t len)
{
    if (commit_huge(at, len))
        return 0;
    return madvise(at, len, MADV_POPULATE_WRITE) < 0 ? -errno : 0;
}

void *ms_pages_make(uint64_t size)
{
    uint8_t *at = reserve(size, 0);

    if (!at)
        return NULL;
    if (mprotect(at, size, PROT_READ | PROT_WRITE) < 0) {
        munmap(at, size);
        return NULL;
    }
    madvise(at, size, MADV_HUGEPAGE);
    madvise(at, size, MADV_POPULATE_WRITE); /* else fault by fault */
    return at;
}
