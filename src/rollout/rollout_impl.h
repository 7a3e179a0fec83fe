/* rollout_impl.h - what the files of this folder share
 *
 * rollout.c   life, the thread, events into the scheduler, news
 * carry.c     its decisions, carried out
 * calls.c     calls to workers, and what becomes of them
 * role.c      which workers of the role are replicas: all, but those that are drained
 * replicas.c  replicas: up, down, sought, let go, measured
 * chunk.c     what engines send
 * groups.c    groups and their samples, until they are over
 * sessions.c  conversations: what their next turn begins with
 * batches.c   groups that are over are handed out
 * partials.c  surplus that was begun, for the next group of its prompt
 * weights.c   updates of the weights
 * look.c      numbers, explanations, the timeline
 * history.c   the file of lengths
 *
 * One lock guards all. It is taken by the functions of rollout.h and by the callbacks of the
 * loop; everything below runs with it held. Events that arise while decisions are carried out
 * wait in `events`: the scheduler is never entered from inside.
 */
#ifndef MS_ROLLOUT_ROLLOUT_IMPL_H
#define MS_ROLLOUT_ROLLOUT_IMPL_H

#include "base/clock.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/map.h"
#include "dispatch/mesh.h"
#include "generate/partials.h"
#include "generate/policy.h"
#include "io/loop.h"
#include "rollout/rollout.h"

#include <pthread.h>
#include <sys/types.h>

enum call_kind {
    CALL_GENERATE,
    CALL_ABORT,
    CALL_PROBE,
    CALL_SEEK,
    CALL_PAUSE,
    CALL_FLUSH, /* after a pause: what was made before has come when it is answered */
    CALL_RESUME
};

/* A call under way; in r->calls by its tag, and on its replica's list. */
struct open_call {
    struct ms_list link;
    enum call_kind kind;
    uint64_t tag;
    struct ms_call *call;
    struct replica *replica;
    /* GENERATE, ABORT */
    uint64_t id;
    uint32_t attempt;
    struct request *request;     /* NULL: its group was handed out */
    uint32_t before, max_tokens; /* tokens at the start; of this attempt */
    uint32_t tokens;             /* now */
    uint32_t version;            /* of the weights when it was sent */
    int64_t heard_ns;
};

struct replica {
    uint32_t number, state, version, epoch;
    struct ms_peer *peer;
    uint64_t uid; /* of the worker that it is */
    struct ms_list calls;
    uint32_t running; /* GENERATE calls */
    enum { UPDATE_NONE, UPDATE_PAUSING, UPDATE_TOLD, UPDATE_GIVEN } update;
    bool is_pausing;  /* by ms_rollout_pause, not answered yet */
    bool is_standing; /* its engine was told to pause, and not yet to resume */
    bool has_refused; /* to pause; `failure` says why */
    uint32_t resumes; /* that have failed in a row */
    bool no_pause;    /* its engine has no such method */
    bool
        is_behind; /* DRAINING, to wait then for weights that it has not got, it says */
    int64_t seek_ns, load_ns;
    uint64_t tokens;
    char failure[MS_ROLLOUT_FAILURE];
};

/* A worker of the role that is to be a replica; with a mesh the first rank of each group. */
struct member {
    struct ms_peer *peer;
    bool is_aside; /* `drain` was asked for */
    bool is_going; /* while that is looked at */
};

struct request {
    struct group *group;
    uint64_t id;
    struct open_call *stream;
    struct ms_rollout_sample *sample; /* of the group's */
    bool is_unwanted;                 /* it was cancelled, or is surplus */
};

enum group_state { GROUP_OPEN, GROUP_JUDGED, GROUP_READY, GROUP_LEASED, GROUP_DROPPED };

struct group {
    struct ms_list link; /* judged, leased or dropped */
    enum group_state state;
    uint64_t batch; /* LEASED: in this one */
    uint32_t max_new;
    bool keeps_surplus;
    uint64_t session; /* whose turn it is, as long as it is under way; 0: of none */
    struct ms_rollout_group *out;
    struct request *requests; /* by seq */
    struct muster_value *prompt, *sampling;
};

struct ms_rollout {
    pthread_mutex_t lock;
    pthread_cond_t has_news;
    uint64_t news;
    int listeners[MS_ROLLOUT_LISTENERS];
    pid_t pid;
    pthread_t thread;
    struct ms_loop *loop;
    struct ms_inbox *inbox;
    struct ms_watch inbox_watch;
    struct ms_timer timer;
    int64_t armed_ns, tick_ns;
    char *engine, *history;
    struct ms_lengths *lengths;
    struct ms_gen_sessions *sessions;
    struct ms_partials *partials;
    struct ms_scheduler *core;
    uint64_t nonce;
    struct ms_map groups, requests, calls; /* by id, id, tag */
    struct ms_map
        keys; /* by key: the open group that came first of those of that prompt */
    uint64_t last_group, last_batch, last_tag;
    struct replica **replicas; /* by number; NULL: none */
    size_t replica_count, replica_room;
    struct ms_mesh mesh; /* of the role; its dp is member_count */
    uint32_t slots, kv_tokens;
    struct member *members; /* by number of their replicas */
    size_t member_count, member_room;
    uint32_t replicas_max; /* replicas from this number on are not used */
    struct ms_list judged, leased, dropped;
    struct ms_generate_event *events; /* that wait */
    size_t event_count, event_room;
    bool is_stepping, is_closing;
    uint32_t version, first_version, epochs, refill, staleness_max;
    struct ms_map versions; /* of workers that were drained, by uid: version + 1 */
    bool has_filter, is_updating, is_rolling, is_paused;
    bool update_done; /* the scheduler has said so */
    enum ms_weights_mode pause_mode;
    uint32_t update_version;
    uint64_t submitted, learnt, saved; /* groups that ended; until the last save */
    int64_t save_ns;
    struct ms_rollout_saves save_stats;
    pthread_t saver; /* writes the history; if has_saver it is to be joined */
    bool has_saver, is_saving;
    struct ms_rollout_mark *marks; /* a ring */
    uint64_t mark_count;
};

/* How every function of rollout.h begins. In a forked child a thread that is not there may
 * hold the lock: it is not taken, and the result is `otherwise`. */
#define MS_ROLLOUT_ENTER(r, otherwise)                                                 \
    if (ms_rollout_is_forked(r))                                                       \
        return otherwise;                                                              \
    MS_LOCK(&(r)->lock)

/* rollout.c */
bool ms_rollout_is_forked(const struct ms_rollout *r);
/* Take an event, and all that follows. The result is the event's own; events that wait are
 * taken first. */
int ms_rollout_step(struct ms_rollout *r, const struct ms_generate_event *e);
/* Take it when what is under way is done. */
void ms_rollout_later(struct ms_rollout *r, struct ms_generate_event e);
void ms_rollout_news(struct ms_rollout *r);
/* Wake the thread at this time at the latest. */
void ms_rollout_arm(struct ms_rollout *r);
/* -ECHILD in a forked child, -ESHUTDOWN while it ends. */
int ms_rollout_check(const struct ms_rollout *r);

/* 32 hexadecimal digits: never those of another request, of any scheduler. */
int ms_rollout_rid_parse(const struct ms_rollout *r,
                         const char *rid,
                         uint64_t *id); /* -ENOENT */
void ms_rollout_rid_print(const struct ms_rollout *r,
                          uint64_t id,
                          char rid[MS_ROLLOUT_RID]);

/* carry.c */
void ms_rollout_carry_out(struct ms_rollout *r, const struct ms_generate_decision *d);

/* calls.c */
/* Start one; NULL: it could not be. `argument` may be NULL: none. */
struct open_call *ms_rollout_call_start(struct ms_rollout *r,
                                        struct replica *rep,
                                        enum call_kind kind,
                                        const struct muster_value *argument);
int ms_rollout_call_start_generate(struct ms_rollout *r,
                                   struct replica *rep,
                                   struct request *q,
                                   const struct ms_generate_decision *d);
/* Cancel and forget it. */
void ms_rollout_call_drop(struct ms_rollout *r, struct open_call *c);
void ms_rollout_call_drop_all(struct ms_rollout *r, struct replica *rep);
/* There may be items, or its end. */
void ms_rollout_call_hear(struct ms_rollout *r, struct open_call *c);
/* Take the items that are there. 0, or -EBADMSG: it was dropped. */
int ms_rollout_call_take_items(struct ms_rollout *r, struct open_call *c);
/* If all of its answer was taken, and only the end of its stream is missing, report its end
 * and drop it: sent again, it would go on behind its end. */
bool ms_rollout_call_finish_whole(struct ms_rollout *r, struct open_call *c);

/* chunk.c */
/* Into the sample: 0; -EBADMSG or -ENOMEM with the reason. `max` tokens at most. */
int ms_rollout_chunk_take(struct ms_rollout_sample *s,
                          const uint8_t *body,
                          size_t len,
                          uint32_t version,
                          uint32_t max,
                          struct ms_error *err);

/* role.c */
/* Let the replica of this number go, or add it, if that is what the role wants. -ENOMEM. */
int ms_rollout_role_settle(struct ms_rollout *r, uint32_t number);
void ms_rollout_role_finish(struct ms_rollout *r);
/* Of a rank, whichever it is of its group: stages of a pipeline are the slowest of a mesh, so
 * those of one group are not next to each other. -ENOENT. */
int ms_rollout_number(const struct ms_rollout *r, uint32_t rank, uint32_t *replica);

/* replicas.c */
/* The one of this number, which was not there. If it has not got the present weights (it is a
 * new worker after an update, or was drained during one) it waits for the next ones. -ENOMEM. */
int ms_rollout_replica_add(struct ms_rollout *r, uint32_t number, struct ms_peer *peer);
struct replica *ms_rollout_replica_find(const struct ms_rollout *r, uint32_t number);
/* Its worker is gone or as good as gone. */
void ms_rollout_replica_down(struct ms_rollout *r,
                             struct replica *rep,
                             const char *why);
void ms_rollout_replica_found(struct ms_rollout *r, struct replica *rep);
void ms_rollout_replica_released(struct ms_rollout *r, struct replica *rep);
/* It has the weights that it waited for. */
void ms_rollout_replica_up(struct ms_rollout *r, struct replica *rep);
/* True if another worker has its place now: then it is down. */
bool ms_rollout_replica_has_changed(struct ms_rollout *r, struct replica *rep);
/* Of all: those that run nothing are not heard of otherwise. */
void ms_rollout_replicas_check(struct ms_rollout *r);
int64_t ms_rollout_replicas_tick(struct ms_rollout *r, int64_t now_ns);
void ms_rollout_replica_measure(struct ms_rollout *r,
                                struct replica *rep,
                                struct open_call *c,
                                uint32_t tokens,
                                int64_t now_ns);

/* groups.c */
struct group *ms_rollout_group_find(const struct ms_rollout *r, uint64_t id);
/* Out of the maps, and its result; the rest is freed. */
struct ms_rollout_group *ms_rollout_group_take(struct ms_rollout *r, struct group *g);
/* An end of an attempt is about to be reported: is its sample whole? */
void ms_rollout_request_ended(struct ms_rollout *r, const struct ms_generate_event *e);
void ms_rollout_group_ready(struct ms_rollout *r, uint64_t id);
void ms_rollout_group_dropped(struct ms_rollout *r, uint64_t id, uint16_t why);
void ms_rollout_groups_finish(struct ms_rollout *r);
/* NULL: out of memory. */
struct ms_rollout_group *ms_rollout_group_copy(const struct ms_rollout_group *g);

/* sessions.c */
/* What this submit begins with, by its session or by itself. -ENOENT: there is no such. */
int ms_rollout_turn_of(struct ms_rollout *r,
                       const struct ms_rollout_submit *s,
                       struct ms_gen_turn *out);
/* Its samples are there, or it was dropped. */
void ms_rollout_turn_over(struct ms_rollout *r, struct group *g);

/* partials.c */
uint32_t ms_rollout_oldest_version(const struct ms_rollout_sample *s); /* of a token */
/* It has all that it wanted: what else it began is kept, if it was asked for. */
void ms_rollout_partials_keep(struct ms_rollout *r, struct group *g);
/* Samples of a new group begin with what is kept of its prompt. */
void ms_rollout_partials_take(struct ms_rollout *r, struct group *g);
void ms_rollout_partials_expire(struct ms_rollout *r); /* there is a new version */
void ms_rollout_partial_release(void *what);

/* batches.c */
/* It is part of the batch that was begun last. */
void ms_rollout_group_delivered(struct ms_rollout *r, uint64_t id);

/* weights.c */
void ms_rollout_weights_tell(struct ms_rollout *r, struct replica *rep);
void ms_rollout_weights_paused(struct ms_rollout *r, struct replica *rep);
/* Its engine has failed to pause or to resume: what waits for the pause fails, and a resume
 * is tried again. */
void ms_rollout_weights_refused(struct ms_rollout *r,
                                struct replica *rep,
                                enum call_kind asked,
                                const char *why);
/* Resume its engine, if nothing wants it to stand still. */
void ms_rollout_weights_go_on(struct ms_rollout *r, struct replica *rep);
void ms_rollout_weights_updated(struct ms_rollout *r, uint32_t version);
/* Tokens have come with an older version than the replica had when they were asked for: it has
 * not got the weights. It is drained, and waits for them then. */
void ms_rollout_weights_fell_back(struct ms_rollout *r,
                                  struct open_call *c,
                                  uint32_t version);
/* Its requests have left. */
void ms_rollout_weights_wait(struct ms_rollout *r, struct replica *rep);

/* look.c */
void ms_rollout_mark_decision(struct ms_rollout *r,
                              const struct ms_generate_decision *d);
void ms_rollout_mark_event(struct ms_rollout *r, const struct ms_generate_event *e);

/* history.c */
int ms_rollout_history_load(struct ms_rollout *r, struct ms_error *err);
/* Begin to write it, on a thread of its own: disks are slow, and tokens do not wait. If one is
 * under way nothing is done. */
void ms_rollout_history_save(struct ms_rollout *r);
/* At the end, without the lock: what is under way is waited for, and the last state is written. */
void ms_rollout_history_finish(struct ms_rollout *r);

#endif
