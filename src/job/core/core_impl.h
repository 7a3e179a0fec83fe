/* core_impl.h - what the controller core's files have of each other
 *
 *   core.c      life, events, the step, what there is
 *   check.c     which events are taken
 *   spec.c      defaults and rules of specs
 *   exit.c      causes of ends, and when two errors are the same
 *   action.c    actions: their ids, what is said to people
 *   stage.c     stages: up, down, over; deadlines
 *   capacity.c  the reservation, the node check, nodes that are avoided
 *   role.c      a role: created, replaced, restarted, resized, destroyed
 *   answer.c    what becomes of a role's action
 *   decide.c    ends: budgets, back-off, escalation
 *   driver.c    the driver
 *   user.c      what people want
 *   recover.c   after a restart of the controller
 *   hang.c      roles without signs of work
 *   codec.c     values as bytes, both ways
 *   event.c     the wire form of events and actions
 *   snapshot.c  the wire form of the state
 *
 * The state is flat: one array of slots, in which each role has its own part of max slots.
 * Memory is taken when the job is submitted. After that a step cannot fail half-way.
 *
 * Every event changes the state a little and then ms_stage_run looks at all of it and asks
 * for what is missing. What an action has asked for is in the state (`doing`, `op`), so it
 * is not asked for twice, and can be asked for again after a recovery.
 */
#ifndef MS_JOB_CORE_CORE_IMPL_H
#define MS_JOB_CORE_CORE_IMPL_H

#include "job/core/core.h"

#define MS_CORE_NODES_MAX     256u /* of which failures are remembered */
#define MS_CORE_ROLE_TEXT_MAX ((size_t)1000)
#define MS_CORE_TRIES_MAX     5u /* to destroy or release what refuses to go */
#define MS_CORE_CHECKS_MAX    3u /* of the nodes that could not be made */
#define MS_CORE_IN_PLACE_MAX  2u /* quick failures in place, then elsewhere */
#define MS_CORE_PARDON_NS     (60 * MS_NS_PER_S) /* a driver follows its role */
#define MS_CORE_STOPPED_CODE  143 /* of a job that was stopped, as after a SIGTERM */

enum ms_core_slot_flags {
    MS_CORE_ELSEWHERE = 1,
    MS_CORE_FREE = 2, /* its next start spends nothing */
};

struct ms_core_slot {
    int64_t started_ns, ended_ns, retry_ns;
    int64_t work_ns;   /* the last sign of work; not in snapshots */
    int64_t silent_ns; /* it was seen then, without one; not in snapshots */
    uint32_t incarnation, restarts;
    uint32_t mark; /* of its error */
    int32_t code;
    uint16_t spent[MS_JOB_BUDGETS];
    uint8_t state, cause, signaled, quick, flags;
};

enum ms_core_hang { MS_CORE_WORKS, MS_CORE_DUMPING, MS_CORE_DUMPED };

struct ms_core_role {
    const struct ms_job_role_spec *spec;
    struct ms_core_slot *slots; /* spec->max of them */
    uint64_t
        *busy; /* a bit for each slot that is not at rest; follows from the states */
    uint32_t size, wanted;
    uint32_t next_size; /* after the shrink that is under way; 0: there is none */
    uint32_t incarnation, memory;
    uint32_t room; /* processes that the next action may start, at most; 0: all */
    uint32_t counts[MS_JOB_SLOT_STATES];
    uint16_t spent[MS_JOB_BUDGETS];
    uint16_t restarts; /* because of ranks whose budget was spent */
    uint16_t error_count;
    uint32_t error_mark; /* the last application error, and how often it came */
    uint64_t op;         /* the id of the action under way, and what it is */
    uint32_t op_count, op_incarnation;
    uint32_t op_size; /* the size before it */
    uint8_t doing;
    bool is_up;          /* it was created */
    bool is_given_up;    /* not critical, and nothing more is tried */
    bool is_restart_due; /* all ranks together, at retry_ns */
    bool is_scaling;     /* because of a new size */
    bool is_drained;     /* those that go have no work any more */
    bool has_failed;     /* a creation was tried and failed */
    bool has_strays;     /* of ranks that were given up */
    bool is_unsure;      /* nobody knows whether processes that it has not are there */
    uint8_t quick, tries, waits, hang; /* failures; to end; of room; ms_core_hang */
    uint8_t scale_tries;
    uint64_t dump_op, drain_op, stray_op;
    int64_t retry_ns;       /* nothing is asked for before that; 0: at once */
    int64_t scale_retry_ns; /* nor another size before that */
    int64_t slot_retry_ns;  /* no WAITING slot is due earlier */
    int64_t stray_retry_ns;
    int64_t pending_ns; /* below min since then; MS_NEVER: it is not */
    int64_t up_ns;      /* all of it was started then */
    bool may_hang; /* a process was seen to be silent for too long; not in snapshots */
    char text[MS_CORE_ROLE_TEXT_MAX + 1];
};

enum ms_core_driver_state {
    MS_CORE_DRIVER_IDLE,
    MS_CORE_DRIVER_STARTING,
    MS_CORE_DRIVER_RUNNING,
    MS_CORE_DRIVER_UNKNOWN, /* it ran before the controller was restarted */
    MS_CORE_DRIVER_STOPPING,
    MS_CORE_DRIVER_DONE, /* it succeeded */
    MS_CORE_DRIVER_STATES
};

struct ms_core_driver {
    uint8_t state;
    bool is_restart_due;  /* asked for by people */
    bool is_unsure;       /* nobody knows whether it is there */
    uint8_t quick, tries; /* failures; to stop it */
    uint16_t spent[MS_JOB_BUDGETS];
    uint16_t error_count;
    uint32_t error_mark;
    uint32_t attempt;
    uint64_t op;
    int64_t started_ns, retry_ns;
    int64_t pardoned_ns; /* a failure until then is a role's: nothing is spent */
    uint8_t hang;        /* ms_core_hang */
    uint64_t dump_op;
    int64_t work_ns;   /* the last sign of work; not in snapshots */
    int64_t silent_ns; /* it was seen then, without one; not in snapshots */
};

enum ms_core_held {
    MS_CORE_NOT_HELD,
    MS_CORE_ASKED, /* without an action under way: it may be held */
    MS_CORE_HELD,
    MS_CORE_RELEASING,
    MS_CORE_HELDS
};

enum ms_core_avoid {
    MS_CORE_TRUSTED,
    MS_CORE_TO_AVOID, /* to be asked for */
    MS_CORE_AVOIDING,
    MS_CORE_AVOIDED,
    MS_CORE_AVOIDS
};

struct ms_core_node {
    char name[MS_NAME_MAX + 1];
    uint8_t avoid, cause;
    uint8_t struck_by; /* the cause of the last strike */
    uint16_t strikes;
    int64_t struck_ns;
    uint64_t op;
};

struct ms_job_core {
    struct ms_job_spec spec; /* its roles are the core's */
    uint8_t stage;
    uint8_t end_stage, cause; /* how it ends */
    int32_t code;
    int64_t now_ns, since_ns;
    uint64_t last_id;
    bool cannot_ask;
    bool is_deleted;
    bool is_admitted;
    bool is_down_first; /* RESTARTING: all of it ends before it starts again */
    bool is_checked;
    bool is_held_unsure;   /* a reservation was asked for, and the answer was lost */
    int64_t cannot_ask_ns; /* since then */
    uint32_t restarts, escalations;
    uint8_t held, held_tries;
    uint8_t check_rounds; /* checks one after the other that found faulty nodes */
    uint8_t check_tries;  /* and that could not be made */
    uint64_t held_op, check_op;
    int64_t held_retry_ns, check_retry_ns;
    int64_t pending_ns; /* without a reservation since then; MS_NEVER: it has one */
    int64_t unknown_ns; /* what is unknown then is lost; MS_NEVER: nothing is */
    struct ms_core_driver driver;
    struct ms_core_role *roles;
    struct ms_core_slot *slots;
    size_t slot_count;
    uint64_t *busy; /* of all roles */
    struct ms_core_node *nodes;
    size_t node_count;
    char text[MS_JOB_TEXT_MAX + 1];

    /* the actions of this step */
    struct ms_job_action *actions;
    size_t action_count, action_room;
    struct ms_job_action_rank *ranks;
    size_t rank_count, rank_room;
    char *said;
    size_t said_len, said_room;
    struct ms_job_report *suspects; /* of ms_job_core_suspect */
    size_t suspect_room;
};

/* ---- core.c ------------------------------------------------------------------------ */

/* Arrays for c->spec, and the roles in their first state. 0 or -ENOMEM. */
int ms_core_allocate(struct ms_job_core *c);
/* The next slot from there on that is not at rest; spec->max: there is none. */
uint32_t ms_core_role_next_busy(const struct ms_core_role *r, uint32_t from);
#define MS_EACH_BUSY(r, i)                                                             \
    for (uint32_t i = ms_core_role_next_busy(r, 0); i < (r)->spec->max;                \
         i = ms_core_role_next_busy(r, i + 1))
static inline bool ms_core_slot_is_live(const struct ms_core_slot *s)
{
    return s->state == MS_JOB_SLOT_STARTING || s->state == MS_JOB_SLOT_RUNNING ||
           s->state == MS_JOB_SLOT_UNKNOWN;
}
void ms_core_slot_set(struct ms_core_role *r, struct ms_core_slot *s, uint8_t state);
void ms_stage_set(struct ms_job_core *c, uint8_t stage);
static inline bool ms_core_goes_up(const struct ms_job_core *c)
{
    return c->stage == MS_JOB_STAGE_STARTING || c->stage == MS_JOB_STAGE_RUNNING ||
           c->stage == MS_JOB_STAGE_RESUMING ||
           (c->stage == MS_JOB_STAGE_RESTARTING && !c->is_down_first);
}
static inline bool ms_core_goes_down(const struct ms_job_core *c)
{
    return c->stage == MS_JOB_STAGE_SUSPENDING || c->stage == MS_JOB_STAGE_STOPPING ||
           (c->stage == MS_JOB_STAGE_RESTARTING && c->is_down_first);
}

/* ---- exit.c ------------------------------------------------------------------------ */

/* Equal for the same error at the same place, whatever numbers and addresses are in the
 * text; never 0. */
uint32_t ms_error_mark(const char *text, int code);
/* Keep the end of a text that is too long. */
void ms_text_keep(char *out, size_t room, const char *text);

/* ---- action.c ---------------------------------------------------------------------- */

/* The next action, zeroed but for what it is, its role (MS_JOB_NO_ROLE) and a new id. */
struct ms_job_action *ms_act(struct ms_job_core *c, uint32_t what);
/* One more of an action that was asked for before, with its id. */
struct ms_job_action *ms_act_again(struct ms_job_core *c, uint32_t what, uint64_t id);
/* Its next rank; the ranks of one action are added before the next action. */
void ms_act_rank(struct ms_job_core *c,
                 struct ms_job_action *a,
                 const struct ms_job_action_rank *rank);
/* One line for people. What does not fit is left out: it changes nothing. */
void ms_say(struct ms_job_core *c,
            enum ms_job_level level,
            uint32_t role,
            uint32_t rank,
            enum ms_job_cause cause,
            const char *fmt,
            ...) __attribute__((format(printf, 6, 7)));
uint32_t ms_core_role_index(const struct ms_job_core *c, const struct ms_core_role *r);

/* ---- stage.c ----------------------------------------------------------------------- */

/* Look at all of it, and ask for what is missing. */
void ms_stage_run(struct ms_job_core *c);
/* It will end so, unless it ends already. */
void ms_job_end(struct ms_job_core *c,
                uint8_t end_stage,
                enum ms_job_cause cause,
                int32_t code,
                const char *fmt,
                ...) __attribute__((format(printf, 5, 6)));
/* It is over: say so once more. */
void ms_finish_again(struct ms_job_core *c);
/* All of it ends and starts again, from the checkpoint. */
void ms_job_restart_all(struct ms_job_core *c);
int64_t ms_backoff_ns(const struct ms_job_core *c, uint32_t failures);

/* ---- capacity.c -------------------------------------------------------------------- */

/* True: the reservation is held and checked. The first asks for what is missing. */
bool ms_capacity_up(struct ms_job_core *c);
bool ms_capacity_is_up(const struct ms_job_core *c);
/* True: nothing is held. */
bool ms_capacity_down(struct ms_job_core *c);
void ms_capacity_avoid(struct ms_job_core *c); /* those that are to be avoided */
bool ms_capacity_answer(struct ms_job_core *c, const struct ms_job_event *e);
/* Something failed there. */
void ms_capacity_strike(struct ms_job_core *c,
                        const char *node,
                        enum ms_job_cause cause);

/* ---- role.c ------------------------------------------------------------------------ */

void ms_core_role_up(struct ms_job_core *c, struct ms_core_role *r);
/* True: nothing of it is left. */
bool ms_core_role_down(struct ms_job_core *c, struct ms_core_role *r);
bool ms_core_role_is_ready(const struct ms_core_role *r);
bool ms_core_role_has_succeeded(const struct ms_core_role *r);
/* No slot of it has a process. */
void ms_core_role_clear(struct ms_job_core *c, struct ms_core_role *r);
void ms_core_role_restart(struct ms_job_core *c,
                          struct ms_core_role *r,
                          int64_t retry_ns);
/* The action under way once more, after a recovery. */
void ms_core_role_act_again(struct ms_job_core *c, struct ms_core_role *r);
/* The ranks that stay: not the last ones, if they are on their way out. */
uint32_t ms_core_role_kept(const struct ms_core_role *r);

/* There may be room now for what has waited for it. */
void ms_core_role_try_now(const struct ms_job_core *c, struct ms_core_role *r);
/* Find slot_retry_ns again. */
void ms_core_role_look_for_retry(struct ms_core_role *r);

/* ---- answer.c ---------------------------------------------------------------------- */

void ms_core_role_answer(struct ms_job_core *c,
                         struct ms_core_role *r,
                         const struct ms_job_event *e);

/* ---- decide.c ---------------------------------------------------------------------- */

/* "now" or "in 1.5 s". */
const char *ms_text_after(char out[32], int64_t ns);
/* A process of a slot has ended; nothing happens if it is not the current one. */
void ms_core_slot_ended(struct ms_job_core *c,
                        struct ms_core_role *r,
                        const struct ms_job_report *p,
                        const char *text);
/* Decide of all DEAD slots. */
void ms_core_role_decide(struct ms_job_core *c, struct ms_core_role *r);
/* Its creation has failed by this cause, on this rank; is_said: with all of its text. */
void ms_core_role_failed(struct ms_job_core *c,
                         struct ms_core_role *r,
                         uint32_t rank,
                         enum ms_job_cause cause,
                         bool is_said);
/* There is no use in trying again. */
void ms_core_role_give_up(struct ms_job_core *c,
                          struct ms_core_role *r,
                          uint32_t rank,
                          enum ms_job_cause cause,
                          const char *why);

/* ---- driver.c ---------------------------------------------------------------------- */

/* `is_ready`: its roles are there. */
void ms_core_driver_up(struct ms_job_core *c, bool is_ready);
bool ms_core_driver_down(struct ms_job_core *c); /* true: it has ended */
void ms_core_driver_answer(struct ms_job_core *c, const struct ms_job_event *e);
void ms_core_driver_hung(struct ms_job_core *c);
void ms_core_driver_ended(struct ms_job_core *c,
                          const struct ms_job_report *p,
                          const char *text);

/* ---- user.c, recover.c, hang.c ----------------------------------------------------- */

void ms_take_stop(struct ms_job_core *c, const struct ms_job_event *e);
void ms_take_suspend(struct ms_job_core *c, const struct ms_job_event *e);
void ms_take_resume(struct ms_job_core *c, const struct ms_job_event *e);
void ms_take_scale(struct ms_job_core *c, const struct ms_job_event *e);
void ms_take_restart(struct ms_job_core *c, const struct ms_job_event *e);
void ms_take_delete(struct ms_job_core *c, const struct ms_job_event *e);

void ms_take_recovered(struct ms_job_core *c, const struct ms_job_event *e);
void ms_take_found(struct ms_job_core *c, const struct ms_job_event *e);
void ms_unknown_lost(struct ms_job_core *c); /* its deadline has come */

void ms_take_progress(struct ms_job_core *c,
                      const struct ms_job_event *e,
                      int64_t now_ns);
void ms_take_suspected(struct ms_job_core *c, const struct ms_job_event *e);
void ms_take_hung(struct ms_job_core *c, const struct ms_job_event *e);
void ms_hang_dumped(struct ms_job_core *c,
                    struct ms_core_role *r,
                    const struct ms_job_event *e);
int64_t ms_hang_wake_ns(const struct ms_job_core *c);
/* The stacks of the driver were taken, or not. */
void ms_hang_driver_dumped(struct ms_job_core *c, const struct ms_job_event *e);

/* ---- codec.c ----------------------------------------------------------------------- */

/* 1: the first. Some of that number have what 2 adds to nodes, and are read too.
 * 2: when a node was last struck, and by what.
 * 3: the hang of a driver.
 * 4: checks that could not be made, counted by themselves. */
#define MS_CORE_WIRE_VERSION 4

/* One walk over the fields of a value writes it or reads it: `out` is set, or `at`. */
struct ms_core_codec {
    struct ms_buf *out;
    const uint8_t *at, *end;
    uint8_t version; /* of the record */
    int rc;          /* the first failure: -EBADMSG, -ENOMEM */
};

/* A record is a letter that says what it is, the version, the fields and a check of all of
 * them. Begin writes the first two; seal adds the check to what was written from `from`. */
void ms_core_codec_begin(struct ms_core_codec *k, struct ms_buf *out, char kind);
int ms_core_codec_seal(struct ms_core_codec *k, size_t from);
/* Is it a whole record of this kind? 0: its fields can be read. -EBADMSG, -ENOTSUP. */
int ms_core_codec_open(struct ms_core_codec *k,
                       char kind,
                       const void *data,
                       size_t len,
                       struct ms_error *err);

void ms_core_codec_u64(struct ms_core_codec *k, uint64_t *v, uint64_t max);
void ms_core_codec_u32(struct ms_core_codec *k, uint32_t *v, uint32_t max);
void ms_core_codec_u16(struct ms_core_codec *k, uint16_t *v);
void ms_core_codec_u8(struct ms_core_codec *k, uint8_t *v, uint8_t max);
void ms_core_codec_bool(struct ms_core_codec *k, bool *v);
void ms_core_codec_i64(struct ms_core_codec *k, int64_t *v);
void ms_core_codec_i32(struct ms_core_codec *k, int32_t *v);
void ms_core_codec_budget(struct ms_core_codec *k, uint16_t *budget);
/* A text in an array of its own, NUL-terminated. */
void ms_core_codec_text(struct ms_core_codec *k, char *text, size_t room);
/* Of a spec, all but its roles. */
void ms_core_codec_spec(struct ms_core_codec *k, struct ms_job_spec *s);
/* The roles: their array is made for the reader, who frees it, also after a failure. */
void ms_core_codec_role_specs(struct ms_core_codec *k, struct ms_job_spec *s);
static inline bool ms_core_codec_is_reading(const struct ms_core_codec *k)
{
    return !k->out;
}

#endif
