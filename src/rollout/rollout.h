/* rollout.h - generation on real workers: what src/generate decides is carried out here
 *
 * A rollout has replicas, each the peer of a worker whose engine generates, and groups of
 * samples of prompts. What is submitted, what engines report and the time go as events into
 * the pure scheduler (generate/scheduler.h); its decisions become calls to the workers.
 * All order, retry, placement and counting is the scheduler's.
 *
 * What is called, with plain data (codec 2), on the engine of each replica:
 *   generate(request)  a stream of chunks {"tokens": [...], "logprobs": [...],
 *                      "version": n, "finish_reason": text}, all but tokens optional, or one
 *                      such map as its result. One without tokens says that the request
 *                      waits in the engine, and is not hung. The request is a map: rid, attempt, prompt,
 *                      tokens (generated before: go on behind them), max_new_tokens (of this
 *                      attempt), sampling, version
 *   abort(rid)         stop that request; the answer says that it is over. Before it the
 *                      stream is cancelled, so an engine that ends with its stream needs none
 *   pause(), resume()  stop and go on decoding, around an update of the weights
 *   alive()            answered if the engine runs; nothing else is asked of it
 * All but generate may be missing. A generate that fails is tried elsewhere, unless the type of
 * its error is MS_ROLLOUT_REFUSED, in whatever module: then the group has failed. An
 * answer that ends with "abort" goes on behind its tokens; without any it has failed.
 *
 * Replicas. A replica whose worker died is down: its requests go on elsewhere from the tokens
 * that have come. It is asked for again every MS_ROLLOUT_SEEK_NS, and used again when a
 * successor has its place. A replica that has missed an update of the weights, or is a new
 * worker after one, is used when it has got the next one; so is one whose engine says of its
 * tokens that they are of an older version than it was given.
 *
 * Threads. A rollout has a thread of its own, which takes what calls report, and all functions
 * may be called from any thread. None of them waits but ms_rollout_wait: what is not there yet
 * is -EAGAIN, to be tried again when there is news. In a forked child all fail with -ECHILD,
 * or give nothing where they cannot say so, and none waits for the lock.
 */
#ifndef MS_ROLLOUT_ROLLOUT_H
#define MS_ROLLOUT_ROLLOUT_H

#include "base/error.h"
#include "generate/explain.h"
#include "generate/partials.h"
#include "generate/scheduler.h"
#include "generate/sessions.h"
#include "muster/value.h"
#include "wire/client/client.h"

#include <stdbool.h>
#include <stdint.h>

#define MS_ROLLOUT_SEEK_NS   (1 * MS_NS_PER_S)  /* a dead replica is asked for again */
#define MS_ROLLOUT_ACK_NS    (60 * MS_NS_PER_S) /* abort, pause, resume, alive */
#define MS_ROLLOUT_BURST_NS  (1 * MS_NS_PER_MS) /* submits seen together */
#define MS_ROLLOUT_LOAD_NS   (100 * MS_NS_PER_MS) /* between measures of one replica */
#define MS_ROLLOUT_SAVE_NS   (30 * MS_NS_PER_S)   /* of the history */
#define MS_ROLLOUT_MARKS     65536                /* of the timeline that are kept */
#define MS_ROLLOUT_REASON    24                   /* bytes of a finish_reason */
#define MS_ROLLOUT_FAILURE   512                  /* bytes of why a sample failed */
#define MS_ROLLOUT_RID       33                   /* 32 hexadecimal digits */
#define MS_ROLLOUT_LISTENERS 16
#define MS_ROLLOUT_PARTIALS  (UINT64_C(1) << 24) /* tokens of surplus that are kept */
#define MS_ROLLOUT_RESUMES   3 /* that fail in a row before a replica is given up */
#define MS_ROLLOUT_NO_LIMIT  UINT32_MAX
#define MS_ROLLOUT_FORKED    "a scheduler is of no use in a forked child"
#define MS_ROLLOUT_REFUSED   "RequestRefused"

struct ms_rollout;

struct ms_rollout_options {
    struct ms_scheduler_options core; /* its policy is filled in */
    const char *policy;               /* its name (generate/policy.h); NULL: "auto" */
    const char *engine;               /* in the workers; NULL: "default" */
    const char *role;                 /* whose replicas it has; or NULL */
    const char
        *history; /* a file of lengths, kept across restarts; "": none; NULL: that of
                               the role (ms_rollout_history_of), if there is such */
    size_t history_prompts; /* that it keeps; 0: a million */
    uint32_t version;       /* of the weights that all replicas begin with */
    uint32_t slots;         /* of each replica, at least 1 */
    uint32_t kv_tokens;     /* that its cache holds; 0: no limit */
    uint32_t tp, cp, pp;    /* ranks of one replica: sizes of the mesh; 0: 1 */
    int64_t session_ttl_ns; /* 0: MS_GEN_SESSION_TTL_NS */
};

/* Where the lengths of a role are kept in a job that has a folder for its checkpoints, for the
 * caller to free; NULL: there is none. */
char *ms_rollout_history_of(const char *role);

/* NULL with the reason: -EBADMSG if the history is no such file. */
struct ms_rollout *ms_rollout_create(const struct ms_rollout_options *o,
                                     struct ms_error *err);
/* Cancel all that runs, save the history, end the thread. All that waits gets -ESHUTDOWN, and
 * so does all that is asked from now on. Idempotent. */
void ms_rollout_close(struct ms_rollout *r);
/* The same, and free it. NULL does nothing. */
void ms_rollout_destroy(struct ms_rollout *r);

/* 0; -ESHUTDOWN: it was closed; -ECHILD. */
int ms_rollout_status(struct ms_rollout *r);

/* ---- news -------------------------------------------------------------------------- */

/* Wait until something has happened since `seen`, at most until until_ns: what to give the
 * next time. 0 as `seen` returns at once, and so does all when it is closed. */
uint64_t ms_rollout_wait(struct ms_rollout *r, uint64_t seen, int64_t until_ns);
/* A descriptor that becomes readable (an eventfd) at each news; the caller's, to be given
 * back with unlisten. -ENOSPC, -EMFILE. */
int ms_rollout_listen(struct ms_rollout *r);
void ms_rollout_unlisten(struct ms_rollout *r, int fd);

/* ---- the role ---------------------------------------------------------------------- */

/* These are its workers now, by rank: each of them, or with a mesh the first of each
 * data-parallel group, is a replica, and what is not among them is let go: its requests move
 * on. A replica that has not got the present weights (it is a new worker after an update, or was
 * drained during one) waits for the next ones, or for ms_rollout_restored. What cannot be so yet,
 * because requests are still leaving, becomes so by itself. -EINVAL: no workers, or not as many
 * as the mesh needs: nothing changes. */
int ms_rollout_follow(struct ms_rollout *r,
                      struct ms_peer *const *peers,
                      uint32_t ranks,
                      struct ms_error *err);
/* Replicas from this number on are not used, whatever is followed, so that their workers can be
 * ended. 0: they are gone; -EAGAIN: requests are still leaving, ask again at news; -EINVAL: at
 * least one that is not drained must stay. */
int ms_rollout_limit(struct ms_rollout *r, uint32_t replicas);
/* Use the replicas of these ranks no more, until undrain. 0: they are gone; -EAGAIN: as above;
 * -EINVAL: at least one must stay; -ENOENT: there is no such rank. */
int ms_rollout_drain(struct ms_rollout *r, const uint32_t *ranks, size_t count);
int ms_rollout_undrain(struct ms_rollout *r, const uint32_t *ranks, size_t count);
/* The first rank of a replica, and the replica that a rank is of (-ENOENT: of none). */
uint32_t ms_rollout_rank(struct ms_rollout *r, uint32_t replica);
int ms_rollout_replica(struct ms_rollout *r, uint32_t rank, uint32_t *replica);

/* ---- groups ------------------------------------------------------------------------ */

struct ms_rollout_submit {
    uint64_t key; /* of the prompt, in the history */
    const struct muster_value *prompt;
    const struct muster_value *sampling; /* a map or NULL */
    uint32_t samples, surplus;
    /* What was begun as surplus is kept, and samples of the next group of this key, prompt and
     * sampling go on behind it, while it is not too old. Of a session's first turn only. */
    bool keeps_surplus;
    uint32_t prompt_tokens; /* 0: the length of a list, else of a text by 4 */
    uint32_t max_new_tokens;
    uint32_t hint;       /* expected tokens; 0: none */
    uint64_t session;    /* whose next turn it is; 0: of none */
    uint32_t replica;    /* of none: where its prefix is warm, or MS_NOWHERE */
    uint32_t turn;       /* of none: of its conversation, from 0 */
    int64_t deadline_ns; /* absolute; MS_NEVER: none */
    /* What its one sample has already, or NULL; copied. It goes on behind these tokens, which
     * count in max_new_tokens. Of it only tokens, logprobs, count and runs are looked at. */
    const struct ms_rollout_sample *before;
};
/* -ENOENT: there is no such session (any more). */
int ms_rollout_submit(struct ms_rollout *r,
                      const struct ms_rollout_submit *s,
                      uint64_t *group,
                      struct ms_error *err);

/* A conversation, whose turns go where its prefix is. `key` is that of its turns, in the history
 * (0: none); `turn` that of the first one. One that has no turn under way and had none for the
 * time to live is forgotten. */
int ms_rollout_session_open(struct ms_rollout *r,
                            uint64_t key,
                            uint32_t turn,
                            uint64_t *id,
                            struct ms_error *err);
/* -ENOENT: there is no such (any more). */
int ms_rollout_session_finish(struct ms_rollout *r, uint64_t id);
/* That has its prefix, or MS_NOWHERE. -ENOENT. */
int ms_rollout_session_replica(struct ms_rollout *r, uint64_t id, uint32_t *replica);

struct ms_rollout_run {
    uint32_t version, tokens; /* so many tokens of that version, in order */
};

struct ms_rollout_sample {
    char rid[MS_ROLLOUT_RID];
    uint32_t seq, replica, attempt; /* of the last attempt */
    uint32_t epoch, weights; /* of its replica when it was done: whose cache has it */
    bool is_done;
    size_t count, room; /* tokens */
    int32_t *tokens;
    float *logprobs; /* NAN where there was none; NULL: there were none at all */
    struct ms_rollout_run *runs;
    size_t run_count, run_room;
    char reason[MS_ROLLOUT_REASON]; /* "stop", "length", or what the engine said */
    char failure[MS_ROLLOUT_FAILURE];
};

/* One that is over. `count` samples, of which those with is_done belong to it. */
struct ms_rollout_group {
    uint64_t id, key;
    uint16_t why; /* enum ms_generate_why; MS_WHY_NONE: all samples are there */
    uint32_t wanted, count;
    struct ms_rollout_sample *samples;
};
void ms_rollout_group_free(struct ms_rollout_group *g); /* NULL is fine */

/* The `groups` finished ones that are first, in order: 0, and they are the caller's. -EAGAIN. */
int ms_rollout_pull(struct ms_rollout *r,
                    uint32_t groups,
                    struct ms_rollout_group **out);
/* The same, as copies, until the batch is said to be consumed or is given back: then they are
 * handed out again, by their order. -ENOMEM: none is leased. */
int ms_rollout_lease(struct ms_rollout *r,
                     uint32_t groups,
                     struct ms_rollout_group **out,
                     uint64_t *batch);
/* -ENOENT: there is no such lease (any more). */
int ms_rollout_consumed(struct ms_rollout *r, uint64_t batch);
int ms_rollout_give_back(struct ms_rollout *r, uint64_t batch);
/* One by its id, finished or dropped (then `why` is set): 0 and it is the caller's. -EAGAIN:
 * it is not over; -ENOENT: it was handed out already. */
int ms_rollout_take(struct ms_rollout *r, uint64_t id, struct ms_rollout_group **out);
/* The next one that was dropped and that nobody has taken. -EAGAIN. */
int ms_rollout_take_dropped(struct ms_rollout *r, struct ms_rollout_group **out);

/* With core.filter: a copy of the next finished group to be judged, the caller's. -EAGAIN. */
int ms_rollout_judge(struct ms_rollout *r, struct ms_rollout_group **out);
int ms_rollout_verdict(struct ms_rollout *r, uint64_t id, bool keep);
/* Groups that are missing (filtered out or too old) and that nobody has been told of yet. */
uint32_t ms_rollout_take_refill(struct ms_rollout *r);

/* Not wanted any more: a group, one sample by its rid, or all. -ENOENT. */
int ms_rollout_cancel(struct ms_rollout *r, uint64_t group);
int ms_rollout_cancel_rid(struct ms_rollout *r, const char *rid);
int ms_rollout_cancel_all(struct ms_rollout *r);

/* ---- weights ----------------------------------------------------------------------- */

/* Prepare for new weights. -EBUSY: an update is under way; -EINVAL: not a later version. */
int ms_rollout_weights_begin(struct ms_rollout *r,
                             uint32_t version,
                             enum ms_weights_mode mode,
                             bool rolling,
                             int64_t deadline_ns);
/* The next replica to give the weights to: 1. At a barrier not before all of them can get
 * them. 0: there is none left, and the update has ended or waits for ms_rollout_weights_ready.
 * -EAGAIN: wait. -EREMOTEIO: an engine has failed to pause; the `failure` of its replica, which
 * is up, says why. Give the update up then. */
int ms_rollout_weights_next(struct ms_rollout *r, uint32_t *replica);
/* That one has them. The update ends with the last. */
int ms_rollout_weights_ready(struct ms_rollout *r, uint32_t replica);
/* Give it up: all go on with what they had. */
int ms_rollout_weights_failed(struct ms_rollout *r);
/* The replica of this rank, which waits for weights, was given those of the present version: it
 * is used from now on. -EALREADY: it is used; -EAGAIN: it does not run, try again at news;
 * -EBUSY: an update is under way; -ENOENT: there is no such rank. */
int ms_rollout_restored(struct ms_rollout *r, uint32_t rank);
uint32_t ms_rollout_version(struct ms_rollout *r);

/* Send nothing until resume; what runs is aborted and goes on later, ends (wait), or stands
 * still in its engine (keep). 0 from ms_rollout_is_paused when it is so; else -EAGAIN, or -EREMOTEIO
 * as above. */
int ms_rollout_pause(struct ms_rollout *r, enum ms_weights_mode mode);
int ms_rollout_is_paused(struct ms_rollout *r);
int ms_rollout_resume(struct ms_rollout *r);

/* ---- looking ----------------------------------------------------------------------- */

enum ms_rollout_state {
    MS_ROLLOUT_FREE,
    MS_ROLLOUT_UP,
    MS_ROLLOUT_DRAINING,
    MS_ROLLOUT_DOWN,    /* asked for again and again */
    MS_ROLLOUT_WAITING, /* it runs, but has not got the weights */
};
const char *ms_rollout_state_name(uint32_t state);

struct ms_rollout_replica_stats {
    uint32_t replica, state, slots, version, epoch, running;
    uint64_t tokens; /* that have come from it */
    char failure[MS_ROLLOUT_FAILURE];
};
/* Of the history. One that fails is tried again after MS_ROLLOUT_SAVE_NS. */
struct ms_rollout_saves {
    uint64_t saves, failures;
    char error[MS_ROLLOUT_FAILURE]; /* of the last one that failed; "": none */
};
struct ms_rollout_stats {
    struct ms_scheduler_stats core;
    uint64_t submitted;
    uint64_t sessions; /* that are open */
    struct ms_partials_stats partials;
    uint32_t version;
    double bias, correlation;
    struct ms_rollout_saves saves;
};
void ms_rollout_stats(struct ms_rollout *r, struct ms_rollout_stats *out);
/* Of replica number `i`; false: there is none. */
bool ms_rollout_replica_stats(struct ms_rollout *r,
                              uint32_t i,
                              struct ms_rollout_replica_stats *out);

/* A sentence about a request by its rid. -ENOENT. */
int ms_rollout_explain(struct ms_rollout *r,
                       const char *rid,
                       struct ms_explanation *x,
                       char *text,
                       size_t size);
/* Of sample `seq` of a group that is open. -ENOENT. */
int ms_rollout_rid(struct ms_rollout *r,
                   uint64_t group,
                   uint32_t seq,
                   char rid[MS_ROLLOUT_RID]);

/* The timeline: what happened, the last MS_ROLLOUT_MARKS. Kinds are those of decisions
 * (`is_decision`) and of events. */
struct ms_rollout_mark {
    int64_t at_ns;
    uint64_t request, group; /* 0: none */
    uint16_t what, why, seq;
    bool is_decision;
    uint32_t replica, attempt, tokens, version;
};
/* Copies of those from number `from` on (the first ever is 0), at most `room`; *next is the
 * number behind the last. */
size_t ms_rollout_marks(struct ms_rollout *r,
                        uint64_t from,
                        struct ms_rollout_mark *out,
                        size_t room,
                        uint64_t *next);

#endif
