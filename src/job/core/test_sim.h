/* test_sim.h - for tests: a job in a world that loses, delays, kills and restarts
 *
 * The world has processes, machines that have room or not, an orchestrator that can be asked
 * or not, notices on their way, and a controller that is killed between any two writes. A
 * run has a time of chaos and then a calm one, in which the job must come to an end with
 * nothing left. After every step the rules of test_sim_rules.c are checked.
 */
#ifndef MS_JOB_CORE_TEST_SIM_H
#define MS_JOB_CORE_TEST_SIM_H

#include "job/core/test_sim_model.h"

#define SIM_PROCS_MAX 256u
#define SIM_TODOS_MAX 128u
#define SIM_NOTES_MAX 512u
#define SIM_WHY_MAX   ((size_t)512)

struct sim_proc {
    uint32_t role, rank, incarnation;
    int64_t hangs_ns;  /* since then; 0: it works */
    int64_t marked_ns; /* its last sign of work, as a look has found it */
};

/* An action that the host has begun. */
struct sim_todo {
    int64_t at_ns;
    struct ms_job_action action;
    struct ms_job_action_rank ranks[SIM_SLOTS_MAX];
};

/* An end that will be heard of. */
struct sim_note {
    int64_t at_ns;
    struct ms_job_report report;
};

struct sim {
    uint64_t seed; /* of the next random number */
    uint64_t number;
    struct ms_job_spec spec;
    struct ms_job_role_spec roles[SIM_ROLES_MAX];

    /* the world */
    int64_t now_ns;
    bool is_calm, is_down, is_held;
    struct sim_proc procs[SIM_PROCS_MAX];
    size_t proc_count;
    struct sim_todo todos[SIM_TODOS_MAX];
    size_t todo_count;
    struct sim_note notes[SIM_NOTES_MAX];
    size_t note_count;
    uint32_t told[SIM_ROLES_MAX][SIM_SLOTS_MAX]; /* the last whose end was heard of */
    int64_t found_ns; /* when the rest is found after a recovery; MS_NEVER: all is */

    /* the controller */
    struct ms_job_core *core;
    struct ms_buf snapshot, journal; /* records after the snapshot */
    size_t record_sizes[64];
    int64_t record_times[64];
    size_t record_count;
    bool is_finished, is_forgotten;
    uint32_t suspects;
    uint32_t steps, crashes, faults, idle_ticks, ends_refused;

    /* what the rules remember */
    struct sim_model model;
    uint32_t incarnations[SIM_SLOTS_MAX];
    uint64_t last_id;
    bool could_ask;
    bool is_told;          /* print what happens */
    char why[SIM_WHY_MAX]; /* the first rule that was broken */
};

/* One run. NULL, or what went wrong, for a person: borrowed until the next run. */
const char *sim_run(uint64_t number, bool is_told);

/* ---- between the files ------------------------------------------------------------- */

uint32_t sim_roll(struct sim *s, uint32_t sides);
/* Keep the first reason. */
void sim_fail(struct sim *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Journal an event, take it, begin its actions; or be killed between any two of these. */
void sim_event(struct sim *s, const struct ms_job_event *e);
void sim_crash(struct sim *s);

/* test_sim_world.c */
void sim_spec(struct sim *s);
void sim_begin(struct sim *s, const struct ms_job_action *a);
/* Do the one whose time has come first. */
void sim_do(struct sim *s, size_t i);
void sim_kill(struct sim *s, size_t i, enum ms_job_cause cause);
void sim_hear(struct sim *s, size_t i); /* a note arrives */
void sim_found(struct sim *s, uint32_t what, bool is_complete);
/* The controller dies: what is under way is done or not, and nobody hears of it. */
void sim_lose_todos(struct sim *s);

/* test_sim_rules.c */
void sim_check(struct sim *s, const struct ms_job_event *e);
void sim_check_action(struct sim *s,
                      const struct ms_job_event *e,
                      const struct ms_job_action *a);
void sim_check_rest(struct sim *s); /* nothing is under way */
void sim_check_end(struct sim *s);

#endif
