/* sim_impl.h - what the files of the simulated engine's orchestrator share
 *
 * sim.c    the interface, watches, and what is heard from the engine
 * op.c     the life of an operation
 */
#ifndef MS_ORCHESTRATOR_SIM_SIM_IMPL_H
#define MS_ORCHESTRATOR_SIM_SIM_IMPL_H

#include "base/clock.h"
#include "orchestrator/sim/sim.h"
#include "orchestrator/told.h"

#define MS_SIM_ASK_AGAIN_NS (5 * MS_NS_PER_S)  /* without an answer */
#define MS_SIM_GIVE_UP_NS   (30 * MS_NS_PER_S) /* of what only asks: "could not ask" */
#define MS_SIM_COMPARE_NS   (10 * MS_NS_PER_S) /* with the whole, while somebody cares */
#define MS_SIM_UNDO_NS      (600 * MS_NS_PER_S) /* then nobody waits for it any more */

enum ms_sim_kind {
    MS_SIM_RESERVE,
    MS_SIM_GROW,
    MS_SIM_RELEASE,
    MS_SIM_LIST,
    MS_SIM_AVOID
};

enum ms_sim_state {
    MS_SIM_NEW,     /* until it is known what the engine has */
    MS_SIM_REFUSED, /* fails by `why` when time goes on; nothing was asked */
    MS_SIM_ASKED,
    MS_SIM_UNDOING /* has failed by `why`; its pieces are stopped first */
};

struct ms_orch_op {
    struct ms_list link;
    struct sim *sim;
    enum ms_sim_kind kind;
    enum ms_sim_state state;
    ms_orch_done *done; /* NULL: it was told; only what it left is cleared away */
    void *arg;
    uint64_t request;               /* the number of its last question */
    int64_t deadline_ns;            /* then it fails */
    char key[MS_ORCH_KEY_MAX + 1];  /* LIST: empty is all; AVOID: the node */
    struct ms_place_request pieces; /* RESERVE and GROW: a copy */
    uint64_t mark;
    uint32_t first;
    uint32_t *numbers; /* RELEASE: these */
    size_t count;
    bool is_cancelled;
    struct ms_error why;
};

struct sim {
    struct ms_orchestrator base;
    struct ms_sim *engine;
    struct ms_mirror mirror;
    struct ms_list ops;
    struct ms_watches watches;
    uint64_t asked;      /* the last request's number */
    uint64_t compare;    /* that of the last comparison */
    int64_t compared_ns; /* when it was asked for */
    bool is_known;       /* what the controller before had is in the mirror */
    bool is_ticking, is_turning;
};

/* op.c */
struct ms_orch_op *ms_sim_op_create(struct ms_orchestrator *o,
                                    enum ms_sim_kind kind,
                                    const char *key,
                                    ms_orch_done *done,
                                    void *arg);
void ms_sim_op_free(struct ms_orch_op *op);
/* The engine's answer to it. */
void ms_sim_op_answered(struct ms_orch_op *op, int rc, const struct ms_error *why);
/* Pieces have changed. */
void ms_sim_op_step(struct ms_orch_op *op);
/* Whatever can go on does, as soon as time goes on: never from inside. */
void ms_sim_turn_soon(struct sim *s);

/* sim.c */
void ms_sim_compare(struct sim *s);

#endif
