/* test_sim_model.h - for tests: what each end must spend, found by other means than the core's
 *
 * The books are the model's own from the first step on. Before a step it copies what it needs
 * of the core: who runs and what is under way. From that and the event it finds which ends are
 * accepted and decided in this step, enters what they spend, and compares its books with the
 * core's. So an end that spends nothing, spends twice, by another cause or on another account
 * is found in the step in which it happens.
 */
#ifndef MS_JOB_CORE_TEST_SIM_MODEL_H
#define MS_JOB_CORE_TEST_SIM_MODEL_H

#include "job/core/core_impl.h"

#define SIM_ROLES_MAX 3u
#define SIM_SLOTS_MAX 64u /* of all roles */

/* The last application error, and how often it came. */
struct sim_error {
    uint32_t mark;
    uint16_t count;
};

struct sim_model {
    /* the books */
    uint16_t slots_spent[SIM_SLOTS_MAX][MS_JOB_BUDGETS];
    uint16_t roles_spent[SIM_ROLES_MAX][MS_JOB_BUDGETS];
    uint16_t driver_spent[MS_JOB_BUDGETS];
    uint16_t
        role_restarts[SIM_ROLES_MAX]; /* because of a rank whose budget was spent */
    uint32_t escalations, restarts;   /* of the job */
    struct sim_error role_errors[SIM_ROLES_MAX], driver_error;
    int64_t pardoned_ns; /* until then an error of the driver is a role's */

    /* the core before this step; what the event does is entered here */
    struct ms_job_core core;
    struct ms_core_role roles[SIM_ROLES_MAX];
    struct ms_core_slot slots[SIM_SLOTS_MAX];

    /* this step */
    int64_t now_ns;
    bool is_up;    /* what has ended is decided of */
    bool is_over;  /* the job ends by what has ended */
    uint8_t cause; /* by which cause then */
};

struct sim;

/* Before a step and after it. */
void sim_model_begin(struct sim *s);
void sim_model_check(struct sim *s, const struct ms_job_event *e);

/* ---- between the files ------------------------------------------------------------- */

/* test_sim_ends.c: enter what an event does; `after` is the core after the step. */
void sim_model_take(struct sim_model *m,
                    const struct ms_job_event *e,
                    const struct ms_job_core *after);

/* test_sim_model.c */
bool sim_model_is_same_too_often(const struct sim_model *m,
                                 struct sim_error *error,
                                 uint32_t mark,
                                 bool was_stable);
void sim_model_role_failed(struct sim_model *m, uint32_t role, uint32_t rank);
void sim_model_end(struct sim_model *m, uint8_t cause);
void sim_model_restart_job(struct sim_model *m);

#endif
