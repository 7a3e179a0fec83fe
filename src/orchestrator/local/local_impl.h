/* local_impl.h - what the files of the orchestrator `local` share
 *
 * local.c   the orchestrator, and the backend of its operations (op.h)
 * gang.c    pieces that were asked for together: waiting, placed, released
 * part.c    the agent of a gang on one node
 * gang_file.c    what is lent, in a file for the next controller
 *
 * Whatever happens to gangs and agents wakes the controller, and each operation sees for
 * itself whether it has got what it wanted.
 */
#ifndef MS_ORCHESTRATOR_LOCAL_LOCAL_IMPL_H
#define MS_ORCHESTRATOR_LOCAL_LOCAL_IMPL_H

#include "agent/machine/cgroup.h"
#include "io/supervised.h"
#include "orchestrator/local/agent_process.h"
#include "orchestrator/op.h"
#include "orchestrator/whole_nodes.h"

struct local {
    struct ms_controller controller;
    struct ms_loop *loop;
    struct ms_whole_nodes nodes; /* as described, and what is free of them */
    char ***prefixes;            /* of each node; an element may be NULL */
    char **avoided;              /* of each node: why; NULL: it is not */
    char *agent_path, *log_dir, *agent_prefix;
    char *state_path; /* gang_file.c; NULL: nothing outlives us */
    bool is_unkept;   /* the file is not what it should be: it could not be written */
    pid_t end_with;
    int64_t grace_ns;
    struct ms_cgroups cgroups; /* tells kills of the kernel apart */
    struct ms_list gangs;
    bool has_room; /* something was given back, or a gang is new */
};

/* ---- gang.c ------------------------------------------------------------------------ */

struct gang {
    struct ms_list link;
    struct local *local;
    char key[MS_ORCH_KEY_MAX + 1];
    uint32_t first;                 /* number of its first piece */
    uint64_t mark;                  /* of the request */
    struct ms_place_request pieces; /* owned */
    struct ms_agent_start start;    /* owned */
    bool is_placed;
    struct ms_error why; /* it waits, or can never be */
    struct ms_placement placement;
    bool *is_released; /* of each piece */
    size_t left;       /* pieces that are not */
    struct ms_list parts;
};

/* In the list, waiting, with the pieces of the launch, which are taken. -ENOMEM. */
int ms_gang_create(struct local *l, struct ms_orch_op *launch);
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
    bool is_over; /* its agent has ended, or could not be started */
    char name[MS_NAME_MAX + 1];
    char process[MS_SUPERVISOR_NAME_MAX]; /* io/supervised.h; empty: not started yet */
    struct ms_agent_process agent;
};

/* In the gang's list. -ENOMEM. */
int ms_part_create(struct gang *g, uint32_t node);
/* Its agent starts; if it cannot, or there is a reason why not, the pieces have ended. */
void ms_part_start(struct part *p, const struct ms_error *why_not);
void ms_part_stop(struct part *p);
void ms_part_destroy(struct part *p);
/* Of a controller before: this process, or with 0 none. It has ended then. */
void ms_part_adopt(struct part *p, pid_t pid);

/* ---- gang_file.c ------------------------------------------------------------------- */

/* All that is lent is in the file; without a file it is 0. A negative errno. */
int ms_gang_file_write(struct local *l, struct ms_error *err);
/* Once, at the beginning: gangs of the controller before. -EBADMSG, -ENOMEM. */
int ms_gang_file_read(struct local *l, struct ms_error *err);

#endif
