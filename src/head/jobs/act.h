/* act.h - what the core has decided, carried out */
#ifndef MS_HEAD_JOBS_ACT_H
#define MS_HEAD_JOBS_ACT_H

#include "head/jobs/hosted.h"

struct ms_head_op;

/* An action that is under way; freed by its answer. */
struct ms_job_doing {
    struct ms_list link; /* ms_hosted.actions */
    struct ms_hosted *job;
    uint32_t what, role, count, incarnation, memory;
    uint32_t fits; /* of those that did not: what is told of NO_ROOM */
    uint64_t id;
    uint32_t *ranks;
    uint32_t *ends; /* of each: this incarnation and older ones are to end */
    size_t rank_count;
    uint32_t *elsewhere; /* those that are not to be where they were */
    size_t elsewhere_count;
    struct ms_head_op *op; /* the last that has been answered */
    bool is_asked;         /* another one is under way */
    struct ms_timer timer; /* drain.c */
    int64_t deadline_ns;
    /* when `op` has completed: what is next */
    void (*next)(struct ms_job_doing *d, int rc, const struct ms_error *why);
};

void ms_job_carry_out(struct ms_hosted *job, const struct ms_job_action *a);
/* The answers. */
void ms_doing_done(struct ms_job_doing *d);
void ms_doing_done_with(struct ms_job_doing *d, const char *text);
/* With reports of nodes. */
void ms_doing_done_of(struct ms_job_doing *d,
                      const struct ms_job_report *reports,
                      size_t report_count,
                      const char *text);
void ms_doing_failed(struct ms_job_doing *d,
                     enum ms_job_failure failure,
                     const struct ms_job_report *reports,
                     size_t report_count,
                     const char *text);
/* By the code of an error. */
void ms_doing_failed_with(struct ms_job_doing *d, int rc, const struct ms_error *why);
/* Ask the head (`body` as in ms_head_request); then `next`. */
void ms_doing_ask(struct ms_job_doing *d,
                  Muster__DriverToHead__BodyCase what,
                  const void *body,
                  void (*next)(struct ms_job_doing *d,
                               int rc,
                               const struct ms_error *why));
void ms_doings_drop(struct ms_hosted *job);

/* ---- act_role.c ----------------------------------------------------------------- */

void ms_act_create(struct ms_job_doing *d);
void ms_act_replace(struct ms_job_doing *d);
void ms_act_restart(struct ms_job_doing *d);
void ms_act_resize(struct ms_job_doing *d);
void ms_act_destroy(struct ms_job_doing *d);
void ms_act_end_strays(struct ms_job_doing *d);
void ms_act_start_driver(struct ms_job_doing *d);
void ms_act_stop_driver(struct ms_job_doing *d);

/* ---- drain.c -------------------------------------------------------------------- */

void ms_act_drain(struct ms_job_doing *d);

#endif
