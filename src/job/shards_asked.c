/* shards_asked.c - what requests took and ended, for those of them that come again */
#include "base/buf.h"
#include "job/shards.h"

#include <errno.h>
#include <string.h>

static bool is_equal(const struct ms_shard_request *a, const struct ms_shard_request *b)
{
    return a->link == b->link && a->number == b->number;
}

void ms_shard_queue_note_taken(struct ms_shard_queue *s,
                               uint64_t lease,
                               const struct ms_shard_request *by)
{
    for (size_t i = s->doing.count; i-- > 0;)
        if (s->doing.at[i].lease == lease)
            s->doing.at[i].taken = *by;
}

bool ms_shard_queue_next_taken(const struct ms_shard_queue *s,
                               const struct ms_shard_request *by,
                               size_t *at,
                               struct ms_shard_range *out)
{
    while (by->number && *at < s->doing.count) {
        const struct ms_shard *shard = &s->doing.at[(*at)++];

        if (!is_equal(&shard->taken, by))
            continue;
        *out = ms_shard_queue_range(s, shard->position);
        out->lease = shard->lease;
        out->attempt = shard->failures + shard->deaths;
        return true;
    }
    return false;
}

/* ---- ends ------------------------------------------------------------------------ */

static int reserve(struct ms_shard_queue *s)
{
    return ms_array_reserve(
        &s->ended, &s->ended_room, s->ended_count + 1, sizeof *s->ended);
}

/* There is room for it. More than are out at once can only be of those who never ask again. */
static void note(struct ms_shard_queue *s, const struct ms_shard_end *end)
{
    if (!end->by.number)
        return;
    if (s->ended_count >= MS_SHARDS_OPEN_MAX)
        memmove(s->ended, s->ended + 1, --s->ended_count * sizeof *s->ended);
    s->ended[s->ended_count++] = *end;
}

int ms_shard_queue_note_ended(struct ms_shard_queue *s, const struct ms_shard_end *end)
{
    int rc = reserve(s);

    if (rc == 0)
        note(s, end);
    return rc;
}

/* If so, it is `end->by` that is to be told of it. */
static bool has_ended(struct ms_shard_queue *s, const struct ms_shard_end *end)
{
    for (size_t i = 0; i < s->ended_count; i++) {
        struct ms_shard_end *e = &s->ended[i];

        if (e->lease != end->lease || e->owner != end->owner || e->how != end->how)
            continue;
        e->by = end->by;
        return true;
    }
    return false;
}

void ms_shard_queue_expect_again(struct ms_shard_queue *s, uint64_t lease)
{
    for (size_t i = 0; i < s->ended_count; i++)
        if (s->ended[i].lease == lease)
            s->ended[i].by.number = UINT64_MAX; /* no answer to it arrives */
}

static int
carry_out(struct ms_shard_queue *s, const struct ms_shard_end *end, const char *reason)
{
    switch ((enum ms_shard_how)end->how) {
    case MS_SHARD_DONE:
        return ms_shard_queue_done(s, end->lease, end->owner);
    case MS_SHARD_FAILED:
        return ms_shard_queue_fail(s, end->lease, end->owner, reason);
    case MS_SHARD_GIVEN_BACK:
        return ms_shard_queue_give_back(s, end->lease, end->owner);
    }
    return -EINVAL;
}

int ms_shard_queue_end(struct ms_shard_queue *s,
                       const struct ms_shard_end *end,
                       const char *reason)
{
    int rc;

    if (has_ended(s, end))
        return 1;
    rc = reserve(s);
    if (rc == 0)
        rc = carry_out(s, end, reason);
    if (rc > 0)
        note(s, end);
    return rc;
}

/* ---- answers that have arrived --------------------------------------------------- */

struct arrived {
    uint64_t link, watermark;
    const uint64_t *above;
    size_t count;
};

static bool has_arrived(const struct arrived *a, const struct ms_shard_request *r)
{
    bool is_told = r->number <= a->watermark;

    for (size_t i = 0; i < a->count && !is_told; i++)
        is_told = a->above[i] == r->number;
    return is_told && r->link == a->link;
}

static void forget_ends(struct ms_shard_queue *s, const struct arrived *a)
{
    size_t left = 0;

    for (size_t i = 0; i < s->ended_count; i++)
        if (!has_arrived(a, &s->ended[i].by))
            s->ended[left++] = s->ended[i];
    s->ended_count = left;
}

void ms_shard_queue_settle(struct ms_shard_queue *s,
                           uint64_t link,
                           uint64_t watermark,
                           const uint64_t *arrived,
                           size_t count)
{
    const struct arrived a = {link, watermark, arrived, count};

    forget_ends(s, &a);
    for (size_t i = 0; i < s->doing.count; i++)
        if (has_arrived(&a, &s->doing.at[i].taken))
            s->doing.at[i].is_told = true;
}

size_t ms_shard_queue_leave(struct ms_shard_queue *s, uint64_t link, bool lives_on)
{
    const struct arrived all = {.link = link, .watermark = UINT64_MAX};
    size_t count = 0;

    forget_ends(s, &all);
    for (size_t i = s->doing.count; lives_on && i-- > 0;) {
        const struct ms_shard *shard = &s->doing.at[i];

        if (shard->taken.number && shard->taken.link == link && !shard->is_told)
            count += ms_shard_queue_give_back(s, shard->lease, shard->owner) > 0;
    }
    return count;
}
