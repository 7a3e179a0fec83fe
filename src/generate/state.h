/* state.h - what the scheduler knows; policies read it
 *
 * Flat arrays with 32-bit indexes. A request is in exactly one place: in the queue
 * (QUEUED), on a replica's list (RUNNING, ABORTING, or PARKED), or nowhere (DONE, until its group
 * ends). `ms_scheduler` is changed by the files of this folder only.
 */
#ifndef MS_GENERATE_STATE_H
#define MS_GENERATE_STATE_H

#include "base/map.h"
#include "generate/scheduler.h"
#include "generate/staleness.h"

#define MS_NONE UINT32_MAX /* no index */

enum ms_gen_request_state {
    MS_REQUEST_FREE,
    MS_REQUEST_HELD, /* its group is not admitted yet */
    MS_REQUEST_QUEUED,
    MS_REQUEST_PARKED, /* queued for the replica that has its prefix, and no other */
    MS_REQUEST_RUNNING,
    MS_REQUEST_ABORTING,
    MS_REQUEST_DONE,
};

struct ms_gen_request {
    uint32_t generation; /* of this place in the array; the id's upper half */
    uint32_t group, next;
    uint32_t replica;       /* where it runs, or ran last: its prefix is warm there */
    uint32_t before, after; /* on that replica; the longest silent first */
    uint32_t attempt, queue_at;
    uint32_t prompt, generated, max_new;
    uint32_t kv;     /* tokens that it is counted with on its replica */
    uint32_t oldest; /* version of its oldest token */
    uint16_t failed_on[2];
    uint16_t seq;
    uint8_t state;
    uint8_t failures : 4,
        tries : 4; /* replicas that failed it, and how often; 15: or more */
    uint8_t
        ends : 1, /* it is not wanted any more: ABORTING, or DONE without an answer */
        is_probe : 1, losses : 4; /* of its replica, in all */
    uint8_t why;                  /* ABORTING, or why it left its replica last */
    uint8_t suspect;              /* its replica went: so many tokens clear it */
    uint8_t placed;               /* enum ms_explain_placed */
    uint32_t target;              /* of a move; MS_NOWHERE otherwise */
    float rank;                   /* QUEUED: the smallest goes first */
    int64_t since_ns;             /* queued then, or heard of last */
};

enum ms_gen_group_state {
    MS_GROUP_FREE,
    MS_GROUP_HELD,
    MS_GROUP_OPEN,
    MS_GROUP_JUDGED, /* finished, waits for its verdict */
    MS_GROUP_READY,
    MS_GROUP_LEASED,
    MS_GROUP_ENDING, /* dropped or delivered; aborts are on their way */
};

struct ms_gen_group {
    uint64_t id, key, batch;        /* key: of its turn (ms_lengths_next_turn) */
    uint32_t first;                 /* of its requests */
    uint32_t wanted, done, pending; /* pending: requests that are not over */
    uint32_t before, after;         /* in the list of its state, if it has one */
    uint32_t oldest, deadline_at;
    uint32_t hint;
    uint32_t warm_epoch, warm_version; /* of the replica that had its prefix, then */
    uint8_t state, counted;            /* counted: it has a place by `staleness` */
    uint8_t turn;                      /* of its session */
    uint8_t unknown;                   /* the turn has no history */
    uint8_t has_sibling;               /* another group of its key was under way */
    uint8_t has_surplus; /* more requests were asked for than are wanted */
    struct ms_length_sums sums;
    struct ms_length_guess guess;
    float expected; /* tokens of a sample that has none yet, by the guess */
    float later;    /* tokens of its session's later turns, by their history */
    int64_t deadline_ns, order;
    uint64_t tokens;
};

enum ms_gen_replica_state {
    MS_REPLICA_GONE,
    MS_REPLICA_OPEN,
    MS_REPLICA_PAUSED, /* gets weights, or waits for its requests to leave first */
    MS_REPLICA_DRAINING,
};

struct ms_gen_replica {
    uint8_t state, probed, update; /* update: it has been told to */
    uint32_t epoch, version, slots;
    uint32_t in_flight;
    uint32_t first, last;                       /* requests, the longest silent first */
    uint32_t parked_first, parked_last, parked; /* the longest waiting first */
    uint64_t kv, kv_max;                        /* counted tokens; 0: no limit */
    int64_t heard_ns, probe_ns;
    double step_ns; /* that its steps take of late; 0: not measured */
};

struct ms_gen_list {
    uint32_t first, last;
    uint64_t count;
};

struct ms_gen_key {
    double key;
    uint32_t index, tie;
};

struct ms_gen_heap { /* of requests by rank, or groups by deadline */
    struct ms_gen_key *at;
    size_t count, room;
};

enum { MS_BIAS_BINS = 64 };

enum ms_order {
    MS_ORDER_UNKNOWN, /* nothing has been chosen: by the measured correlation */
    MS_ORDER_FIFO,
    MS_ORDER_LONGEST, /* expected */
    MS_ORDER_WORST,   /* the longest at worst, in slices */
};

/* Below, prompts say nothing of lengths: in order of arrival. */
#define MS_ICC_MIN 0.1

/* How `auto` goes about this step (choose.h). */
struct ms_choice {
    uint8_t order;
    uint8_t worst;      /* which one, of MS_ORDER_WORST */
    double slice;       /* tokens; 0: not sliced */
    int64_t began_ns;   /* when it was made */
    double expected_ns; /* from then to the end of all, by the simulation; 0: none */
    uint64_t of;        /* events that were counted then: later ones change the end */
    uint64_t work;      /* that the choice took; at most about MS_CHOOSE_WORK_MAX */
};

struct ms_scheduler {
    struct ms_scheduler_options o;
    struct ms_lengths *lengths;
    uint64_t seed;
    int64_t now_ns, last_plan_ns, last_guess_ns, last_slice_ns;
    struct ms_gen_request *requests;
    size_t request_count, request_room;
    struct ms_gen_group *groups;
    size_t group_count, group_room;
    struct ms_gen_replica *replicas;
    size_t replica_count, replica_room;
    uint64_t slots; /* of all that are not gone */
    uint32_t free_request, free_group;
    struct ms_map by_id; /* a group's id: its index + 1 */
    struct ms_gen_heap queue, deadlines;
    struct ms_gen_list held, ready, leased;
    uint64_t parked; /* requests */
    uint64_t order;  /* of submission */
    struct ms_generate_decision *out;
    size_t out_count, out_room;
    struct ms_staleness admission;
    uint32_t version; /* the trainer's */
    /* the next weights: 0 none */
    bool weights, rolling, paused;
    uint8_t weights_mode;
    uint32_t weights_version;
    int64_t weights_deadline_ns;
    uint64_t pull_id;
    uint32_t pull_wanted;
    double a_ns, b_ns; /* one step takes a + b * batch; 0: not known */
    double fit[5];     /* decayed sums over batch x and step y: 1, x, y, xx, xy */
    struct ms_choice choice;
    int64_t choose_ns;        /* when a choice was last tried */
    uint64_t choose_order;    /* and `order` then */
    uint64_t disturbed;       /* events that change how long a step takes */
    double predicted, misses; /* decayed: ends that were predicted; errors of that */
    uint64_t plans;           /* that were tried; each has draws of its own */
    char *scratch;            /* of the plan */
    size_t scratch_room;
    uint64_t bins_all[MS_BIAS_BINS], bins_out[MS_BIAS_BINS];
    double
        surplus_share; /* of what is asked for, that is begun: less while it biases */
    struct ms_scheduler_stats stats;
};

static inline struct ms_gen_request *ms_gen_request_at(const struct ms_scheduler *s,
                                                       uint32_t i)
{
    return &s->requests[i];
}

static inline struct ms_gen_group *ms_gen_group_at(const struct ms_scheduler *s,
                                                   uint32_t i)
{
    return &s->groups[i];
}

/* May one more request of so many tokens go there? */
static inline bool ms_gen_replica_has_room(const struct ms_gen_replica *r, uint64_t kv)
{
    return r->state == MS_REPLICA_OPEN && r->in_flight < r->slots &&
           (r->kv_max == 0 || r->kv + kv <= r->kv_max || r->in_flight == 0);
}

/* Has this replica failed it, as far as that is remembered? */
static inline bool ms_gen_request_failed_on(const struct ms_gen_request *q,
                                            uint32_t replica)
{
    return (q->failures > 0 && q->failed_on[0] == replica) ||
           (q->failures > 1 && q->failed_on[1] == replica);
}

/* Is its prefix at q->replica? As it was told: while that replica has neither begun anew nor
 * got other weights, and until the first sending, behind which nobody knows. */
static inline bool ms_gen_request_is_warm(const struct ms_scheduler *s,
                                          const struct ms_gen_request *q)
{
    const struct ms_gen_group *g = &s->groups[q->group];

    return q->attempt == 0 && q->replica < s->replica_count &&
           s->replicas[q->replica].epoch == g->warm_epoch &&
           s->replicas[q->replica].version == g->warm_version;
}

/* It waits for the next part of a divided answer: its cache may still be at q->replica. */
static inline bool ms_gen_request_is_divided(const struct ms_gen_request *q)
{
    return q->attempt > 0 && q->why == MS_WHY_CHUNK;
}

/* With the next version it is too old: then what it has was for nothing. */
static inline bool ms_gen_request_is_last_chance(const struct ms_scheduler *s,
                                                 const struct ms_gen_request *q)
{
    return q->generated > 0 && q->oldest < s->version &&
           (uint64_t)q->oldest + s->o.staleness_max == s->version;
}

/* A seeded number, 0 to n - 1. */
static inline uint32_t ms_scheduler_roll(struct ms_scheduler *s, uint32_t n)
{
    s->seed ^= s->seed << 13;
    s->seed ^= s->seed >> 7;
    s->seed ^= s->seed << 17;
    return (uint32_t)((s->seed >> 33) % n);
}

#endif
