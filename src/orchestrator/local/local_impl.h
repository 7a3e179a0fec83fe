/* local_impl.h - what the files of the orchestrator `local` share
 *
 * local.c   the interface
 * op.c      the life of an operation
 * gang.c    pieces that were asked for together: waiting, placed, released
 * part.c    the agent of a gang on one node
 *
 * Operations only look on: whatever happens to gangs and agents lets all of them take a
 * turn, and each sees for itself whether it has got what it wanted.
 */
#ifndef MS_ORCHESTRATOR_LOCAL_LOCAL_IMPL_H
#define MS_ORCHESTRATOR_LOCAL_LOCAL_IMPL_H

#include "agent/machine/cgroup.h"
#include "base/clock.h"
#include "orchestrator/local/lent.h"
#include "orchestrator/local/local.h"
#include "orchestrator/local/offer.h"
#include "orchestrator/told.h"

struct local {
    struct ms_orchestrator base;
    struct ms_loop *loop;
    struct ms_stock stock;
    struct ms_offers offers; /* its nodes, in the same order */
    char ***prefixes;        /* of each node; an element may be NULL */
    char **avoided;          /* of each node: why; NULL: it is not */
    char *agent_path, *log_dir;
    pid_t end_with;
    int64_t grace_ns;
    struct ms_cgroups cgroups; /* tells kills of the kernel apart */
    struct ms_mirror mirror;
    struct ms_watches watches;
    struct ms_list ops, gangs;
    struct ms_timer turn;
    bool has_room;    /* something was given back, or a gang is new */
    bool is_turn_due; /* the timer is set to now */
};

/* ---- gang.c ------------------------------------------------------------------------ */

/* A copy of struct ms_agent_start. */
struct agent_start {
    char *head, *secret_file, **env;
};

struct gang {
    struct ms_list link;
    struct local *local;
    char key[MS_ORCH_KEY_MAX + 1];
    uint32_t first;                 /* number of its first piece */
    struct ms_place_request pieces; /* a copy */
    struct agent_start start;
    bool is_placed;
    struct ms_error why; /* it waits, or can never be */
    struct ms_placement placement;
    bool *is_released; /* of each piece */
    size_t left;       /* pieces that are not */
    struct ms_list parts;
};

/* In the list, waiting. NULL: out of memory. */
struct gang *
ms_gang_create(struct local *l, const struct ms_reserve *r, uint32_t first);
void ms_gang_destroy(struct gang *g); /* its agents have ended */

struct gang *ms_gang_find(const struct local *l, const char *key, uint32_t number);
/* Place those that wait, the first first, if there is something new. */
void ms_gangs_place(struct local *l);
/* It is not wanted any more; false: it was not there, or not wanted already. */
bool ms_gang_release(struct gang *g, uint32_t number);
/* Nothing of this piece is there any more: its agent has ended, or goes on for others. */
bool ms_gang_is_clear(const struct gang *g, uint32_t number);
/* Say of all its pieces on a node what they are now. */
void ms_gang_tell(struct gang *g, uint32_t node, const struct ms_lent_piece *like);

/* ---- part.c ------------------------------------------------------------------------ */

/* The pieces of a gang that are on one node, and their agent. */
struct part {
    struct ms_list link;
    struct gang *gang;
    uint32_t node;
    size_t left; /* pieces that are not released */
    bool is_alive, is_ready, is_stopping;
    char name[MS_NAME_MAX + 1];
    struct ms_lent lent;
};

/* In the gang's list. -ENOMEM. */
int ms_part_create(struct gang *g, uint32_t node);
/* Its agent starts; if it cannot, the pieces have ended. */
void ms_part_start(struct part *p);
void ms_part_stop(struct part *p);
void ms_part_destroy(struct part *p);

/* ---- op.c -------------------------------------------------------------------------- */

enum op_kind { OP_RESERVE, OP_GROW, OP_RELEASE, OP_LIST, OP_AVOID };

enum op_state {
    OP_NEW,
    OP_REFUSED, /* fails by `why` */
    OP_WAITING, /* for its pieces to run */
    OP_CLEARING /* for what was released to be gone; then it ends, by `why` if that is set */
};

struct ms_orch_op {
    struct ms_list link;
    struct local *local;
    enum op_kind kind;
    enum op_state state;
    ms_orch_done *done;
    void *arg;
    int64_t deadline_ns;
    char key[MS_ORCH_KEY_MAX + 1];  /* LIST: empty is all */
    struct ms_place_request pieces; /* RESERVE and GROW: a copy */
    struct agent_start start;
    uint64_t mark;
    uint32_t first;
    uint32_t *numbers; /* RELEASE, and GROW that is undone: these; NULL: all */
    size_t count;
    char *node, *reason; /* AVOID */
    bool is_cancelled;
    struct ms_error why;
};

struct ms_orch_op *ms_local_op_create(
    struct local *l, enum op_kind kind, const char *key, ms_orch_done *done, void *arg);
void ms_local_op_free(struct ms_orch_op *op);
/* Everybody takes a turn, soon. */
void ms_local_turn_soon(struct local *l);
void ms_local_turn(void *arg);

int ms_agent_start_copy(struct agent_start *to, const struct ms_agent_start *from);
void ms_agent_start_finish(struct agent_start *s);

#endif
