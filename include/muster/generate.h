/* generate.h - generation on a cluster: prompts in, finished samples out
 *
 *     struct muster_scheduler_options options = MUSTER_SCHEDULER_OPTIONS;
 *     struct muster_submit_options submit = MUSTER_SUBMIT_OPTIONS;
 *     struct muster_scheduler *s = muster_scheduler_create(cluster, &options, &err);
 *
 *     submit.samples = 8;
 *     submit.max_new_tokens = 4096;
 *     rc = muster_scheduler_submit(s, prompt, &submit, &group, &err);
 *     rc = muster_scheduler_get_batch(s, 1, timeout_ns, &samples, &err);
 *
 * Each worker of the cluster is a replica, or with a mesh the first of each data-parallel group;
 * its engine has the method generate, which gets one map and gives a stream of maps, or one as
 * its result:
 *     request: rid, attempt, prompt, tokens (generated before: go on behind them),
 *              max_new_tokens, sampling, version, seq
 *     chunk:   tokens (a list or a tensor of integers), logprobs, version, finish_reason; all
 *              but tokens may be missing. One without tokens says that the request waits
 * An error of the type "RequestRefused" says that no other engine would take the request either;
 * after any other it is tried elsewhere.
 * And, where it can, it has abort(rid), pause(), resume() and alive(). A worker in C runs one method
 * at a time, so it has 1 slot; it looks at muster_call_is_cancelled.
 *
 * What is promised is the same as in Python (doc/generation.md): a group is delivered once and
 * whole; a request whose worker died goes on elsewhere from the tokens that have come. All
 * functions may be called from any thread.
 */
#ifndef MUSTER_GENERATE_H
#define MUSTER_GENERATE_H

#include <muster/cluster.h>
#include <muster/common.h>
#include <muster/error.h>
#include <muster/value.h>

struct muster_scheduler;
struct muster_samples; /* what has become of a group */

/* Under `muster run` and in a submitted job what still has its value of
 * MUSTER_SCHEDULER_OPTIONS is as `generation` in the job's file says. */
struct muster_scheduler_options {
    uint32_t size;      /* MUSTER_SCHEDULER_OPTIONS fills in this and the numbers */
    uint32_t slots;     /* requests that run at once on each replica; 1 */
    uint32_t kv_tokens; /* that fit into its cache; 0: no limit */
    const char *policy; /* "auto" (or NULL), "longest", "fifo" */
    const char
        *history; /* a file of lengths, kept across restarts; "": none; NULL: in a job
                            lengths-<role> in its checkpoint folder, else none */
    uint64_t history_prompts; /* that it keeps; 0: a million */
    int64_t max_staleness;    /* versions of the oldest token delivered; -1: no bound */
    uint32_t batch;           /* groups of one update, for admission; 0: no bound */
    uint32_t chunk;           /* tokens after which a request may move; 0: never */
    bool filter;              /* groups wait for muster_scheduler_verdict */
    uint32_t poison;          /* replicas that a request may fail on; 3 */
    int64_t silence_ns;   /* without a token until a request moves: at least this, or 20
                              steps of its replica; 60 s; 0: never */
    int64_t probe_ns;     /* that a silent replica has to answer; 10 s */
    int64_t rebalance_ns; /* between plans that move requests; 2 s; 0: never */
    uint64_t seed;
    uint32_t version;   /* of the weights at the start */
    const char *engine; /* NULL: the one that the cluster was made with */
    double ageing; /* tokens of priority that a second of waiting is worth; 0: none */
    uint32_t tp, cp,
        pp; /* ranks of one replica, of the cluster's mesh, of which the first
                            is asked; 0: as the job's file says of the role, else 1 */
    int64_t session_ttl_ns; /* without a turn until a session is forgotten; 1 hour */
    double max_bias;        /* of lengths, from which on less surplus is begun; 0.05 */
};

struct muster_submit_options {
    uint32_t size;    /* MUSTER_SUBMIT_OPTIONS fills in this and the numbers */
    uint32_t samples; /* 1 */
    uint32_t surplus; /* so many more are begun, and the first ones are taken */
    uint64_t key;     /* of the prompt, in the history */
    uint32_t max_new_tokens;
    uint32_t prompt_tokens;              /* 0: as long as it is as a list */
    uint32_t hint;                       /* the length that is expected; 0: none */
    int32_t replica;                     /* where its prefix is warm; -1: nowhere */
    int64_t timeout_ns;                  /* until it is whole; 0: 2 hours */
    const struct muster_value *sampling; /* a map, or NULL; borrowed */
    uint32_t turn; /* of a conversation, from 0: earlier turns go first */
    uint64_t
        session; /* whose next turn it is, instead of replica and turn; 0: of none */
    bool
        keep_surplus; /* what else was begun is kept: samples of the next group of this key,
                          prompt and sampling go on behind it */
};

#ifdef __cplusplus
inline struct muster_scheduler_options muster_scheduler_options_of()
{
    struct muster_scheduler_options o =
        muster_options_of<struct muster_scheduler_options>();

    o.slots = 1;
    o.max_staleness = -1;
    o.poison = 3;
    o.silence_ns = 60000000000;
    o.probe_ns = 10000000000;
    o.rebalance_ns = 2000000000;
    o.session_ttl_ns = 3600000000000;
    o.max_bias = 0.05;
    return o;
}
inline struct muster_submit_options muster_submit_options_of()
{
    struct muster_submit_options o = muster_options_of<struct muster_submit_options>();

    o.samples = 1;
    o.replica = -1;
    return o;
}
#define MUSTER_SCHEDULER_OPTIONS muster_scheduler_options_of()
#define MUSTER_SUBMIT_OPTIONS    muster_submit_options_of()
#else
#define MUSTER_SCHEDULER_OPTIONS                                                       \
    {                                                                                  \
        .size = (uint32_t)sizeof(struct muster_scheduler_options), .slots = 1,         \
        .max_staleness = -1, .poison = 3, .silence_ns = 60000000000,                   \
        .probe_ns = 10000000000, .rebalance_ns = 2000000000,                           \
        .session_ttl_ns = 3600000000000, .max_bias = 0.05                              \
    }
#define MUSTER_SUBMIT_OPTIONS                                                          \
    {                                                                                  \
        .size = (uint32_t)sizeof(struct muster_submit_options), .samples = 1,          \
        .replica = -1                                                                  \
    }
#endif

enum muster_weights_mode {
    MUSTER_WEIGHTS_ABORT = 0, /* requests are aborted, and resume from their tokens */
    MUSTER_WEIGHTS_WAIT = 1,  /* requests end first */
    MUSTER_WEIGHTS_KEEP = 2,  /* requests go on under the new weights */
};

#define MUSTER_RID 33 /* bytes of the id of a request, with its NUL */

struct muster_version_run {
    uint32_t version, tokens; /* so many tokens in a row were made with that version */
};

/* One answer; all of it is borrowed from its muster_samples. */
struct muster_sample {
    const int32_t *tokens;
    const float
        *logprobs; /* NAN where the engine gave none; NULL: it gave none at all */
    size_t count;
    const struct muster_version_run *versions;
    size_t version_count;
    const char *finish_reason; /* "stop", "length", or what the engine said */
    int32_t replica;           /* that ended it; -1: none had it */
    uint32_t attempt, seq;
    const char *rid;
    const char *failure; /* why it failed last; "": it did not */
};

struct muster_scheduler_stats {
    uint64_t submitted, delivered, dropped, failed; /* groups */
    uint64_t queued, running, aborting;             /* requests, now */
    uint64_t sent, resumed, moved;                  /* attempts */
    uint64_t tokens;                                /* of delivered groups */
    uint64_t streamed; /* tokens that have come, whatever became of them */
    uint32_t version, replicas_up;
};

MUSTER_BEGIN

/* `c` is borrowed: destroy the scheduler first. NULL with the reason. */
MUSTER_API struct muster_scheduler *
muster_scheduler_create(struct muster_cluster *c,
                        const struct muster_scheduler_options *options,
                        struct muster_error *err);
/* Cancel what runs, save the history. NULL does nothing. */
MUSTER_API void muster_scheduler_destroy(struct muster_scheduler *s);

/* The prompt is copied. *group names it. */
MUSTER_API int muster_scheduler_submit(struct muster_scheduler *s,
                                       const struct muster_value *prompt,
                                       const struct muster_submit_options *options,
                                       uint64_t *group,
                                       struct muster_error *err);

/* A conversation: its turns, submitted with options.session and the whole context so far, prefer
 * the replica that has the prefix. `key` is that of the turns, in the history (0: they have
 * none); `turn` the number of the first one, more than 0 for a conversation that was
 * forgotten. One without a turn for session_ttl_ns is: then submit gives -ENOENT. */
MUSTER_API int muster_scheduler_session(struct muster_scheduler *s,
                                        uint64_t key,
                                        uint32_t turn,
                                        uint64_t *session,
                                        struct muster_error *err);
/* It has no more turns; what is under way goes on. -ENOENT: there is no such (any more). */
MUSTER_API int muster_scheduler_session_finish(struct muster_scheduler *s,
                                               uint64_t session);

/* Wait for `count` finished groups, the oldest version first: they are yours. -ETIMEDOUT: none
 * was taken. -EREMOTEIO: a group has failed, and err says why; that is told once. */
MUSTER_API int muster_scheduler_get_batch(struct muster_scheduler *s,
                                          uint32_t count,
                                          int64_t timeout_ns,
                                          struct muster_samples **out,
                                          struct muster_error *err);
/* The same, but what you get are copies, and the groups are handed out again if you give the
 * batch back. Say consumed when you are done with them. -ENOENT: there is no such lease. */
MUSTER_API int muster_scheduler_lease(struct muster_scheduler *s,
                                      uint32_t count,
                                      int64_t timeout_ns,
                                      struct muster_samples **out,
                                      uint64_t *batch,
                                      struct muster_error *err);
MUSTER_API int muster_scheduler_consumed(struct muster_scheduler *s, uint64_t batch);
MUSTER_API int muster_scheduler_give_back(struct muster_scheduler *s, uint64_t batch);
/* Wait for one group, which then is in no batch; also one that was dropped
 * (muster_samples_dropped). -ENOENT: it was handed out already. */
MUSTER_API int muster_scheduler_wait(struct muster_scheduler *s,
                                     uint64_t group,
                                     int64_t timeout_ns,
                                     struct muster_samples **out,
                                     struct muster_error *err);

/* With options.filter: wait for a finished group that is to be judged; what you get is a copy.
 * Then say whether it is kept. */
MUSTER_API int muster_scheduler_judge(struct muster_scheduler *s,
                                      int64_t timeout_ns,
                                      struct muster_samples **out,
                                      struct muster_error *err);
MUSTER_API int
muster_scheduler_verdict(struct muster_scheduler *s, uint64_t group, bool keep);
/* How many groups are missing because they were filtered out or too old, since the last
 * time: submit others. */
MUSTER_API uint32_t muster_scheduler_missing(struct muster_scheduler *s);

/* -ENOENT: there is no such. */
MUSTER_API int muster_scheduler_cancel(struct muster_scheduler *s, uint64_t group);
MUSTER_API int muster_scheduler_cancel_rid(struct muster_scheduler *s, const char *rid);
MUSTER_API int muster_scheduler_cancel_all(struct muster_scheduler *s);

/* New weights: begin; then for each rank that _next gives (the first of its replica), give them
 * to that replica and say _ready. At a barrier (`rolling` false) _next gives ranks when all stand still; otherwise one
 * after the other. drain_ns: with WAIT, until requests are aborted; 0: never. */
MUSTER_API int muster_scheduler_weights_begin(struct muster_scheduler *s,
                                              uint32_t version,
                                              enum muster_weights_mode mode,
                                              bool rolling,
                                              int64_t drain_ns,
                                              struct muster_error *err);
/* 1 and a rank; 0: there is none left; -ETIMEDOUT. */
MUSTER_API int muster_scheduler_weights_next(struct muster_scheduler *s,
                                             int64_t timeout_ns,
                                             uint32_t *rank,
                                             struct muster_error *err);
/* -ENOENT: it was lost meanwhile. */
MUSTER_API int muster_scheduler_weights_ready(struct muster_scheduler *s,
                                              uint32_t rank);
/* Give the update up: all go on with what they had. */
MUSTER_API int muster_scheduler_weights_failed(struct muster_scheduler *s);

/* A worker that has missed weights (it is new, or was drained during an update) waits for the
 * next ones; this one was given those of the present version. -ENOENT: there is no such rank;
 * -EAGAIN: it does not wait, or an update is under way. */
MUSTER_API int muster_scheduler_restored(struct muster_scheduler *s, uint32_t rank);

/* Another number of workers of the cluster, and of replicas; -EINVAL: not of whole ones. Those that go are drained first:
 * their requests go on elsewhere from the tokens that they have. If that takes longer than
 * timeout_ns the cluster is as it was. A cluster that was resized otherwise, by whomever, is
 * followed by submit, get_stats and all functions that wait: requests of a worker that has ended go on
 * from the tokens that have come. 0 or a negative errno. */
MUSTER_API int muster_scheduler_resize(struct muster_scheduler *s,
                                       uint32_t world_size,
                                       int64_t timeout_ns,
                                       struct muster_error *err);

/* Do not use this worker until undrain, and wait until it has no requests: they go on elsewhere
 * from the tokens that they have. -EINVAL: there is no such, or it is the last one; -ETIMEDOUT: it
 * still has some, and gets no more. */
MUSTER_API int muster_scheduler_drain(struct muster_scheduler *s,
                                      uint32_t rank,
                                      int64_t timeout_ns,
                                      struct muster_error *err);
/* Use it again; if it has missed an update it waits for the next, or for restored. One that is
 * still being drained is used again when its requests have left. 0 also if it is in use. */
MUSTER_API int muster_scheduler_undrain(struct muster_scheduler *s,
                                        uint32_t rank,
                                        struct muster_error *err);

/* Send nothing until resume; returns when nothing runs, or (KEEP) engines stand still. */
MUSTER_API int muster_scheduler_pause(struct muster_scheduler *s,
                                      enum muster_weights_mode mode,
                                      int64_t timeout_ns,
                                      struct muster_error *err);
MUSTER_API int muster_scheduler_resume(struct muster_scheduler *s);

MUSTER_API void muster_scheduler_get_stats(struct muster_scheduler *s,
                                           struct muster_scheduler_stats *out);
/* How often the history was written, and how often not; *error: why not, the last time ("": it
 * always was). */
MUSTER_API void muster_scheduler_get_history(struct muster_scheduler *s,
                                             uint64_t *saves,
                                             uint64_t *failures,
                                             struct muster_error *error);
/* How far the lengths of what was delivered are from those of all that was generated, 0 to 1:
 * surplus prefers short answers. */
MUSTER_API double muster_scheduler_bias(struct muster_scheduler *s);
/* The id of sample `seq` of a group that is not over, for cancel_rid and explain. -ENOENT. */
MUSTER_API int muster_scheduler_rid(struct muster_scheduler *s,
                                    uint64_t group,
                                    uint32_t seq,
                                    char rid[MUSTER_RID]);
/* Why a request is where it is, as a sentence. -ENOENT: its group is over. */
MUSTER_API int muster_scheduler_explain(struct muster_scheduler *s,
                                        const char *rid,
                                        char *text,
                                        size_t size);

/* To wait for several things at once: a descriptor that becomes readable when there is news, and
 * then every function that waits may be tried with a timeout of 0. Read 8 bytes from it first. To
 * be given back with unlisten. It is one of at most 16; -ENOSPC. */
MUSTER_API int muster_scheduler_listen(struct muster_scheduler *s);
MUSTER_API void muster_scheduler_unlisten(struct muster_scheduler *s, int fd);

/* ---- samples ----------------------------------------------------------------------- */

MUSTER_API uint64_t muster_samples_group(const struct muster_samples *s);
MUSTER_API uint64_t muster_samples_key(const struct muster_samples *s);
/* NULL: it is whole. Else "poison", "refused", "deadline", "cancelled", "stale" or "filtered". */
MUSTER_API const char *muster_samples_dropped(const struct muster_samples *s);
MUSTER_API size_t muster_samples_count(const struct muster_samples *s);
/* False: there is no such. */
MUSTER_API bool muster_samples_at(const struct muster_samples *s,
                                  size_t index,
                                  struct muster_sample *out);
MUSTER_API void muster_samples_destroy(struct muster_samples *s);

MUSTER_END

#endif
