/* op.h - a controller's operations: what local, sim and ray do alike
 *
 * A controller is the half of an orchestrator that keeps the books: the operations that
 * are under way, the inventory of what its backend has said, and the watches. The backend does
 * the work, through the hooks of `struct ms_backend`.
 *
 * Life of an operation:
 *
 *   NEW ---> ASKED ---> done           everything
 *    |         |  \---> UNDOING ---> done    a launch that failed: its pieces are stopped first
 *    |         \------> HELD ---> ASKED      the backend could not be asked: later, again
 *    \---> REFUSED ---> done           it is wrong by itself
 *
 * Operations advance only in a turn, never from inside of a call. Whatever happens wakes
 * the controller; in a turn watches hear the news, every operation has a look, and those
 * whose time is over fail. An operation is freed before `done` is called.
 */
#ifndef MS_ORCHESTRATOR_OP_H
#define MS_ORCHESTRATOR_OP_H

#include "base/clock.h"
#include "io/loop.h"
#include "orchestrator/inventory.h"

enum ms_op_kind {
    MS_OP_RESERVE,
    MS_OP_GROW,
    MS_OP_RELEASE,
    MS_OP_LIST,
    MS_OP_AVOID,
};

enum ms_op_state {
    MS_OP_NEW,
    MS_OP_REFUSED, /* fails by `why` */
    MS_OP_ASKED,
    MS_OP_HELD,
    MS_OP_UNDOING, /* what it names is being stopped; then it ends, by `why` if that is set */
};

struct ms_controller;

struct ms_orch_op {
    struct ms_list link;
    struct ms_controller *controller;
    enum ms_op_kind kind;
    enum ms_op_state state;
    ms_orch_done *done; /* NULL: it was told; only what it left is cleared away */
    void *arg;
    uint64_t request;              /* the number of its last question to the backend */
    int64_t deadline_ns;           /* of a launch: the caller's */
    int64_t give_up_ns;            /* when it fails, whatever the backend does */
    char key[MS_ORCH_KEY_MAX + 1]; /* LIST: empty is all */
    struct ms_place_request
        pieces;                  /* of a launch; owned, until the backend takes them */
    struct ms_agent_start agent; /* of a launch; owned, like them */
    size_t piece_count;
    uint64_t mark;  /* of the request (ms_reserve_mark) */
    uint32_t first; /* the number of its first piece, once they are in the inventory */
    uint32_t *numbers; /* RELEASE, and GROW that is undone: these; NULL: all */
    size_t count;
    char *node, *reason; /* AVOID */
    bool is_cancelled;   /* not looked at yet */
    bool was_cancelled;
    struct ms_error why;
};

/* What a backend does. Hooks run in a turn; they may complete the operation. */
struct ms_backend {
    /* NULL: real time, on the controller's loop. */
    int64_t (*now_ns)(const struct ms_controller *c);
    void (*wake)(struct ms_controller *c); /* have ms_controller_turn called, later */
    int64_t
        answer_ns;   /* an operation that only asks fails after so long; or MS_NEVER */
    int64_t undo_ns; /* undoing goes on after so long, but completes; or MS_NEVER */
    int64_t
        again_ns; /* another turn after so long while there are operations; 0: none */
    void (*begin)(struct ms_orch_op *op); /* it is NEW; it may stay so */
    /* The pieces of a launch are in the inventory: ask for them. Not is_new: another operation
     * has asked for the same. -ENOMEM: it fails. */
    int (*launch)(struct ms_orch_op *op, bool is_new);
    void (*stop)(struct ms_orch_op *op); /* stop the pieces that it names */
    void (*look)(struct ms_orch_op *op); /* every turn, once it is begun; may be NULL */
    /* A launch that was asked for is late or cancelled. NULL: ms_op_undo. */
    void (*give_up)(struct ms_orch_op *op, const struct ms_error *why);
    const char *(*why_late)(const struct ms_orch_op *op); /* "": it is not known */
    void (*turned)(struct ms_controller *c); /* before deadlines; may be NULL */
};

/* First in every implementation. */
struct ms_controller {
    struct ms_orchestrator base;
    const struct ms_backend *backend;
    struct ms_inventory inventory;
    struct ms_list watches; /* ms_orch_watch, each with its own cursor */
    struct ms_list ops;
    struct ms_timer turn; /* of a controller on a loop */
    bool is_turn_due;
};

/* `cursor` is after all that a controller before this one gave out. `loop` is NULL if the
 * backend has a time of its own. 0, -ENOMEM. */
int ms_controller_init(struct ms_controller *c,
                       const struct ms_orchestrator_ops *ops,
                       const struct ms_backend *backend,
                       struct ms_loop *loop,
                       uint64_t cursor);
/* Operations end without a word. */
void ms_controller_finish(struct ms_controller *c);
void ms_controller_wake(struct ms_controller *c);
void ms_controller_turn(struct ms_controller *c);
/* The inventory has changed: those who watch it hear so in the next turn. */
void ms_controller_news(struct ms_controller *c);

/* ---- watches.c, for op.c -------------------------------------------------------------- */

void ms_controller_tell_watches(struct ms_controller *c);
void ms_controller_drop_watches(struct ms_controller *c);

/* ---- for the table of an orchestrator ----------------------------------------------- */

struct ms_orch_op *ms_controller_reserve(struct ms_orchestrator *o,
                                         const struct ms_reserve *r,
                                         ms_orch_done *done,
                                         void *arg);
struct ms_orch_op *ms_controller_release(struct ms_orchestrator *o,
                                         const char *key,
                                         const uint32_t *pieces,
                                         size_t count,
                                         ms_orch_done *done,
                                         void *arg);
struct ms_orch_op *ms_controller_list(struct ms_orchestrator *o,
                                      const char *key,
                                      ms_orch_done *done,
                                      void *arg);
struct ms_orch_op *ms_controller_avoid(struct ms_orchestrator *o,
                                       const char *node,
                                       const char *reason,
                                       ms_orch_done *done,
                                       void *arg);
struct ms_orch_watch *ms_controller_watch(struct ms_orchestrator *o,
                                          uint64_t cursor,
                                          ms_orch_watched *watched,
                                          void *arg);
void ms_controller_unwatch(struct ms_orch_watch *w);
void ms_op_cancel(struct ms_orch_op *op);

#define MS_CONTROLLER_OPS                                                              \
    .reserve = ms_controller_reserve, .release = ms_controller_release,                \
    .list = ms_controller_list, .watch = ms_controller_watch,                          \
    .unwatch = ms_controller_unwatch, .avoid = ms_controller_avoid,                    \
    .cancel = ms_op_cancel

/* ---- for backends --------------------------------------------------------------------- */

bool ms_op_is_launch(const struct ms_orch_op *op);

/* It completes. `why` may be its own. */
void ms_op_succeed(struct ms_orch_op *op);
void ms_op_fail(struct ms_orch_op *op, const struct ms_error *why);

/* Write the pieces of a launch into the inventory and ask for them; the same request again is
 * had as it is, or ends as that one does. */
void ms_op_launch(struct ms_orch_op *op);
/* Of a launch, when pieces have changed: it succeeds, is undone, or goes on. */
void ms_op_check_pieces(struct ms_orch_op *op);
/* Nothing of a launch may be left: of a grown reservation what is new. */
void ms_op_undo(struct ms_orch_op *op, const struct ms_error *why);
/* Begin to stop what it names. */
void ms_op_stop(struct ms_orch_op *op);
/* What it names has been stopped: it is forgotten, and the operation completes. */
void ms_op_stopped(struct ms_orch_op *op);

void ms_agent_start_finish(struct ms_agent_start *s);

#endif
