/* ray_impl.h - what the files of the orchestrator `ray` share
 *
 * ray.c    the interface
 * op.c     the life of an operation
 * tie.c    the bridge: its start, its lines, its end
 * ask.c    what is asked, as JSON
 * news.c   what is heard, into the mirror
 */
#ifndef MS_ORCHESTRATOR_RAY_RAY_IMPL_H
#define MS_ORCHESTRATOR_RAY_RAY_IMPL_H

#include "base/clock.h"
#include "orchestrator/ray/carrier.h"
#include "orchestrator/told.h"

#include <jansson.h>

/* From the first question until the bridge speaks. */
#define MS_RAY_START_NS     (300 * MS_NS_PER_S)
#define MS_RAY_LIST_NS      (5 * MS_NS_PER_S)   /* an answer that needs no work */
#define MS_RAY_FREE_NS      (120 * MS_NS_PER_S) /* a release */
#define MS_RAY_LATE_NS      (15 * MS_NS_PER_S) /* a launch: behind its deadline, or cancel */
#define MS_RAY_AGAIN_NS     (250 * MS_NS_PER_MS) /* between two looks at those that wait */
#define MS_RAY_END_NS       (30 * MS_NS_PER_S) /* the bridge's, when all is over */
#define MS_RAY_WORDS        300 /* of what was said, in a sentence of ours */
#define MS_RAY_LAUNCH_MAX_S (30.0 * 24 * 3600) /* what a bridge takes as a timeout */

enum op_kind { OP_RESERVE, OP_GROW, OP_RELEASE, OP_LIST, OP_AVOID };

enum op_state {
    OP_NEW,
    OP_REFUSED, /* fails by `why` */
    OP_ASKED,
    OP_HELD /* Ray did not answer the bridge: it is asked again */
};

struct ray;

struct ms_orch_op {
    struct ms_list link;
    struct ray *ray;
    enum op_kind kind;
    enum op_state state;
    ms_orch_done *done;
    void *arg;
    char key[MS_ORCH_KEY_MAX + 1]; /* LIST: empty is all; AVOID: unused */
    json_t *request;               /* without its id */
    uint64_t id;                   /* of the last time that it was asked */
    int64_t deadline_ns; /* of a launch: the caller's; else since it was asked */
    int64_t give_up_ns;  /* of a launch that was asked for: whatever the bridge does */
    bool is_cancelled, is_cancel_sent;
    struct ms_error why;
};

struct avoided {
    struct ms_list link;
    char *node, *reason;
};

enum tie_state { TIE_DOWN, TIE_STARTING, TIE_UP };

struct ray {
    struct ms_orchestrator base;
    struct ms_ray_options options; /* its texts are ours */
    ms_carrier_open *open;
    struct ms_mirror mirror;
    struct ms_watches watches;
    struct ms_list ops, avoided;
    struct ms_timer turn, linger;
    struct ms_carrier *carrier, *old; /* `old` is over, and cleans up */
    enum tie_state tie;
    bool is_silent;     /* the bridge cannot be reached */
    bool is_ray_silent; /* Ray does not answer the bridge */
    bool is_turn_due;
    struct ms_error silence;
    int64_t late_ns;            /* MS_RAY_LATE_NS */
    uintptr_t life;             /* of bridges, counted: who has told of a reservation */
    uint64_t next_id, known_id; /* known_id: of the list that begins a bridge's life */
    json_t *hello_line;
    struct ms_ray_hello hello;
};

/* As if this process had been killed: connections close, and nobody is told. */
void ms_ray_abandon(struct ms_orchestrator *o);

/* ray.c: the nodes to avoid, told to a new bridge */
void ms_ray_avoid_again(struct ray *r);

/* ---- op.c -------------------------------------------------------------------------- */

struct ms_orch_op *ms_ray_op_create(
    struct ray *r, enum op_kind kind, const char *key, ms_orch_done *done, void *arg);
void ms_ray_op_free(struct ms_orch_op *op);
/* Everybody takes a turn, soon. */
void ms_ray_turn_soon(struct ray *r);
void ms_ray_turn(void *arg);
/* The bridge's answer to a line. */
void ms_ray_answered(struct ray *r, uint64_t id, int rc, const char *why);
/* There is no bridge any more (was_up: and there was one). */
void ms_ray_ops_down(struct ray *r, bool was_up, const struct ms_error *why);

/* ---- tie.c ------------------------------------------------------------------------- */

/* Have a bridge; 0, or why not. */
int ms_ray_tie(struct ray *r, struct ms_error *err);
/* With `keep`, what is lent is left to the next controller. */
void ms_ray_untie(struct ray *r, bool keep);
/* Send a request under a new id; 0, or why not. Borrowed. */
int ms_ray_send(struct ray *r, json_t *request, uint64_t *id);
void ms_ray_on_linger(void *arg);

/* ---- ask.c ------------------------------------------------------------------------- */

/* NULL: out of memory, or (*err is set) it cannot be asked. */
json_t *
ms_ray_ask_pieces(const char *verb, const struct ms_reserve *r, struct ms_error *err);
json_t *ms_ray_ask_release(const char *key, const uint32_t *numbers, size_t count);

/* ---- news.c ------------------------------------------------------------------------ */

/* One line from the bridge. */
void ms_ray_heard(struct ray *r, const char *line, size_t len);
/* Everything that is lent has ended with the bridge. */
void ms_ray_all_ended(struct ray *r, const struct ms_error *why);
/* What the bridge said when it came; NULL: nothing of it is known. */
void ms_ray_set_hello(struct ray *r, json_t *line);

#endif
