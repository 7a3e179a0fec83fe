/* state.h - what the parts of the client share
 *
 * client.c       its life, and the maps of the arena
 * held.c         what this process holds
 * private_map.h  parts of it that this process may write, for itself
 * objects.c      what it asks the agent for: making, attaching, adopting, granting
 * rpc.c          requests to the agent, and its answers
 * outbox.c       sending, also to an agent that does not read
 * spare.h        memory of this process alone that is used again
 */
#ifndef MS_STORE_CLIENT_STATE_H
#define MS_STORE_CLIENT_STATE_H

#include "base/list.h"
#include "base/map.h"
#include "store/client/client.h"

#include <pthread.h>

struct ms_store_client {
    int fd; /* -1: closed */
    bool is_forgotten;
    bool spills; /* the agent wants to know what is not read */
    bool (*is_interrupted)(void);
    uint64_t node, holder, limit, size;
    char *address, *warning;
    int arena_fd; /* -1: in a forked child */
    uint8_t *write_map;
    const uint8_t *read_map;

    int64_t answer_ns;

    pthread_mutex_t out_lock; /* guards these */
    struct ms_list outbox;
    size_t outbox_count;
    int64_t full_until_ns; /* when it is waited for no longer; 0: it reads */

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t news;
    unsigned refs;             /* the owner, and each held object */
    struct ms_map held;        /* by key */
    struct ms_held **by_place; /* those with bytes, by their place in the arena */
    size_t place_count, place_room;
    struct ms_list private_maps;
    size_t private_map_count;
    uint64_t next_request;
    /* For how long requests have waited without a word of the agent */
    int64_t silent_ns;
    bool is_pinged;  /* since then it was asked for one */
    bool is_read;    /* a thread reads the socket, */
    uint8_t *answer; /* into this */
    struct ms_list waiting;
    /* Not read any more, and the agent was not told: oldest first */
    struct ms_list resting;
    uint64_t resting_bytes, resting_max;
    bool *is_touched; /* by blocks: our writing map has its pages */
};

/* ---- client.c -------------------------------------------------------------------- */

/* Locked; unlocks. */
void ms_store_client_unref(struct ms_store_client *c);

/* ---- held.c ---------------------------------------------------------------------- */

/* Locked. What we have of an object, made if there is nothing; a new reference, or NULL
 * (out of memory). */
struct ms_held *ms_held_get(struct ms_store_client *c, const struct ms_stored_name *n);
/* Locked. A new reference, which reads. */
struct ms_held *ms_held_ref_locked(struct ms_held *h);
/* Locked. It can be read from now on, and the agent knows that. -EPROTO: that is not in the arena; -ENOMEM. */
int ms_held_set_bytes(struct ms_store_client *c, struct ms_held *h, uint64_t at);
/* The agent has `by` more counts of us, and so many more reads. */
int ms_store_client_count(
    struct ms_store_client *c, uint64_t node, uint64_t id, int64_t by, int64_t reads);

/* ---- private_map.c --------------------------------------------------------------- */

/* As ms_store_client_find_memory, for what is mapped privately. */
struct ms_held *ms_private_map_find(struct ms_store_client *c,
                                    const uint8_t *at,
                                    size_t len,
                                    uint64_t *offset);

/* ---- objects.c ------------------------------------------------------------------- */

/* Give back the counts of an answer whose request has given up. */
void ms_store_client_refuse_answer(struct ms_store_client *c,
                                   const Muster__StoreAnswer *m);

/* ---- rpc.c ----------------------------------------------------------------------- */

/* Between two looks for signals. */
enum { MS_STORE_POLL_MS = 100 };

/* Messages may be sent by any thread. 0 or a negative errno; may wait for room. */
int ms_store_rpc_send(struct ms_store_client *c,
                      Muster__StoreAsk__BodyCase what,
                      void *body);
/* A request that waits for its answer. */
struct ms_store_rpc {
    struct ms_list link;
    uint64_t request;
    Muster__StoreAnswer *answer;
    int rc; /* it was not sent, or the connection broke */
};

/* Send; several may be under way. ms_store_rpc_end has to follow, and tells what failed. */
void ms_store_rpc_start(struct ms_store_client *c,
                        Muster__StoreAsk__BodyCase what,
                        void *body,
                        struct ms_store_rpc *w);
/* The answer, which is a `want`; NULL and the reason, also if it is a Failure. */
Muster__StoreAnswer *ms_store_rpc_end(struct ms_store_client *c,
                                      struct ms_store_rpc *w,
                                      Muster__StoreAnswer__BodyCase want,
                                      struct ms_error *err);
/* Connect, prove the secret, say who we are; the arena's descriptor is in *arena. */
Muster__StoreAnswer *ms_store_rpc_open(struct ms_store_client *c,
                                       const struct ms_store_client_options *o,
                                       int *arena,
                                       struct ms_error *err);

/* ---- outbox.c -------------------------------------------------------------------- */

/* Without any lock. 0: it was sent, or will be; -ETIMEDOUT: a question is not kept. */
int ms_outbox_send(struct ms_store_client *c,
                   const void *data,
                   size_t len,
                   bool is_question);
/* The agent has said something: what waits may go. */
void ms_outbox_flush(struct ms_store_client *c);
void ms_outbox_finish(struct ms_store_client *c);

#endif
