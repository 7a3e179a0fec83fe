/* rendezvous.h - members meet and become a world with ranks, again and again; pure
 *
 * A member joins under a key that stays the same over its incarnations ("node-3"), and waits.
 * When enough have come the round completes: those that fit form a world of ranks 0..n-1,
 * the others wait on. A member of a world that joins again begins the next round.
 *
 * Rules:
 *  - A world has min to max members, and a multiple of `unit`. min and max are multiples of
 *    it themselves (else the rendezvous is refused), so that cutting the number down to a
 *    multiple never leaves fewer than min.
 *  - A round gathers from the first member that is not held up by a world at work: the first
 *    of all, or a member of the world that joins again, or one that waits when the last of
 *    the world has gone. A member that comes while the world works waits; the world learns
 *    of it (ms_rendezvous_is_wanted) and decides when to join again.
 *  - A round that gathers completes when max have come; or min, and for `last_call_ns` nobody
 *    has come after them; or at once when the world before has come back whole, without
 *    others, or when as many have come as there are (`present`). Members of the world
 *    before that live are waited for.
 *  - The deadline of a round is `join_ns` after its first member and does not move. It
 *    completes then with what has come, or fails if that is less than min.
 *  - Ranks are stable: a member that had a rank keeps it if the new world has that rank;
 *    free ranks go to the other old members, then to new ones: first to those that would
 *    like that rank (`place`), then in the order of their coming.
 *    If there is no room for all, old members go first.
 *  - One that joins under a key that another one holds takes its place: it is a replacement,
 *    and what comes from the one before changes nothing.
 *
 * No clock and no I/O: `now_ns` is an argument. After each change the caller calls
 * ms_rendezvous_step, and again at ms_rendezvous_next_ns.
 */
#ifndef MS_JOB_RENDEZVOUS_H
#define MS_JOB_RENDEZVOUS_H

#include "base/error.h"
#include "base/limits.h"
#include "proto/muster.pb-c.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ms_rendezvous_limits {
    uint32_t min, max, unit; /* members of a world */
    int64_t last_call_ns, join_ns;
};

struct ms_rendezvous_member {
    char *key;
    uint64_t owner; /* the incarnation: another one with this key has another owner */
    uint8_t *data;  /* what it says to the others, as its address */
    size_t len;
    bool is_gone;   /* in a world: it has left or died, or was replaced */
    bool is_back;   /* in a world: it waits for the next one */
    int64_t former; /* of one that waits: the rank of its key in the world; -1: none */
    uint32_t place; /* 1 + the rank that it would like; 0: any */
};

struct ms_rendezvous {
    struct ms_rendezvous_limits limits;
    uint64_t round; /* of the world; 0: there was none */
    bool is_closed;
    bool is_gathering;
    bool is_of_cluster; /* members are the ranks of the cluster of this name */
    uint32_t present;   /* how many there are that could come; 0: not known. Not kept */
    int64_t deadline_ns;  /* of the round that gathers */
    int64_t last_join_ns; /* of a member that was not there before */
    /* of the last world, by rank; none: there was none */
    struct ms_rendezvous_member *world;
    size_t world_count, world_room;
    /* who waits for the next one, in the order of their coming */
    struct ms_rendezvous_member *waiting;
    size_t waiting_count, waiting_room;
};

/* -EINVAL: such limits cannot be kept; err says why. */
int ms_rendezvous_check(const struct ms_rendezvous_limits *limits,
                        struct ms_error *err);
/* `limits` were checked. */
void ms_rendezvous_init(struct ms_rendezvous *r,
                        const struct ms_rendezvous_limits *limits);
void ms_rendezvous_finish(struct ms_rendezvous *r);

/* What is said by one that joins; borrowed. */
struct ms_rendezvous_join {
    const char *key;
    uint64_t owner;
    const uint8_t *data;
    size_t len;
    uint32_t place; /* 1 + the rank that it would like; 0: any */
};

/* It waits for the next round; if it does already, nothing changes. 1: it is new there; 0.
 * -EINVAL: the key or the data; -ECANCELED: closed; -ENOSPC: too many wait; -ENOMEM. */
int ms_rendezvous_join(struct ms_rendezvous *r,
                       const struct ms_rendezvous_join *join,
                       int64_t now_ns,
                       struct ms_error *err);
/* It waits no more, and is gone from the world. False: it was in neither. */
bool ms_rendezvous_leave(struct ms_rendezvous *r,
                         const char *key,
                         uint64_t owner,
                         int64_t now_ns);
/* As if all members of this owner left; how many. */
size_t ms_rendezvous_drop(struct ms_rendezvous *r, uint64_t owner, int64_t now_ns);
/* No round comes any more, and nobody can join. */
void ms_rendezvous_close(struct ms_rendezvous *r);

enum ms_rendezvous_event {
    MS_RENDEZVOUS_NOTHING,
    MS_RENDEZVOUS_COMPLETED, /* a new world is there; step again */
    MS_RENDEZVOUS_FAILED,    /* too few at the deadline: nobody waits any more */
    MS_RENDEZVOUS_NO_MEMORY  /* as nothing: try again */
};

/* Go on as far as possible now. FAILED: `err` says who came. */
enum ms_rendezvous_event
ms_rendezvous_step(struct ms_rendezvous *r, int64_t now_ns, struct ms_error *err);
/* When to step again if nothing happens; MS_NEVER. */
int64_t ms_rendezvous_next_ns(const struct ms_rendezvous *r);

/* Should the world meet again? A member of it has joined again, or has gone, or with those
 * that wait it could be larger. */
bool ms_rendezvous_is_wanted(const struct ms_rendezvous *r);
/* Members of the world that have gone. */
size_t ms_rendezvous_lost(const struct ms_rendezvous *r);
/* The rank of this incarnation in the world; -1: it is not in it, or has gone. */
int64_t
ms_rendezvous_rank(const struct ms_rendezvous *r, const char *key, uint64_t owner);
bool ms_rendezvous_waits(const struct ms_rendezvous *r,
                         const char *key,
                         uint64_t owner);
/* Nobody waits and nobody of the world lives. */
bool ms_rendezvous_is_empty(const struct ms_rendezvous *r);

/* ---- kept (rendezvous_kept.c) ---- */

/* As a message, packed by the caller; freed with muster__kept_rendezvous__free_unpacked.
 * NULL: out of memory. */
Muster__KeptRendezvous *ms_rendezvous_encode(const struct ms_rendezvous *r);
/* From such a message, which is not trusted. A round that gathered begins again at `now_ns`.
 * -EINVAL: it describes none; -ENOMEM. On failure `r` is not made. */
int ms_rendezvous_decode(struct ms_rendezvous *r,
                         const Muster__KeptRendezvous *m,
                         int64_t now_ns);
/* Work out what follows from `world` and `waiting` as they are. */
void ms_rendezvous_settle(struct ms_rendezvous *r, int64_t now_ns);

#endif
