/* scheduler.h - which generation request runs where, and what becomes of it
 *
 * A pure state machine: an event and the time go in, decisions come out. No clock,
 * socket or thread; random ties come from a seed. The same events at the same times
 * give the same decisions to the byte, in production, in the simulator and in a replay.
 *
 *   group      n samples of one prompt, submitted together, delivered once and whole
 *   request    one sample; it is queued, then sent to a replica, and may be sent again
 *              elsewhere with the tokens that it has ("resumed")
 *   replica    one inference engine: it runs up to `slots` requests that share `kv`
 *              tokens of cache
 *   attempt    one sending of a request. Every report of a request names it, and a report
 *              of an earlier attempt is ignored
 *   epoch      one incarnation of a replica; reports of an earlier one are ignored
 *
 * Rules of the life cycle:
 *  - A request is sent again only after its abort was acknowledged, its attempt failed,
 *    or its replica went: it never decodes twice at once.
 *  - A replica from which nothing was heard for `silence_ns` while it had work is probed;
 *    without an answer in `probe_ns` it is evicted and its requests resume elsewhere. A
 *    single silent request is aborted and resumes elsewhere; that counts as a failure of
 *    the replica, unless its cache is full: then the engine has preempted the request.
 *  - A request that failed on `poison_replicas` replicas fails its group. When a replica
 *    goes, all that it ran are suspects, until they have got on; those that would fail the
 *    next time are never two on one replica.
 *  - A group is delivered in one batch at a time: taken with PULL, then CONSUMED, or
 *    RETURNED and delivered again. Oldest version first.
 *
 * SUBMIT only queues: what it leads to is decided with the next event of another kind,
 * so that a burst of submits is seen as a whole. Send TICK behind it, and whenever
 * `ms_scheduler_wake_ns` has come.
 */
#ifndef MS_GENERATE_SCHEDULER_H
#define MS_GENERATE_SCHEDULER_H

#include "base/buf.h"
#include "base/error.h"
#include "generate/lengths.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MS_NOWHERE               UINT32_MAX /* no replica */
#define MS_GROUP_SAMPLES_MAX     4096       /* of one group, surplus included */
#define MS_GENERATE_TOKENS_MAX   (UINT32_C(1) << 30)
#define MS_GENERATE_REPLICAS_MAX 65536

enum ms_generate_what {
    MS_SUBMIT = 1,   /* id: the group's, not 0; key, samples, surplus, prompt, max_new,
                           deadline_ns; hint: expected tokens, or 0; replica: where its
                           prefix is warm, or MS_NOWHERE; epoch, version: that the
                           replica had then (epoch 0: as it is now); turn: of its session, from 0;
                           tokens: that its one sample has already, which count in max_new,
                           and attempt: the version of the oldest of them; keep: a group of
                           its key is under way, so it needs no probe */
    MS_CANCEL_GROUP, /* id: the group's */
    MS_CANCEL,       /* id: one request's: its group then wants one less */
    MS_CANCEL_ALL,
    MS_REPLICA_UP, /* replica, epoch, samples: slots, tokens: kv (0: no limit), version */
    MS_REPLICA_DOWN, /* replica, epoch */
    MS_DRAIN,        /* replica: give it back when its requests have left */
    MS_PROGRESS,     /* id, attempt, tokens: generated so far, those of earlier attempts
                           included */
    MS_CHUNK,        /* the same: the attempt ended at its max_tokens */
    MS_FINISHED,     /* the same: the request ended by itself */
    MS_ABORTED,      /* the same: the answer to ABORT */
    MS_FAILED, /* id, attempt; the tokens that were reported stay. keep: the fault is the
                           request's own, so no other replica is asked, and its group fails */
    MS_LOAD,   /* replica, epoch, samples: batch, step_ns: one decode step */
    MS_ALIVE,  /* replica, epoch: the answer to PROBE */
    MS_WEIGHTS,       /* version, mode, rolling, deadline_ns: prepare for new weights */
    MS_WEIGHTS_READY, /* replica, epoch, version: the answer to UPDATE */
    MS_ADVANCE,  /* version: that the trainer is at; before the first SUBMIT: that it
                         is restored at, and has consumed as many batches */
    MS_VERDICT,  /* id: a finished group's; keep. With options.filter only */
    MS_PULL,     /* id: a batch's, not 0; samples: groups wanted */
    MS_CONSUMED, /* id: a batch's */
    MS_RETURNED, /* id: a batch's: its consumer died */
    MS_TICK,
    MS_WEIGHTS_FAILED, /* the update was given up: replicas go on with what they have */
    MS_PAUSE, /* mode: nothing is sent; requests are aborted (ABORT) or go on */
    MS_RESUME,
    MS_TAKE, /* id: one ready group's, whose samples are consumed; -EAGAIN: not ready */
    MS_WAITING, /* id, attempt: its engine has it but does not decode it, for want of cache;
                   it is not silent as long as that is said */
    MS_FELL_BACK, /* id, attempt, replica, epoch, version: by its engine its tokens are of
                     this version, which is older than that of its sending. The replica has
                     not got the weights: it is drained, and RELEASED when all have left */
    MS_GENERATE_WHATS
};

enum ms_weights_mode {
    MS_WEIGHTS_ABORT, /* requests are aborted, keep their tokens and resume */
    MS_WEIGHTS_WAIT,  /* requests end first, aborted at the deadline */
    MS_WEIGHTS_KEEP,  /* requests go on under the new weights */
};

/* One shape for all kinds; what a kind does not use is 0. Written and read as it is. */
struct ms_generate_event {
    uint32_t what;
    uint32_t replica, epoch, attempt;
    uint64_t id, key;
    uint32_t samples, surplus, prompt, max_new;
    uint32_t tokens, version, hint;
    uint8_t mode, rolling, keep, turn;
    int64_t deadline_ns, step_ns;
};

enum ms_decide_what {
    MS_SEND =
        1,    /* id, group, seq, replica, attempt, tokens: to resume from, max_tokens,
                    version */
    MS_ABORT, /* id, replica, attempt, why */
    MS_PROBE, /* replica */
    MS_EVICT, /* replica, epoch: it is as good as down; end it */
    MS_RELEASED, /* replica: drained */
    MS_UPDATE,   /* replica, version: idle, or running on under MS_WEIGHTS_KEEP; give it
                    the weights and report WEIGHTS_READY */
    MS_UPDATED,  /* version: all replicas have it */
    MS_READY,    /* group: all its samples are there; with options.filter, judge it */
    MS_DELIVER,  /* group, id: the batch's */
    MS_BATCH,    /* id: the batch is whole */
    MS_DROP,     /* group, why: it will not be delivered */
    MS_REFILL,   /* tokens: so many groups are missing: submit others */
};

enum ms_generate_why {
    MS_WHY_NONE,
    MS_WHY_CANCELLED,
    MS_WHY_DEADLINE,
    MS_WHY_SILENT,
    MS_WHY_MOVED, /* by the policy */
    MS_WHY_WEIGHTS,
    MS_WHY_DRAINED,
    MS_WHY_SURPLUS, /* the group has enough */
    MS_WHY_POISON,
    MS_WHY_STALE,
    MS_WHY_FILTERED,
    MS_WHY_FAILED,    /* explain.h only, from here on: its attempt failed */
    MS_WHY_LOST,      /* its replica went */
    MS_WHY_CHUNK,     /* the attempt ended at its max_tokens */
    MS_WHY_YIELDED,   /* of MS_ABORT: it makes way for one that could take longer */
    MS_WHY_PREEMPTED, /* of MS_ABORT: silent on a replica whose cache is full */
    MS_WHY_REFUSED,   /* of MS_DROP: by an engine, as what no engine would take */
};

/* Of MS_DROP: nobody has asked for this. */
static inline bool ms_generate_is_failure(uint16_t why)
{
    return why == MS_WHY_POISON || why == MS_WHY_DEADLINE || why == MS_WHY_REFUSED;
}

struct ms_generate_decision {
    uint64_t id, group;
    uint16_t what, why, seq, unused;
    uint32_t replica, epoch, attempt;
    uint32_t tokens, max_tokens, version;
};

struct ms_policy;

struct ms_scheduler_options {
    const struct ms_policy *policy; /* generate/policy.h */
    uint64_t seed;
    uint32_t chunk;           /* tokens of an attempt; 0: not divided */
    uint32_t staleness_max;   /* versions of the oldest token of a delivered group */
    uint32_t batch;           /* groups of one update; 0: admission has no limit */
    bool filter;              /* a finished group waits for its VERDICT */
    uint32_t poison_replicas; /* 0: 3 */
    int64_t silence_ns;       /* 0: never; progress is then not needed */
    int64_t probe_ns;         /* 0: 10 s */
    int64_t rebalance_ns;     /* between plans that move requests; 0: never moved */
    double ageing;            /* tokens of priority that a second of waiting is worth */
    double prefill_ns;        /* of one token, as moves are charged; 0: 20 us */
};

/* `lengths` is borrowed, and learns from every group that ends. NULL with the reason. */
struct ms_scheduler *ms_scheduler_create(const struct ms_scheduler_options *o,
                                         struct ms_lengths *lengths,
                                         struct ms_error *err);
void ms_scheduler_destroy(struct ms_scheduler *s); /* NULL is fine */

/* Take an event. Times do not go back. 0 and the decisions, in order, borrowed until the
 * next call. -EINVAL, -EEXIST (a group or batch of that id), -ENOENT (of a group,
 * replica or batch) or -ENOMEM: nothing has changed. A late report is no error. */
int ms_scheduler_step(struct ms_scheduler *s,
                      const struct ms_generate_event *e,
                      int64_t now_ns,
                      const struct ms_generate_decision **decisions,
                      size_t *count);

/* The id of one request of a group; 0: there is no such. */
uint64_t
ms_scheduler_request(const struct ms_scheduler *s, uint64_t group, uint32_t seq);

/* When the next TICK is wanted; MS_NEVER: only events matter. */
int64_t ms_scheduler_wake_ns(const struct ms_scheduler *s);

struct ms_scheduler_stats {
    uint64_t live, queued, running, aborting; /* requests; live is their sum */
    uint64_t sent, resumed, moved, late;  /* sends, of them resumed; reports ignored */
    uint64_t yielded;                     /* requests that made way for others */
    uint64_t groups, held, ready, leased; /* groups; held: not admitted yet */
    uint64_t delivered, dropped, failed;
    uint64_t tokens;         /* of delivered groups */
    uint64_t surplus_tokens; /* of aborted surplus */
    double missed; /* of how long a step was expected to take: the mean error of late */
};
struct ms_scheduler_stats ms_scheduler_stats(const struct ms_scheduler *s);

/* How far the lengths of what was delivered are from those of all that was generated:
 * Kolmogorov and Smirnov's distance, 0 to 1. Over-provision prefers short answers. */
double ms_scheduler_bias(const struct ms_scheduler *s);

#endif
