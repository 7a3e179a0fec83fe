/* orchestrator.h - the one interface between Muster and whatever lends it machines
 *
 * An orchestrator lends a gang of pieces, all or none, and starts one agent on each node
 * that they are on; the agent dials the head. It provisions, scales and reports. It
 * holds no policy: what is wanted was decided before it is called.
 *
 * Words. A reservation is what was asked for under one key. A piece is an element of it:
 * a bundle of resources on one node. A piece has a number that never changes, and an
 * incarnation that counts how often it was lent. Phases of one incarnation only go
 * forward.
 *
 * How to implement one. Put `struct ms_orchestrator` first in your own struct and fill a
 * const table of operations; inventory.h keeps what list, describe and watch tell. All of
 * it runs on one thread.
 *  - Every operation returns at once. It completes exactly once, later, never from
 *    inside; after `cancel` still exactly once, with -ECANCELED unless it had won.
 *  - Arguments are borrowed until the operation returns.
 *  - What could not be asked completes with -EAGAIN, and what may not be asked with
 *    -EACCES. Neither is an empty answer, and the caller then decides nothing.
 *  - reserve completes with 0 when every piece is RUNNING. Otherwise nothing of it is
 *    left. More pieces of what is not there: -ENOENT. With a key that is held: the same again if the same is asked for, else
 *    -EEXIST. At its deadline: -ETIMEDOUT, with what is there and what was asked.
 *  - release of what is not there succeeds.
 *  - A watch tells every change after its cursor, once and in order, and says -ESTALE
 *    when it cannot: then list, and watch from there.
 *  - With MS_ORCH_DURABLE reservations outlive the controller, and the next one finds
 *    them by list. Without, they end with it.
 */
#ifndef MS_ORCHESTRATOR_ORCHESTRATOR_H
#define MS_ORCHESTRATOR_ORCHESTRATOR_H

#include "resource/place.h"

#define MS_ORCH_KEY_MAX    ((size_t)64)
#define MS_ORCH_DETAIL_MAX ((size_t)256)
#define MS_ORCH_PIECES_MAX ((size_t)1 << 20)

enum ms_orch_can {
    MS_ORCH_BUNDLES = 1 << 0, /* pieces smaller than a node */
    MS_ORCH_LABELS = 1 << 1,
    MS_ORCH_SAME = 1 << 2, /* all pieces within one value of a label */
    MS_ORCH_AVOID = 1 << 3,
    MS_ORCH_GROW = 1 << 4,   /* piece by piece, both ways */
    MS_ORCH_DURABLE = 1 << 5 /* reservations outlive the controller */
};

enum ms_phase {
    MS_PHASE_PENDING,  /* asked for */
    MS_PHASE_STARTING, /* lent; its agent is on its way */
    MS_PHASE_RUNNING,
    MS_PHASE_ENDED
};

/* Why a piece ended. The backend's own words are in its detail. */
enum ms_cause {
    MS_CAUSE_NONE,
    MS_CAUSE_RELEASED, /* we asked for it */
    MS_CAUSE_EXITED,   /* its agent ended by itself: the code */
    MS_CAUSE_SIGNALED, /* the code is the signal */
    MS_CAUSE_OUT_OF_MEMORY,
    MS_CAUSE_PREEMPTED,
    MS_CAUSE_NODE_LOST,
    MS_CAUSE_REFUSED, /* it never started */
    MS_CAUSE_UNKNOWN
};

const char *ms_phase_name(enum ms_phase p); /* "running" */
const char *ms_cause_name(enum ms_cause c); /* "node lost" */

/* ---- what is told ------------------------------------------------------------------ */

struct ms_lent_piece {
    uint32_t number, incarnation; /* incarnations count from 1 */
    enum ms_phase phase;
    enum ms_cause cause;
    int code;
    const char *node;   /* the backend's name of it; NULL: not known yet */
    const char *agent;  /* what its agent is called at the head; NULL: like the node */
    const char *detail; /* NULL: none */
    const uint32_t *devices; /* on the node */
    size_t device_count;
};

/* Pieces in the order of their numbers, which may have gaps after a release of some. */
struct ms_reservation {
    const char *key;
    const struct ms_lent_piece *const *pieces;
    size_t count;
};

/* Borrowed for as long as the completion runs. */
struct ms_orch_answer {
    const struct ms_reservation *reservations; /* reserve, describe: one */
    size_t count;
    uint64_t cursor; /* list: where a watch goes on */
    uint32_t first;  /* reserve: the number of the first piece that was asked for */
};

struct ms_orch_event {
    uint64_t cursor;
    const char *key;
    const struct ms_lent_piece *piece; /* as it is now */
    bool gone;                         /* the reservation has no such piece any more */
};

/* rc is 0, or a negative errno that `why` explains. */
typedef void ms_orch_done(void *arg,
                          int rc,
                          const struct ms_error *why,
                          const struct ms_orch_answer *answer);
/* An event; or rc < 0 and none: the watch has ended. */
typedef void ms_orch_watched(void *arg, int rc, const struct ms_orch_event *event);

/* ---- what is asked ----------------------------------------------------------------- */

/* How agents find the head; for a backend that starts none (sim) it is nothing. */
struct ms_agent_start {
    const char *head;        /* "HOST:PORT" */
    const char *secret_file; /* readable by the agent */
    const char *const *env;  /* "NAME=value", NULL-terminated; NULL: none */
};

struct ms_reserve {
    const char *key;
    bool
        is_more; /* as many pieces more, all or none, in the reservation that is there */
    struct ms_place_request pieces; /* bundle i is piece i; its name is not looked at */
    const struct ms_agent_start *agent;
    int64_t timeout_ns;
};

struct ms_orchestrator;
struct ms_orch_op;    /* one operation that is under way; dead when it has completed */
struct ms_orch_watch; /* one watch; dead after rc < 0 */

/* NULL: out of memory, and nothing will complete. */
struct ms_orchestrator_ops {
    const char *name; /* as a person writes it: "local", "kubernetes", "ray" */
    uint32_t can;     /* ms_orch_can */
    struct ms_orch_op *(*reserve)(struct ms_orchestrator *o,
                                  const struct ms_reserve *r,
                                  ms_orch_done *done,
                                  void *arg);
    /* The pieces of these numbers; with a count of 0 all, and the reservation itself. */
    struct ms_orch_op *(*release)(struct ms_orchestrator *o,
                                  const char *key,
                                  const uint32_t *pieces,
                                  size_t count,
                                  ms_orch_done *done,
                                  void *arg);
    /* Of one key (-ENOENT), or with NULL all. */
    struct ms_orch_op *(*list)(struct ms_orchestrator *o,
                               const char *key,
                               ms_orch_done *done,
                               void *arg);
    struct ms_orch_watch *(*watch)(struct ms_orchestrator *o,
                                   uint64_t cursor,
                                   ms_orch_watched *watched,
                                   void *arg);
    void (*unwatch)(struct ms_orch_watch *w); /* NULL is nothing */
    /* Lend nothing there from now on, and say why when that is the reason. */
    struct ms_orch_op *(*avoid)(struct ms_orchestrator *o,
                                const char *node,
                                const char *reason,
                                ms_orch_done *done,
                                void *arg);
    void (*cancel)(struct ms_orch_op *op);
    /* Nothing is told any more. What is not durable ends. */
    void (*destroy)(struct ms_orchestrator *o);
};

struct ms_orchestrator {
    const struct ms_orchestrator_ops *ops;
};

/* Key, number of pieces and capabilities: what any backend refuses. 0, -EINVAL, -E2BIG,
 * -ENOTSUP. */
int ms_reserve_check(const struct ms_orchestrator *o,
                     const struct ms_reserve *r,
                     struct ms_error *err);

/* Names what is asked for and not the asker: equal requests have equal marks. */
uint64_t ms_reserve_mark(const struct ms_place_request *r);

#endif
