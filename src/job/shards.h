/* shards.h - a queue of ranges of a data set, pure
 *
 * A data set of `size` records is cut into shards of `shard` records, and gone through
 * `epochs` times, in order or shuffled: the order of an epoch follows from seed and epoch
 * alone, and needs no memory. Positions count shards over all epochs.
 *
 *   never taken  -- take -->  doing  -- done -->  done
 *                 ^             |  \
 *                 |  came back  |   \-- failed too often --> failed, reported
 *                 \-------------/
 *
 * A shard that is taken has a lease, a number that is never given twice, and an owner: the
 * incarnation of a worker. It comes back when its owner dies, gives it back or reports a
 * failure; what an earlier owner says of it later changes nothing. What came back is taken
 * first. A shard with `failures_max` failures or `deaths_max` deaths of its owners is set
 * aside with the last reason. A queue with such a shard never becomes complete:
 * it becomes failed when all else is done, until the shard is retried.
 *
 * The position of the queue is a message (ms_shard_queue_encode), also as a part of a checkpoint:
 * there nothing is out, and what was comes back.
 */
#ifndef MS_JOB_SHARDS_H
#define MS_JOB_SHARDS_H

#include "base/error.h"
#include "base/limits.h"
#include "proto/muster.pb-c.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ms_shards_spec {
    uint64_t size;  /* records */
    uint64_t shard; /* records of a shard; the last one of an epoch may have fewer */
    uint64_t epochs;
    bool shuffle;
    uint64_t seed;
    uint32_t failures_max, deaths_max;
};

/* One that may come again, after a lost answer: its number on a driver's link. */
struct ms_shard_request {
    uint64_t link, number; /* 0: it cannot */
};

enum ms_shard_how { MS_SHARD_DONE, MS_SHARD_FAILED, MS_SHARD_GIVEN_BACK };

/* How a lease ends, or has ended, until the answer to that has arrived. */
struct ms_shard_end {
    uint64_t lease, owner;
    uint32_t how; /* enum ms_shard_how */
    struct ms_shard_request by;
};

/* A shard that was taken and is not done. */
struct ms_shard {
    uint64_t position;
    uint32_t failures, deaths;
    uint64_t lease, owner;         /* of one that is out */
    struct ms_shard_request taken; /* of one that is out: by this request */
    bool is_told;                  /* its answer has arrived */
    char *reason;                  /* of the last failure; NULL: none */
};

struct ms_shard_list {
    struct ms_shard *at;
    size_t count, room;
};

struct ms_shard_queue {
    struct ms_shards_spec spec;
    uint64_t per_epoch, total; /* shards */
    uint64_t next;             /* the first position that was never taken */
    uint64_t last_lease;
    struct ms_shard_list todo;   /* came back; the last is taken first */
    struct ms_shard_list doing;  /* by lease */
    struct ms_shard_list failed; /* set aside */
    struct ms_shard_end *ended;
    size_t ended_count, ended_room;
};

enum ms_shards_state {
    MS_SHARDS_OPEN,
    MS_SHARDS_COMPLETE, /* every shard was done */
    MS_SHARDS_FAILED    /* all that could be done is done; some shards have failed */
};

/* What a worker is given. */
struct ms_shard_range {
    uint64_t lease;
    uint64_t epoch, index;
    uint64_t start, end; /* records, `end` excluded */
    uint32_t attempt;    /* 0: it was never out before */
};

/* -EINVAL: no such queue can be; err says why. */
int ms_shard_queue_init(struct ms_shard_queue *s,
                        const struct ms_shards_spec *spec,
                        struct ms_error *err);
void ms_shard_queue_finish(struct ms_shard_queue *s);
bool ms_shard_queue_spec_equal(const struct ms_shards_spec *a,
                               const struct ms_shards_spec *b);

enum ms_shards_state ms_shard_queue_state(const struct ms_shard_queue *s);
uint64_t ms_shard_queue_done_count(const struct ms_shard_queue *s);
/* Which records are at a position. */
struct ms_shard_range ms_shard_queue_range(const struct ms_shard_queue *s,
                                           uint64_t position);

/* 1: *out is the owner's; 0: there is none now; -ENOSPC: too many are out; -ENOMEM. */
int ms_shard_queue_take(struct ms_shard_queue *s,
                        uint64_t owner,
                        struct ms_shard_range *out);
/* 1; 0: it is not this owner's any more, and nothing has changed. */
int ms_shard_queue_done(struct ms_shard_queue *s, uint64_t lease, uint64_t owner);
/* As done: 1: it will be tried again; 2: it was set aside; 0. */
int ms_shard_queue_fail(struct ms_shard_queue *s,
                        uint64_t lease,
                        uint64_t owner,
                        const char *reason);
/* It comes back; nothing is counted. */
int ms_shard_queue_give_back(struct ms_shard_queue *s, uint64_t lease, uint64_t owner);
/* The owner has died: how many came back or were set aside. */
size_t ms_shard_queue_drop(struct ms_shard_queue *s, uint64_t owner);
/* Those that were set aside are tried again, as if they had never failed; how many. */
size_t ms_shard_queue_retry(struct ms_shard_queue *s);

/* ---- requests that come again (shards_asked.c) ----
 *
 * A link numbers its requests, and tells with each which answers have arrived
 * (wire/link/requests.h). What a request took or ended is remembered until then, so that it
 * is told the same when it comes again, also by a head that has read the queue anew.
 */

/* The lease, which is out, was given to this request. */
void ms_shard_queue_note_taken(struct ms_shard_queue *s,
                               uint64_t lease,
                               const struct ms_shard_request *by);
/* The next lease that this request was given, from *at on, which begins at 0. */
bool ms_shard_queue_next_taken(const struct ms_shard_queue *s,
                               const struct ms_shard_request *by,
                               size_t *at,
                               struct ms_shard_range *out);
/* Done, failed or given back: as these functions; again, if it has ended so already by this
 * owner. -EINVAL: there is no such end; -ENOMEM: nothing has changed. */
int ms_shard_queue_end(struct ms_shard_queue *s,
                       const struct ms_shard_end *end,
                       const char *reason);
/* The answer to that was no answer: the same will be said again, by another request. */
void ms_shard_queue_expect_again(struct ms_shard_queue *s, uint64_t lease);
/* It has ended so; for a queue that is read anew. 0 or -ENOMEM. */
int ms_shard_queue_note_ended(struct ms_shard_queue *s, const struct ms_shard_end *end);
/* The answers to all requests of this link up to a number have arrived, and to these. */
void ms_shard_queue_settle(struct ms_shard_queue *s,
                           uint64_t link,
                           uint64_t watermark,
                           const uint64_t *arrived,
                           size_t count);
/* The link has ended, and nothing comes again. If its process lives on, what it was given
 * without having told that it knows comes back, and nothing is counted. How many. */
size_t ms_shard_queue_leave(struct ms_shard_queue *s, uint64_t link, bool lives_on);

/* ---- kept (shards_kept.c) ---- */

#define MS_SHARDS_VERSION 1u

/* Freed with muster__kept_shards__free_unpacked. NULL: out of memory. `as_checkpoint`:
 * without leases and owners; what is out has come back. */
Muster__KeptShards *ms_shard_queue_encode(const struct ms_shard_queue *s,
                                          bool as_checkpoint);
/* From such a message, which is not trusted. -EINVAL, -ENOMEM: `s` is not made. */
int ms_shard_queue_decode(struct ms_shard_queue *s,
                          const Muster__KeptShards *m,
                          struct ms_error *err);
/* Go on from a checkpoint of the same data set. Leases of before are void, and none of their
 * numbers is given again. On failure nothing has changed. */
int ms_shard_queue_restore(struct ms_shard_queue *s,
                           const uint8_t *bytes,
                           size_t len,
                           struct ms_error *err);

#endif
