/* space.c - ranges of the arena: given out, given back, with memory or without */
#include "store/server/space.h"

#include "base/list.h"
#include "base/map.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

enum { TRIES_MAX = 32 };

/* A piece of the arena, free or given out; neighbours in the order of addresses. */
struct extent {
    uint64_t at, len;
    bool is_free;
    struct ms_list order;
    struct ms_list class; /* free: of its size */
};

static unsigned class_of(uint64_t len)
{
    unsigned top = 63 - (unsigned)__builtin_clzll(len);

    if (top < MS_SPACE_CLASS_SHIFT)
        return (unsigned)len;
    return (top << MS_SPACE_CLASS_SHIFT) +
           (unsigned)((len >> (top - MS_SPACE_CLASS_SHIFT)) &
                      ((1u << MS_SPACE_CLASS_SHIFT) - 1));
}

static void class_add(struct ms_space *s, struct extent *e)
{
    unsigned c = class_of(e->len);

    e->is_free = true;
    ms_list_add_head(&s->classes[c], &e->class);
    s->filled[c / 64] |= UINT64_C(1) << (c % 64);
}

static void class_remove(struct ms_space *s, struct extent *e)
{
    unsigned c = class_of(e->len);

    e->is_free = false;
    ms_list_remove(&e->class);
    if (ms_list_is_empty(&s->classes[c]))
        s->filled[c / 64] &= ~(UINT64_C(1) << (c % 64));
}

static struct extent *extent_create(uint64_t at, uint64_t len)
{
    struct extent *e = calloc(1, sizeof *e);

    if (!e)
        return NULL;
    e->at = at;
    e->len = len;
    ms_list_init(&e->order);
    ms_list_init(&e->class);
    return e;
}

static uint64_t round_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

struct ms_space *ms_space_create(uint64_t size, uint64_t limit)
{
    struct ms_space *s = calloc(1, sizeof *s);
    struct extent *all;
    size_t blocks;

    if (!s)
        return NULL;
    s->size = round_up(size ? size : 1, MS_SPACE_BLOCK);
    s->limit = limit;
    blocks = (size_t)(s->size / MS_SPACE_BLOCK);
    ms_list_init(&s->order);
    for (unsigned c = 0; c < MS_SPACE_CLASSES; c++)
        ms_list_init(&s->classes[c]);
    ms_map_init(&s->given);
    s->users = calloc(blocks, sizeof *s->users);
    s->has_memory = calloc(blocks, sizeof *s->has_memory);
    all = extent_create(0, s->size);
    if (!s->users || !s->has_memory || !all) {
        free(all);
        ms_space_destroy(s);
        return NULL;
    }
    ms_list_add_tail(&s->order, &all->order);
    class_add(s, all);
    return s;
}

void ms_space_destroy(struct ms_space *s)
{
    if (!s)
        return;
    ms_list_each (e, &s->order, struct extent, order)
        free(e);
    ms_map_finish(&s->given);
    free(s->users);
    free(s->has_memory);
    free(s);
}

/* ---- giving out ------------------------------------------------------------------ */

/* The first range of a class from `c` on. */
static struct extent *first_from(const struct ms_space *s, unsigned c)
{
    for (unsigned word = c / 64; word < MS_SPACE_CLASSES / 64; word++) {
        uint64_t bits = s->filled[word];

        if (word == c / 64)
            bits &= ~UINT64_C(0) << (c % 64);
        if (bits) {
            unsigned found = word * 64 + (unsigned)__builtin_ctzll(bits);

            return ms_list_first(&s->classes[found], struct extent, class);
        }
    }
    return NULL;
}

static struct extent *find_free(const struct ms_space *s, uint64_t len)
{
    unsigned c = class_of(len), tries = 0;

    /* those of its own class may fit, and what was freed last stands first */
    ms_list_each (e, &s->classes[c], struct extent, class) {
        if (e->len >= len)
            return e;
        if (++tries == TRIES_MAX)
            break;
    }
    return first_from(s, c + 1);
}

static void count_users(struct ms_space *s, const struct extent *e, int by)
{
    uint64_t last = (e->at + e->len - 1) / MS_SPACE_BLOCK;

    for (uint64_t b = e->at / MS_SPACE_BLOCK; b <= last; b++) {
        assert(by > 0 || s->users[b] > 0);
        s->users[b] += (uint32_t)by;
    }
}

/* Small ranges come from the front of a free one, large ones begin at a block: so large
 * ones give back whole blocks. */
static uint64_t begin_of(const struct extent *e, uint64_t len)
{
    uint64_t at = round_up(e->at, MS_SPACE_BLOCK);

    return len >= MS_SPACE_BLOCK && at + len <= e->at + e->len ? at : e->at;
}

/* Cut `e`, which is in no class, at `at`; the second half is returned, or NULL. */
static struct extent *cut(struct extent *e, uint64_t at)
{
    struct extent *rest = extent_create(at, e->at + e->len - at);

    if (!rest)
        return NULL;
    e->len = at - e->at;
    ms_list_add_head(&e->order, &rest->order);
    return rest;
}

/* Join `e` with the one behind it, if that is free. */
static void join_next(struct ms_space *s, struct extent *e)
{
    struct extent *next = ms_list_entry(e->order.next, struct extent, order);

    if (e->order.next == &s->order || !next->is_free)
        return;
    class_remove(s, next);
    e->len += next->len;
    ms_list_remove_next(&e->order);
    free(next);
}

/* `e`, which is in no class, is free from now on. */
static void give_back(struct ms_space *s, struct extent *e)
{
    struct extent *before = ms_list_entry(e->order.prev, struct extent, order);

    join_next(s, e);
    if (e->order.prev != &s->order && before->is_free) {
        class_remove(s, before);
        before->len += e->len;
        ms_list_remove(&e->order);
        free(e);
        e = before;
    }
    class_add(s, e);
}

/* Exactly `len` bytes of `e`, which is in no class; the rest is free. NULL: out of memory,
 * and all of it is free. */
static struct extent *carve(struct ms_space *s, struct extent *e, uint64_t len)
{
    uint64_t begin = begin_of(e, len);
    struct extent *rest;

    if (begin > e->at) {
        struct extent *front = e;

        e = cut(front, begin);
        class_add(s, front);
        if (!e)
            return NULL;
    }
    if (e->len == len)
        return e;
    rest = cut(e, e->at + len);
    if (!rest) {
        give_back(s, e);
        return NULL;
    }
    class_add(s, rest);
    return e;
}

int ms_space_alloc(struct ms_space *s, uint64_t len, uint64_t *at)
{
    struct extent *e;

    if (len > s->limit || len > s->size)
        return -ENOSPC;
    len = round_up(len ? len : 1, MS_SPACE_ALIGN);
    if (s->used + len > s->limit)
        return -ENOSPC;
    e = find_free(s, len);
    if (!e)
        return -ENOSPC;
    class_remove(s, e);
    e = carve(s, e, len);
    if (!e)
        return -ENOMEM;
    if (ms_map_add(&s->given, e->at + 1, e) < 0) {
        give_back(s, e);
        return -ENOMEM;
    }
    count_users(s, e, 1);
    s->used += e->len;
    *at = e->at;
    return 0;
}

void ms_space_free(struct ms_space *s, uint64_t at)
{
    struct extent *e = ms_map_remove(&s->given, at + 1);

    assert(e);
    count_users(s, e, -1);
    s->used -= e->len;
    give_back(s, e);
}

/* ---- memory ---------------------------------------------------------------------- */

/* The first run in [from, to) of blocks for which `wanted` holds. */
static bool find_run(const struct ms_space *s,
                     uint64_t from,
                     uint64_t to,
                     bool (*wanted)(const struct ms_space *s, uint64_t block),
                     struct ms_block_run *run)
{
    uint64_t first = from, end;

    while (first < to && !wanted(s, first))
        first++;
    if (first >= to)
        return false;
    end = first + 1;
    while (end < to && wanted(s, end))
        end++;
    *run =
        (struct ms_block_run){first * MS_SPACE_BLOCK, (end - first) * MS_SPACE_BLOCK};
    return true;
}

static bool has_none(const struct ms_space *s, uint64_t block)
{
    return !s->has_memory[block];
}

static bool is_idle(const struct ms_space *s, uint64_t block)
{
    return s->has_memory[block] && !s->users[block];
}

bool ms_space_missing(const struct ms_space *s,
                      uint64_t at,
                      uint64_t len,
                      struct ms_block_run *run)
{
    assert(at + len <= s->size);
    return find_run(s,
                    at / MS_SPACE_BLOCK,
                    (at + len + MS_SPACE_BLOCK - 1) / MS_SPACE_BLOCK,
                    has_none,
                    run);
}

bool ms_space_idle(const struct ms_space *s, uint64_t from, struct ms_block_run *run)
{
    return find_run(s, from / MS_SPACE_BLOCK, s->size / MS_SPACE_BLOCK, is_idle, run);
}

void ms_space_set_memory(struct ms_space *s, const struct ms_block_run *run, bool on)
{
    uint64_t first = run->at / MS_SPACE_BLOCK, count = run->len / MS_SPACE_BLOCK;

    for (uint64_t b = first; b < first + count; b++) {
        if (s->has_memory[b] == on)
            continue;
        s->has_memory[b] = on;
        s->committed += on ? MS_SPACE_BLOCK : -MS_SPACE_BLOCK;
    }
}

/* ---- for tests ------------------------------------------------------------------- */

bool ms_space_check(const struct ms_space *s)
{
    uint64_t at = 0, used = 0;
    bool was_free = false;
    size_t given = 0;

    ms_list_each (e, &s->order, struct extent, order) {
        if (e->at != at || e->len == 0 || (e->is_free && was_free))
            return false; /* a gap, an overlap, or two that should be one */
        if (!e->is_free) {
            if (ms_map_find(&s->given, e->at + 1) != e)
                return false;
            used += e->len;
            given++;
        }
        was_free = e->is_free;
        at += e->len;
    }
    return at == s->size && used == s->used && given == s->given.count;
}
