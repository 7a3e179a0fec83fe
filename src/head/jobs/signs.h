/* signs.h - signs of work of the ranks of a job, and processes that are silent */
#ifndef MS_HEAD_JOBS_SIGNS_H
#define MS_HEAD_JOBS_SIGNS_H

#include "head/jobs/hosted.h"

struct ms_job_doing;

/* What was known of a rank's process when it last showed a sign of work. */
struct ms_job_sign {
    uint64_t uid, cpu_ns, calls, progress;
    int64_t at_ns;
    bool is_untold; /* the core has not got it: its journal cannot be written */
};

/* A process that is there and silent, since then. */
struct ms_job_silence {
    uint64_t uid;
    int64_t since_ns;
};

/* ---- signs.c -------------------------------------------------------------------- */

int ms_signs_init(struct ms_hosted *job, struct ms_error *err);
void ms_signs_finish(struct ms_hosted *job);
/* Look at its ranks from now on, if it runs and one of its roles may hang. */
void ms_signs_follow(struct ms_hosted *job);
void ms_act_dump_stacks(struct ms_job_doing *d);
/* Ask what all workers do; then `next`, with a Status in d->op->message. */
void ms_doing_ask_activity(struct ms_job_doing *d,
                           void (*next)(struct ms_job_doing *d,
                                        int rc,
                                        const struct ms_error *why));

/* ---- beats.c -------------------------------------------------------------------- */

/* How long until the next look, at most. */
int64_t ms_beats_look_ns(const struct ms_hosted *job);
/* What all workers do, as signs.c has asked: who was silent for too long has ended. */
void ms_beats_look(struct ms_hosted *job, const Muster__Status *status);
void ms_beats_finish(struct ms_hosted *job);

#endif
