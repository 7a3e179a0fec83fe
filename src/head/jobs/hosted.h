/* hosted.h - one job, and all jobs of a head */
#ifndef MS_HEAD_JOBS_HOSTED_H
#define MS_HEAD_JOBS_HOSTED_H

#include "base/list.h"
#include "head/jobs/asked.h"
#include "head/jobs/ends.h"
#include "head/jobs/jobs.h"
#include "head/jobs/ranks.h"
#include "io/loop.h"
#include "job/core/core.h"
#include "job/file.h"
#include "job/node_ranges.h"
#include "job/queue.h"
#include "orchestrator/orchestrator.h"

#include <limits.h>

#define MS_JOBS_MAX          ((size_t)1024)
#define MS_JOB_TEXT_FILE_MAX ((size_t)1 << 20) /* of a file that is submitted */
#define MS_JOB_KEY           "job."            /* before the names of reservations */

struct ms_job_checking;
struct ms_job_sign;
struct ms_job_silence;

/* One job. */
struct ms_hosted {
    struct ms_list link; /* ms_jobs.all, by age */
    struct ms_jobs *jobs;
    char name[MS_NAME_MAX + 1];
    char key[MS_ORCH_KEY_MAX + 1]; /* of its reservation */
    uint64_t id;                   /* clusters of it have it as their driver's */
    Muster__SubmitJob *submit;
    struct ms_job file;
    /* Why the file of a job of the head before is refused now; code 0: it is not. Only its
     * machines are known of it then, and it is ended. */
    struct ms_error refused;
    size_t role_room;     /* for roles of the core */
    uint32_t *file_roles; /* of each role of the core: its index in the file */
    struct ms_job_core *core;
    int64_t submitted_ns, ended_ns; /* since 1970 */
    char queued_why[256];           /* queue.c: what it waits for; empty: nothing */

    /* feed.c */
    int64_t ahead_ns; /* the job's time is so much more than the loop's */
    uint64_t event_number, snapshot_number, line_number;
    struct ms_list waiting;
    bool is_feeding;
    bool is_recovering; /* nothing is carried out until it is known what there is */
    bool is_forgotten;  /* nothing is left of it */
    struct ms_timer wake, retry;
    struct ms_error journal; /* why it cannot be written; code 0: it can */
    struct ms_job_ends ends;

    /* act.c */
    struct ms_job_ranks *ranks; /* of each role of the core */
    struct ms_job_ranks driver;
    struct ms_list actions; /* under way */

    /* signs.c */
    struct ms_job_sign **signs; /* of each role, by rank; NULL: not looked at yet */
    struct ms_job_sign *around; /* of all workers on its machines, for the driver */
    size_t around_count;
    bool is_around_untold; /* as ms_job_sign.is_untold */
    struct ms_timer look;
    bool is_looking; /* the timer is set, or the answer comes */

    /* beats.c */
    struct ms_job_silence *silent; /* at the last look */
    size_t silent_count;

    /* check.c */
    struct ms_job_checking *checking; /* NULL: no check is under way */

    /* machines.c */
    struct ms_fleet *fleet; /* NULL: the head's own nodes, or none yet */
    bool is_on_ours; /* it runs on nodes that have joined the head by themselves */
    bool is_mending; /* something is asked for: a lost node, or more of them */
    unsigned mend_failures; /* one after the other */
    struct ms_timer mend;
    uint32_t *least; /* the nodes that it needs; ms_job_nodes_least */
    size_t least_count;
    struct ms_fleet_piece
        *known; /* what the head before knew, until there is a fleet */
    size_t known_count;

    /* grow.c */
    uint8_t *node_is; /* enum ms_job_node_is, of each described node */
    bool knows_nodes; /* `node_is` is not from before the head was started */
    size_t more_asks; /* under way */
    uint32_t more_came;
    int64_t more_again_ns;
    uint64_t more_of; /* the RESERVE that waits for their answers; 0: none */
};

struct ms_jobs {
    struct ms_head *head;
    char agent_path[PATH_MAX];
    char *ray; /* where machines of jobs on Ray come from; NULL: there are none */
    struct ms_list all;
    struct ms_list waiting; /* operations that wait for events, or for an end */
    struct ms_asked asked;
    struct ms_timer recover, later;
    struct ms_job_demand machine; /* queue.c; nothing: not looked at yet */
    size_t count;
    bool has_room; /* a node of ours has joined, and nobody was told yet */
    bool is_ending;
};

/* ---- jobs.c --------------------------------------------------------------------- */

struct ms_hosted *ms_hosted_find(const struct ms_jobs *j, const char *name);
struct ms_hosted *ms_hosted_find_id(const struct ms_jobs *j, uint64_t id);
/* Takes the message, also on failure. NULL: with the reason. */
struct ms_hosted *
ms_hosted_create(struct ms_jobs *j, Muster__SubmitJob *submit, struct ms_error *err);
/* One of the head before, of that name, whose file ms_hosted_create has refused for this
 * reason. */
struct ms_hosted *ms_hosted_create_refused(struct ms_jobs *j,
                                           Muster__SubmitJob *submit,
                                           const char *name,
                                           const struct ms_error *why,
                                           struct ms_error *err);
void ms_hosted_destroy(struct ms_hosted *job);
/* Something has changed: who waits looks again; the queue too. */
void ms_jobs_changed(struct ms_jobs *j);
/* The cluster of a role (MS_JOB_DRIVER: of the driver). Returns `out`. */
const char *ms_hosted_cluster(const struct ms_hosted *job,
                              uint32_t role,
                              char out[MS_NAME_MAX + 1]);
/* The role of that cluster; MS_JOB_NO_ROLE: it is none of this job. */
uint32_t ms_hosted_role(const struct ms_hosted *job, const char *cluster);
/* It has another owner. One without an owner, as that of a job that was deleted, is not
 * foreign. */
bool ms_hosted_is_foreign(const struct ms_hosted *job, const struct ms_cluster *c);
const struct ms_job_role *ms_hosted_file_role(const struct ms_hosted *job,
                                              uint32_t role);
/* The name of a role of the core. */
const char *ms_hosted_role_name(const struct ms_hosted *job, uint32_t role);

/* ---- status.c ------------------------------------------------------------------- */

/* NULL: out of memory. */
Muster__JobStatus *ms_hosted_status(const struct ms_hosted *job);

/* ---- recover.c ------------------------------------------------------------------ */

int ms_jobs_read(struct ms_jobs *j, struct ms_error *err);
void ms_jobs_recover(void *jobs); /* of the timer `recover` */

#endif
