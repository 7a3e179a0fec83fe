/* core.h - keeps a job alive: an event and the time go in, actions come out
 *
 * A pure state machine of one job: no clock, socket, log or thread. The same events at the
 * same times give the same actions to the byte, in production, in the simulation and in a
 * replay of the journal.
 *
 *   job      stage, reservation, exit
 *   role     a group of ranks with a policy; at most one action of it is under way
 *   slot     (role, rank); it never changes
 *   instance one process of a slot, named by its incarnation; a slot has at most one
 *   driver   a process of its own budget, restarted from the checkpoint by attempts
 *
 * How a host drives it:
 *
 *   check(event) -> write it to the journal -> step(event) -> carry out the actions
 *                                                              |
 *        <- DONE or NOT_DONE of each action, exactly once  <----'
 *
 *  - The journal has the event, with its time, before any action of it is carried out. What
 *    follows from the event need not be written: a replay finds it again.
 *  - A controller that was killed replays its journal (or a snapshot and what came after),
 *    drops the actions of the replay, and steps RECOVERED with what it has found. The
 *    actions that had not been answered come again, with the same ids. So an action must
 *    be idempotent: what it wants may be there already, whole or in part.
 *  - An action that a later one of the same subject has overtaken (DESTROY a CREATE, RELEASE
 *    a RESERVE, STOP_DRIVER a START_DRIVER) may be cancelled. Its answer is ignored.
 *  - Each action is answered within a time that the host knows; the core sets none.
 *  - PROGRESS is not journalled: it only moves the times of the last sign of work and of the
 *    last look without one. At a TICK,
 *    and whenever `wake` has come, the host asks ms_job_core_suspect for an event and treats
 *    that like any other.
 *
 * The time is the job's own: nanoseconds from anywhere, which do not go back. A host goes on
 * from the last time in its journal by a monotonic clock, so that a jump of the wall clock is
 * not seen. An earlier time than the last one counts as the last one.
 *
 * Rules:
 *  - While the orchestrator cannot be asked nothing is reserved, created, replaced,
 *    restarted or resized, no budget is spent, and no deadline passes.
 *  - What has ended together is replaced by one action of each role.
 *  - A rank that succeeded starts again only together with its role; a role that succeeded
 *    never does, and when the driver has succeeded nothing does.
 *  - Ends of ranks that an action under way has started belong to it: they are decided when
 *    it has been answered.
 *  - A role below `min` that cannot have its processes fails the job after
 *    pending_timeout_ns; one at `min` or above goes on with what there is.
 */
#ifndef MS_JOB_CORE_CORE_H
#define MS_JOB_CORE_CORE_H

#include "job/core/event.h"

enum ms_job_stage {
    MS_JOB_STAGE_NEW,    /* not submitted */
    MS_JOB_STAGE_QUEUED, /* until ADMITTED */
    MS_JOB_STAGE_STARTING,
    MS_JOB_STAGE_RUNNING,
    MS_JOB_STAGE_SUSPENDING,
    MS_JOB_STAGE_SUSPENDED, /* nothing runs and nothing is held */
    MS_JOB_STAGE_RESUMING,
    MS_JOB_STAGE_RESTARTING,
    MS_JOB_STAGE_STOPPING, /* how it will end is known */
    MS_JOB_STAGE_SUCCEEDED,
    MS_JOB_STAGE_FAILED,
    MS_JOB_STAGE_STOPPED,
    MS_JOB_STAGES
};

const char *ms_job_stage_name(enum ms_job_stage s); /* "running" */
bool ms_job_stage_is_over(enum ms_job_stage s);

enum ms_job_slot_state {
    MS_JOB_SLOT_ABSENT,   /* nothing is there, and nothing is wanted yet */
    MS_JOB_SLOT_STARTING, /* an action is under way */
    MS_JOB_SLOT_RUNNING,
    MS_JOB_SLOT_UNKNOWN,   /* it ran before the controller was restarted */
    MS_JOB_SLOT_DEAD,      /* ended; what to do is not decided yet */
    MS_JOB_SLOT_WAITING,   /* to be replaced at its time */
    MS_JOB_SLOT_SUCCEEDED, /* ended, with 0 */
    MS_JOB_SLOT_GIVEN_UP,  /* ended, of a role that is not critical, its budget spent */
    MS_JOB_SLOT_STATES
};

const char *ms_job_slot_state_name(enum ms_job_slot_state s);

struct ms_job_core;

struct ms_job_core *ms_job_core_create(void);    /* NULL: out of memory */
void ms_job_core_destroy(struct ms_job_core *c); /* NULL is fine */

/* Would step take the event? 0, or the reason for a person: -EINVAL (it makes no sense),
 * -ENOENT (no such role or rank), -ERANGE (a count that the role cannot have), -EALREADY (it
 * is so already), -EBUSY (not in this stage), -EEXIST (submitted before). Late events are
 * taken and change nothing. */
int ms_job_core_check(const struct ms_job_core *c,
                      const struct ms_job_event *e,
                      struct ms_error *err);

/* Take an event. 0 and the actions, in order, borrowed until the next call; else what check
 * says, or -ENOMEM: nothing has changed. */
int ms_job_core_step(struct ms_job_core *c,
                     const struct ms_job_event *e,
                     int64_t now_ns,
                     const struct ms_job_action **actions,
                     size_t *count,
                     struct ms_error *err);

/* When a TICK is wanted, and suspect is to be asked; MS_NEVER: only events matter. */
int64_t ms_job_core_wake_ns(const struct ms_job_core *c);

/* Was a role seen to be without signs of work for too long, or is it known now whether one
 * still is? If true, *e is an event to be journalled and taken; ask again after that. Borrowed until the
 * next call of the core. */
bool ms_job_core_suspect(struct ms_job_core *c, struct ms_job_event *e);

/* ---- what there is ----------------------------------------------------------------- */

struct ms_job_view {
    enum ms_job_stage stage;
    enum ms_job_cause cause; /* of its end, or of its coming end */
    int32_t code;            /* exit code of the job */
    const char *text; /* why it ends, or what it waits for; NULL: nothing to say */
    uint32_t attempt; /* of the driver; 0: not started yet */
    bool driver_runs;
    int64_t driver_hang_ns; /* without a sign of work; 0: never suspected */
    bool can_ask, is_held, is_deleted;
    uint32_t restarts; /* of the job */
    int64_t since_ns;  /* in this stage */
};

struct ms_job_role_view {
    const struct ms_job_role_spec *spec;
    uint32_t size;   /* slots that it has now */
    uint32_t wanted; /* as last asked for */
    uint32_t counts[MS_JOB_SLOT_STATES];
    uint32_t incarnation; /* the last that was given */
    uint32_t memory;      /* percent of its request */
    uint16_t spent[MS_JOB_BUDGETS];
    enum ms_job_action_what doing; /* the action under way; 0: none */
    int64_t retry_ns;              /* when something is tried again; MS_NEVER: not */
    const char *text;              /* of the last failure; NULL: none */
};

struct ms_job_slot_view {
    enum ms_job_slot_state state;
    uint32_t incarnation, restarts;
    enum ms_job_cause cause; /* of its last end */
    int32_t code;
    bool signaled;
    int64_t started_ns, ended_ns; /* 0: not yet */
    uint16_t spent[MS_JOB_BUDGETS];
};

struct ms_job_view ms_job_core_view(const struct ms_job_core *c);
uint32_t ms_job_core_role_count(const struct ms_job_core *c);
/* MS_JOB_NO_ROLE: there is none of that name. */
uint32_t ms_job_core_find_role(const struct ms_job_core *c, const char *name);
struct ms_job_role_view ms_job_core_role(const struct ms_job_core *c, uint32_t role);
struct ms_job_slot_view
ms_job_core_slot(const struct ms_job_core *c, uint32_t role, uint32_t rank);
/* It has decided to avoid this node. */
bool ms_job_core_avoids(const struct ms_job_core *c, const char *node);
/* Bytes that the core holds. */
size_t ms_job_core_memory(const struct ms_job_core *c);

/* ---- snapshots --------------------------------------------------------------------- */

/* All of the state: with the events after it, it is as good as all events. What is known by
 * PROGRESS is not in it. 0 or -ENOMEM. */
int ms_job_core_encode(const struct ms_job_core *c, struct ms_buf *out);

/* NULL with the reason: -EBADMSG (damaged), -ENOTSUP (of a newer version), -ENOMEM. */
struct ms_job_core *
ms_job_core_decode(const void *data, size_t len, struct ms_error *err);

#endif
