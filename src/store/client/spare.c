/* spare.c - blocks of memory that are used again */
#include "store/client/spare.h"

#include "store/pages.h"
#include "store/server/space.h"

#include <assert.h>
#include <string.h>
#include <sys/mman.h>

void ms_spare_init(struct ms_spare *s, uint64_t limit)
{
    *s = (struct ms_spare){.limit = limit};
}

static struct ms_spare_block remove_at(struct ms_spare *s, size_t i)
{
    struct ms_spare_block block = s->blocks[i];

    s->count--;
    s->bytes -= block.len;
    memmove(&s->blocks[i], &s->blocks[i + 1], (s->count - i) * sizeof block);
    return block;
}

static void drop_oldest(struct ms_spare *s)
{
    struct ms_spare_block block = remove_at(s, 0);

    munmap(block.at, block.len);
}

void ms_spare_finish(struct ms_spare *s)
{
    while (s->count > 0)
        drop_oldest(s);
}

/* 0: no memory has that length. */
static size_t in_blocks(size_t len)
{
    if (len > SIZE_MAX - MS_SPACE_BLOCK)
        return 0;
    return (len + MS_SPACE_BLOCK - 1) / MS_SPACE_BLOCK * MS_SPACE_BLOCK;
}

struct ms_spare_block ms_spare_take(struct ms_spare *s, size_t len)
{
    size_t want = in_blocks(len), best = SIZE_MAX;

    for (size_t i = 0; i < s->count; i++)
        if (s->blocks[i].len >= want && s->blocks[i].len - want <= want / 3 &&
            (best == SIZE_MAX || s->blocks[i].len <= s->blocks[best].len))
            best = i; /* of equal ones the last: it is the warmest */
    return best == SIZE_MAX ? (struct ms_spare_block){0} : remove_at(s, best);
}

void ms_spare_give(struct ms_spare *s, struct ms_spare_block block)
{
    assert(block.at && block.len % MS_SPACE_BLOCK == 0);
    if (block.len > s->limit) {
        munmap(block.at, block.len);
        return;
    }
    while (s->count == MS_SPARE_COUNT_MAX || s->bytes > s->limit - block.len)
        drop_oldest(s);
    madvise(block.at, block.len, MADV_FREE);
    s->blocks[s->count++] = block;
    s->bytes += block.len;
}

struct ms_spare_block ms_spare_make(size_t len)
{
    size_t want = in_blocks(len);

    return (struct ms_spare_block){.at = want ? ms_pages_make(want) : NULL,
                                   .len = want};
}
