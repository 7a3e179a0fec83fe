/* rendezvous.c - who waits, when a round completes, and which rank each member has */
#include "job/rendezvous.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/name.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- limits ---------------------------------------------------------------------- */

int ms_rendezvous_check(const struct ms_rendezvous_limits *l, struct ms_error *err)
{
    if (l->min < 1 || l->max < l->min)
        return ms_error_set(err,
                            -EINVAL,
                            "a world of %u to %u members: the least is 1, and not more "
                            "than the most",
                            l->min,
                            l->max);
    if (l->max > MS_RENDEZVOUS_MEMBERS_MAX)
        return ms_error_set(err,
                            -EINVAL,
                            "a world of up to %u members; it can have %u",
                            l->max,
                            MS_RENDEZVOUS_MEMBERS_MAX);
    if (l->unit < 1 || l->min % l->unit || l->max % l->unit)
        return ms_error_set(err,
                            -EINVAL,
                            "a world of %u to %u members in units of %u: min and max "
                            "must be multiples of the unit",
                            l->min,
                            l->max,
                            l->unit);
    if (l->last_call_ns < 0 || l->join_ns <= 0 || l->join_ns > MS_RENDEZVOUS_JOIN_NS)
        return ms_error_set(err,
                            -EINVAL,
                            "the time to join is above 0 and at most %d s, and the "
                            "last call is not below 0",
                            (int)(MS_RENDEZVOUS_JOIN_NS / MS_NS_PER_S));
    return 0;
}

void ms_rendezvous_init(struct ms_rendezvous *r,
                        const struct ms_rendezvous_limits *limits)
{
    *r = (struct ms_rendezvous){.limits = *limits};
}

/* ---- members --------------------------------------------------------------------- */

static void member_finish(struct ms_rendezvous_member *m)
{
    free(m->key);
    free(m->data);
    *m = (struct ms_rendezvous_member){0};
}

static void finish_all(struct ms_rendezvous_member *m, size_t count)
{
    for (size_t i = 0; i < count; i++)
        member_finish(&m[i]);
}

void ms_rendezvous_finish(struct ms_rendezvous *r)
{
    finish_all(r->world, r->world_count);
    finish_all(r->waiting, r->waiting_count);
    free(r->world);
    free(r->waiting);
    *r = (struct ms_rendezvous){0};
}

static struct ms_rendezvous_member *
find(struct ms_rendezvous_member *all, size_t count, const char *key)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(all[i].key, key) == 0)
            return &all[i];
    return NULL;
}

static struct ms_rendezvous_member *find_waiting(const struct ms_rendezvous *r,
                                                 const char *key)
{
    return find(r->waiting, r->waiting_count, key);
}

static struct ms_rendezvous_member *find_in_world(const struct ms_rendezvous *r,
                                                  const char *key)
{
    return find(r->world, r->world_count, key);
}

bool ms_rendezvous_waits(const struct ms_rendezvous *r, const char *key, uint64_t owner)
{
    const struct ms_rendezvous_member *m = find_waiting(r, key);

    return m && m->owner == owner;
}

int64_t
ms_rendezvous_rank(const struct ms_rendezvous *r, const char *key, uint64_t owner)
{
    const struct ms_rendezvous_member *m = find_in_world(r, key);

    return m && m->owner == owner && !m->is_gone ? m - r->world : -1;
}

static void remove_waiting(struct ms_rendezvous *r, struct ms_rendezvous_member *m)
{
    size_t at = (size_t)(m - r->waiting);

    member_finish(m);
    memmove(m, m + 1, (r->waiting_count - at - 1) * sizeof *m);
    r->waiting_count--;
}

/* ---- what is known of the world -------------------------------------------------- */

size_t ms_rendezvous_lost(const struct ms_rendezvous *r)
{
    size_t lost = 0;

    for (size_t i = 0; i < r->world_count; i++)
        lost += r->world[i].is_gone;
    return lost;
}

static size_t count_live(const struct ms_rendezvous *r)
{
    return r->world_count - ms_rendezvous_lost(r);
}

/* Members of the world that live and have not joined again. */
static size_t count_missing(const struct ms_rendezvous *r)
{
    size_t missing = 0;

    for (size_t i = 0; i < r->world_count; i++)
        missing += !r->world[i].is_gone && !r->world[i].is_back;
    return missing;
}

bool ms_rendezvous_is_empty(const struct ms_rendezvous *r)
{
    return r->waiting_count == 0 && count_live(r) == 0;
}

/* How many of `count` fit into a world. */
static size_t fitting(const struct ms_rendezvous *r, size_t count)
{
    size_t most = count < r->limits.max ? count : r->limits.max;

    return most - most % r->limits.unit;
}

bool ms_rendezvous_is_wanted(const struct ms_rendezvous *r)
{
    size_t missing = count_missing(r);

    if (r->is_closed || r->world_count == 0)
        return false;
    if (missing < r->world_count) /* some have gone, or have joined again */
        return true;
    return fitting(r, missing + r->waiting_count) > r->world_count;
}

/* A round gathers, or not, after who waits or who lives has changed. One that gathers goes
 * on with its deadline. */
static void gather(struct ms_rendezvous *r, int64_t now_ns)
{
    size_t live = count_live(r);
    bool gathers = !r->is_closed && r->waiting_count > 0 &&
                   (r->is_gathering || live == 0 || count_missing(r) < live);

    if (gathers && !r->is_gathering)
        r->deadline_ns = ms_deadline_ns(now_ns, r->limits.join_ns);
    r->is_gathering = gathers;
}

/* Who of those that wait was in the world. */
static void relate(struct ms_rendezvous *r, struct ms_rendezvous_member *w)
{
    struct ms_rendezvous_member *m = find_in_world(r, w->key);

    w->former = m ? m - r->world : -1;
    if (m && m->owner == w->owner)
        m->is_back = true;
    else if (m) /* by a replacement */
        m->is_gone = true;
}

void ms_rendezvous_settle(struct ms_rendezvous *r, int64_t now_ns)
{
    for (size_t i = 0; i < r->waiting_count; i++)
        relate(r, &r->waiting[i]);
    gather(r, now_ns);
}

/* ---- joining and leaving --------------------------------------------------------- */

static int check_join(const struct ms_rendezvous *r,
                      const struct ms_rendezvous_join *join,
                      struct ms_error *err)
{
    size_t len = strnlen(join->key, MS_RENDEZVOUS_KEY_MAX + 1);

    if (r->is_closed)
        return ms_error_set(err, -ECANCELED, "the rendezvous is closed");
    if (len == 0 || len > MS_RENDEZVOUS_KEY_MAX)
        return ms_error_set(err,
                            -EINVAL,
                            "the key of a member has 1 to %zu characters",
                            MS_RENDEZVOUS_KEY_MAX);
    if (join->len > MS_RENDEZVOUS_DATA_MAX)
        return ms_error_set(err,
                            -EINVAL,
                            "what member '%s' says has %zu bytes; it can have %zu",
                            join->key,
                            join->len,
                            MS_RENDEZVOUS_DATA_MAX);
    return ms_title_check(
        join->key, len, MS_RENDEZVOUS_KEY_MAX, "key of a member", err);
}

/* A copy; false: out of memory. */
static bool fill(struct ms_rendezvous_member *m, const struct ms_rendezvous_join *join)
{
    *m = (struct ms_rendezvous_member){
        .key = strdup(join->key),
        .owner = join->owner,
        .data = ms_bytes_copy(join->data, join->len),
        .len = join->len,
        .place = join->place,
    };
    if (m->key && m->data)
        return true;
    member_finish(m);
    return false;
}

static int add_waiting(struct ms_rendezvous *r,
                       const struct ms_rendezvous_join *join,
                       struct ms_error *err)
{
    if (r->waiting_count >= 2 * MS_RENDEZVOUS_MEMBERS_MAX)
        return ms_error_set(err, -ENOSPC, "%zu members wait already", r->waiting_count);
    if (ms_array_reserve(
            &r->waiting, &r->waiting_room, r->waiting_count + 1, sizeof *r->waiting) <
            0 ||
        !fill(&r->waiting[r->waiting_count], join))
        return ms_error_set(err, -ENOMEM, "out of memory");
    r->waiting_count++;
    return 0;
}

int ms_rendezvous_join(struct ms_rendezvous *r,
                       const struct ms_rendezvous_join *join,
                       int64_t now_ns,
                       struct ms_error *err)
{
    int rc = check_join(r, join, err);
    struct ms_rendezvous_member *known;

    if (rc < 0)
        return rc;
    known = find_waiting(r, join->key);
    if (known && known->owner == join->owner)
        return 0;
    if (known) { /* a replacement keeps the place in the queue */
        struct ms_rendezvous_member now;

        if (!fill(&now, join))
            return ms_error_set(err, -ENOMEM, "out of memory");
        member_finish(known);
        *known = now;
    } else {
        rc = add_waiting(r, join, err);
        if (rc < 0)
            return rc;
    }
    relate(r, known ? known : &r->waiting[r->waiting_count - 1]);
    r->last_join_ns = now_ns;
    gather(r, now_ns);
    return 1;
}

static bool leave(struct ms_rendezvous *r, const char *key, uint64_t owner)
{
    struct ms_rendezvous_member *w = find_waiting(r, key), *m = find_in_world(r, key);
    bool was_there = false;

    if (m && m->owner == owner && !m->is_gone)
        was_there = m->is_gone = true;
    if (w && w->owner == owner) {
        was_there = true;
        if (m)
            m->is_back = false;
        remove_waiting(r, w); /* last: `key` may be its */
    }
    return was_there;
}

bool ms_rendezvous_leave(struct ms_rendezvous *r,
                         const char *key,
                         uint64_t owner,
                         int64_t now_ns)
{
    bool was_there = leave(r, key, owner);

    gather(r, now_ns);
    return was_there;
}

size_t ms_rendezvous_drop(struct ms_rendezvous *r, uint64_t owner, int64_t now_ns)
{
    size_t gone = 0;

    for (size_t i = r->waiting_count; i-- > 0;)
        if (r->waiting[i].owner == owner)
            gone += leave(r, r->waiting[i].key, owner);
    for (size_t i = 0; i < r->world_count; i++)
        if (r->world[i].owner == owner && !r->world[i].is_gone) {
            r->world[i].is_gone = true;
            gone++;
        }
    gather(r, now_ns);
    return gone;
}

static void stop_waiting(struct ms_rendezvous *r)
{
    finish_all(r->waiting, r->waiting_count);
    r->waiting_count = 0;
    r->is_gathering = false;
    for (size_t i = 0; i < r->world_count; i++)
        r->world[i].is_back = false;
}

void ms_rendezvous_close(struct ms_rendezvous *r)
{
    stop_waiting(r);
    r->is_closed = true;
}

/* ---- the end of a round ---------------------------------------------------------- */

/* Nothing has changed but that it came back: there is nobody to wait for. */
static bool is_whole(const struct ms_rendezvous *r)
{
    for (size_t i = 0; i < r->world_count; i++)
        if (r->world[i].is_gone || !r->world[i].is_back)
            return false;
    return r->world_count > 0 && r->waiting_count == r->world_count;
}

/* As many as a world can have, or as there are. */
static bool have_all_come(const struct ms_rendezvous *r)
{
    size_t most = r->present ? fitting(r, r->present) : r->limits.max;

    return r->waiting_count >= (most > r->limits.min ? most : r->limits.min);
}

static bool is_complete(const struct ms_rendezvous *r, int64_t now_ns)
{
    if (r->waiting_count < r->limits.min)
        return false;
    if (now_ns >= r->deadline_ns)
        return true;
    if (count_missing(r) > 0)
        return false;
    return have_all_come(r) || is_whole(r) ||
           now_ns >= ms_deadline_ns(r->last_join_ns, r->limits.last_call_ns);
}

int64_t ms_rendezvous_next_ns(const struct ms_rendezvous *r)
{
    int64_t call_ns = ms_deadline_ns(r->last_join_ns, r->limits.last_call_ns);

    if (!r->is_gathering)
        return MS_NEVER;
    if (r->waiting_count < r->limits.min || count_missing(r) > 0)
        return r->deadline_ns;
    return call_ns < r->deadline_ns ? call_ns : r->deadline_ns;
}

/* To new members, as far as they are free, the ranks that they would like. */
static void give_liked_ranks(const struct ms_rendezvous *r,
                             int64_t *at_rank,
                             bool *has_rank,
                             size_t size)
{
    for (size_t i = 0; i < r->waiting_count; i++) {
        uint32_t place = r->waiting[i].place;

        if (r->waiting[i].former >= 0 || place == 0 || place > size ||
            at_rank[place - 1] >= 0)
            continue;
        at_rank[place - 1] = (int64_t)i;
        has_rank[i] = true;
    }
}

static void give_free_rank(int64_t *at_rank, size_t size, size_t *next, size_t member)
{
    while (*next < size && at_rank[*next] >= 0)
        (*next)++;
    if (*next < size)
        at_rank[*next] = (int64_t)member;
}

/* Who of those that wait has which rank in a world of `size`. */
static void give_ranks(const struct ms_rendezvous *r,
                       int64_t *at_rank,
                       int64_t *by_former,
                       bool *has_rank,
                       size_t size)
{
    size_t next = 0;

    for (size_t rank = 0; rank < size; rank++)
        at_rank[rank] = -1;
    for (size_t rank = 0; rank < r->world_count; rank++)
        by_former[rank] = -1;
    for (size_t i = 0; i < r->waiting_count; i++)
        if (r->waiting[i].former >= 0)
            by_former[r->waiting[i].former] = (int64_t)i;
    for (size_t rank = 0; rank < r->world_count && rank < size; rank++)
        at_rank[rank] = by_former[rank];
    for (size_t rank = size; rank < r->world_count; rank++)
        if (by_former[rank] >= 0)
            give_free_rank(at_rank, size, &next, (size_t)by_former[rank]);
    give_liked_ranks(r, at_rank, has_rank, size);
    for (size_t i = 0; i < r->waiting_count; i++)
        if (r->waiting[i].former < 0 && !has_rank[i])
            give_free_rank(at_rank, size, &next, i);
}

/* Move those with a rank to `world`; the others wait on, in their order. */
static void move(struct ms_rendezvous *r,
                 struct ms_rendezvous_member *world,
                 const int64_t *at_rank,
                 size_t size)
{
    size_t left = 0;

    for (size_t rank = 0; rank < size; rank++) {
        assert(at_rank[rank] >= 0);
        world[rank] = r->waiting[at_rank[rank]];
        world[rank].is_gone = world[rank].is_back = false;
        r->waiting[at_rank[rank]].key = NULL;
    }
    for (size_t i = 0; i < r->waiting_count; i++)
        if (r->waiting[i].key)
            r->waiting[left++] = r->waiting[i];
    r->waiting_count = left;
}

static enum ms_rendezvous_event complete(struct ms_rendezvous *r, int64_t now_ns)
{
    size_t size = fitting(r, r->waiting_count);
    MS_CLEANUP(ms_cleanup_free)
    struct ms_rendezvous_member *world = calloc(size, sizeof *world);
    MS_CLEANUP(ms_cleanup_free) int64_t *at_rank = calloc(size, sizeof *at_rank);
    MS_CLEANUP(ms_cleanup_free)
    int64_t *by_former = calloc(r->world_count + 1, sizeof *by_former);
    MS_CLEANUP(ms_cleanup_free)
    bool *has_rank = calloc(r->waiting_count, sizeof *has_rank);

    if (!world || !at_rank || !by_former || !has_rank)
        return MS_RENDEZVOUS_NO_MEMORY;
    assert(size >= r->limits.min);
    give_ranks(r, at_rank, by_former, has_rank, size);
    move(r, world, at_rank, size);
    finish_all(r->world, r->world_count);
    free(r->world);
    r->world = MS_TAKE(world);
    r->world_count = r->world_room = size;
    r->round++;
    r->is_gathering = false;
    ms_rendezvous_settle(r, now_ns);
    return MS_RENDEZVOUS_COMPLETED;
}

static void describe_failure(const struct ms_rendezvous *r, struct ms_error *err)
{
    const struct ms_rendezvous_member *last = &r->waiting[r->waiting_count - 1];

    ms_error_set(err,
                 -ETIMEDOUT,
                 "%zu of at least %u members came within %.1f s; the last was '%.64s'",
                 r->waiting_count,
                 r->limits.min,
                 (double)r->limits.join_ns / (double)MS_NS_PER_S,
                 last->key);
}

enum ms_rendezvous_event
ms_rendezvous_step(struct ms_rendezvous *r, int64_t now_ns, struct ms_error *err)
{
    if (!r->is_gathering)
        return MS_RENDEZVOUS_NOTHING;
    if (is_complete(r, now_ns))
        return complete(r, now_ns);
    if (now_ns < r->deadline_ns)
        return MS_RENDEZVOUS_NOTHING;
    describe_failure(r, err);
    stop_waiting(r);
    return MS_RENDEZVOUS_FAILED;
}
