/* shards.c - which shard is taken next, and what becomes of those that were taken */
#include "job/shards.h"
#include "base/buf.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- the data set ---------------------------------------------------------------- */

int ms_shard_queue_init(struct ms_shard_queue *s,
                        const struct ms_shards_spec *spec,
                        struct ms_error *err)
{
    uint64_t per_epoch;

    if (spec->size < 1 || spec->shard < 1 || spec->epochs < 1)
        return ms_error_set(
            err, -EINVAL, "size, shard and epochs of a data set are at least 1");
    if (spec->failures_max < 1 || spec->deaths_max < 1)
        return ms_error_set(
            err,
            -EINVAL,
            "a shard is tried at least once: failures and deaths are 1 or more");
    per_epoch = (spec->size - 1) / spec->shard + 1;
    if (spec->epochs > INT64_MAX / per_epoch)
        return ms_error_set(err,
                            -EINVAL,
                            "%" PRIu64 " epochs of %" PRIu64 " shards are too many",
                            spec->epochs,
                            per_epoch);
    *s = (struct ms_shard_queue){
        .spec = *spec, .per_epoch = per_epoch, .total = per_epoch * spec->epochs};
    return 0;
}

static void finish_list(struct ms_shard_list *l)
{
    for (size_t i = 0; i < l->count; i++)
        free(l->at[i].reason);
    free(l->at);
    *l = (struct ms_shard_list){0};
}

void ms_shard_queue_finish(struct ms_shard_queue *s)
{
    finish_list(&s->todo);
    finish_list(&s->doing);
    finish_list(&s->failed);
    free(s->ended);
    s->ended = NULL;
    s->ended_count = s->ended_room = 0;
}

bool ms_shard_queue_spec_equal(const struct ms_shards_spec *a,
                               const struct ms_shards_spec *b)
{
    return a->size == b->size && a->shard == b->shard && a->epochs == b->epochs &&
           a->shuffle == b->shuffle && a->seed == b->seed &&
           a->failures_max == b->failures_max && a->deaths_max == b->deaths_max;
}

/* ---- the order of an epoch ------------------------------------------------------- */

static uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* A permutation of 0 .. 4^bits - 1: a Feistel network of four rounds. */
static uint64_t permute_power(uint64_t x, unsigned bits, uint64_t key)
{
    uint64_t mask = (UINT64_C(1) << bits) - 1, left = x >> bits, right = x & mask;

    for (unsigned round = 0; round < 4; round++) {
        uint64_t next = left ^ (mix(right ^ mix(key + round)) & mask);

        left = right;
        right = next;
    }
    return left << bits | right;
}

/* A permutation of 0 .. n - 1: numbers that fall outside are permuted again. */
static uint64_t permute(uint64_t x, uint64_t n, uint64_t key)
{
    unsigned bits = 1;

    while (bits < 32 && (UINT64_C(1) << (2 * bits)) < n)
        bits++;
    do
        x = permute_power(x, bits, key);
    while (x >= n);
    return x;
}

struct ms_shard_range ms_shard_queue_range(const struct ms_shard_queue *s,
                                           uint64_t position)
{
    uint64_t epoch = position / s->per_epoch, index = position % s->per_epoch;
    uint64_t start, left;

    if (s->spec.shuffle)
        index = permute(index, s->per_epoch, mix(s->spec.seed) ^ mix(epoch));
    start = index * s->spec.shard;
    left = s->spec.size - start;
    return (struct ms_shard_range){
        .epoch = epoch,
        .index = index,
        .start = start,
        .end = start + (left < s->spec.shard ? left : s->spec.shard),
    };
}

/* ---- lists ----------------------------------------------------------------------- */

/* Room for one more in every list, so that a shard can always be moved. */
static int reserve(struct ms_shard_queue *s)
{
    size_t all = s->todo.count + s->doing.count + s->failed.count + 1;
    struct ms_shard_list *lists[] = {&s->todo, &s->doing, &s->failed};

    if (all > MS_SHARDS_OPEN_MAX)
        return -ENOSPC;
    for (size_t i = 0; i < 3; i++)
        if (ms_array_reserve(&lists[i]->at, &lists[i]->room, all, sizeof *s->todo.at) <
            0)
            return -ENOMEM;
    return 0;
}

static void push(struct ms_shard_list *l, struct ms_shard shard)
{
    assert(l->count < l->room);
    l->at[l->count++] = shard;
}

static struct ms_shard take_at(struct ms_shard_list *l, size_t i)
{
    struct ms_shard shard = l->at[i];

    memmove(l->at + i, l->at + i + 1, (l->count - i - 1) * sizeof shard);
    l->count--;
    return shard;
}

/* In `doing`; NULL: it is not this owner's. */
static struct ms_shard *
find_out(const struct ms_shard_queue *s, uint64_t lease, uint64_t owner)
{
    size_t low = 0, high = s->doing.count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (s->doing.at[middle].lease < lease)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == s->doing.count || s->doing.at[low].lease != lease ||
        s->doing.at[low].owner != owner)
        return NULL;
    return &s->doing.at[low];
}

/* ---- what happens to shards ------------------------------------------------------ */

int ms_shard_queue_take(struct ms_shard_queue *s,
                        uint64_t owner,
                        struct ms_shard_range *out)
{
    struct ms_shard shard = {0};
    int rc;

    if (s->todo.count > 0) {
        shard = s->todo.at[--s->todo.count]; /* it has room in each list already */
    } else {
        if (s->next >= s->total)
            return 0;
        rc = reserve(s);
        if (rc < 0)
            return rc;
        shard.position = s->next++;
    }
    shard.lease = ++s->last_lease;
    shard.owner = owner;
    push(&s->doing, shard);
    *out = ms_shard_queue_range(s, shard.position);
    out->lease = shard.lease;
    out->attempt = shard.failures + shard.deaths;
    return 1;
}

int ms_shard_queue_done(struct ms_shard_queue *s, uint64_t lease, uint64_t owner)
{
    struct ms_shard *found = find_out(s, lease, owner);

    if (!found)
        return 0;
    free(take_at(&s->doing, (size_t)(found - s->doing.at)).reason);
    return 1;
}

/* 1: it comes back; 2: it was set aside. */
static int put_back(struct ms_shard_queue *s, size_t at)
{
    struct ms_shard shard = take_at(&s->doing, at);
    bool is_lost =
        shard.failures >= s->spec.failures_max || shard.deaths >= s->spec.deaths_max;

    shard.lease = shard.owner = 0;
    shard.taken = (struct ms_shard_request){0};
    shard.is_told = false;
    push(is_lost ? &s->failed : &s->todo, shard);
    return is_lost ? 2 : 1;
}

/* Without memory the reason before stays. */
static void set_reason(struct ms_shard *shard, const char *reason)
{
    size_t len = strnlen(reason, MS_SHARDS_REASON_MAX);
    char *copy = calloc(1, len + 1);

    if (!copy)
        return;
    memcpy(copy, reason, len);
    free(shard->reason);
    shard->reason = copy;
}

int ms_shard_queue_fail(struct ms_shard_queue *s,
                        uint64_t lease,
                        uint64_t owner,
                        const char *reason)
{
    struct ms_shard *found = find_out(s, lease, owner);

    if (!found)
        return 0;
    found->failures++;
    set_reason(found, reason);
    return put_back(s, (size_t)(found - s->doing.at));
}

int ms_shard_queue_give_back(struct ms_shard_queue *s, uint64_t lease, uint64_t owner)
{
    struct ms_shard *found = find_out(s, lease, owner);

    return found ? put_back(s, (size_t)(found - s->doing.at)) : 0;
}

size_t ms_shard_queue_drop(struct ms_shard_queue *s, uint64_t owner)
{
    size_t dropped = 0;

    for (size_t i = s->doing.count; i-- > 0;)
        if (s->doing.at[i].owner == owner) {
            s->doing.at[i].deaths++;
            set_reason(&s->doing.at[i], "the worker that had it has died");
            put_back(s, i);
            dropped++;
        }
    return dropped;
}

size_t ms_shard_queue_retry(struct ms_shard_queue *s)
{
    size_t count = s->failed.count;

    while (s->failed.count > 0) {
        struct ms_shard shard = s->failed.at[--s->failed.count];

        shard.failures = shard.deaths = 0;
        push(&s->todo, shard);
    }
    return count;
}

/* ---- how far it is --------------------------------------------------------------- */

uint64_t ms_shard_queue_done_count(const struct ms_shard_queue *s)
{
    return s->next - s->todo.count - s->doing.count - s->failed.count;
}

enum ms_shards_state ms_shard_queue_state(const struct ms_shard_queue *s)
{
    if (s->next < s->total || s->todo.count > 0 || s->doing.count > 0)
        return MS_SHARDS_OPEN;
    return s->failed.count > 0 ? MS_SHARDS_FAILED : MS_SHARDS_COMPLETE;
}
