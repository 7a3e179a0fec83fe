/* jobs_impl.h - what the files of jobs.h share */
#ifndef MS_HEAD_JOBS_JOBS_IMPL_H
#define MS_HEAD_JOBS_JOBS_IMPL_H

#include "base/buf.h"
#include "base/clock.h"
#include "base/list.h"
#include "head/jobs/jobs.h"
#include "io/loop.h"
#include "job/core/core.h"
#include "job/file.h"
#include "job/node_ranges.h"
#include "job/queue.h"
#include "orchestrator/orchestrator.h"

#include <limits.h>

#define MS_JOBS_MAX          ((size_t)1024)
#define MS_JOB_TEXT_FILE_MAX ((size_t)1 << 20)  /* of a file that is submitted */
#define MS_JOB_SNAPSHOT      256                /* events until the next one */
#define MS_JOB_LINES_MAX     ((uint64_t)20000)  /* that are kept of one job */
#define MS_JOB_RETRY_NS      (1 * MS_NS_PER_S)  /* a journal that cannot be written */
#define MS_JOB_MEND_NS       (2 * MS_NS_PER_S)  /* a node that was lost */
#define MS_JOB_MEND_MAX_NS   (60 * MS_NS_PER_S) /* after it could not be had */
#define MS_JOB_BACK_NS                                                                 \
    (60 * MS_NS_PER_S) /* for its machines to come back to a new head */
#define MS_JOB_MORE_NS       (20 * MS_NS_PER_S) /* for a node that the job can do without */
#define MS_JOB_MORE_AGAIN_NS (5 * MS_NS_PER_S) /* when it was not lent */
#define MS_JOB_MORE_ASKS_MAX ((size_t)64)      /* such questions at a time */
#define MS_JOB_KEY           "job."            /* before the names of reservations */

/* Which incarnation of the core each rank of a role has. */
struct ms_job_ranks {
    uint64_t *uids;
    uint32_t *incarnations;
    size_t count;
};

/* What was known of a rank's process when it last showed a sign of work. */
struct ms_job_sign {
    uint64_t uid, cpu_ns, calls, progress;
    int64_t at_ns;
};

/* A process that is there and silent, since then. */
struct ms_job_silence {
    uint64_t uid;
    int64_t since_ns;
};

/* An event that is not in the core yet, as bytes. */
struct ms_job_waiting {
    struct ms_list link; /* ms_hosted.waiting */
    bool is_kept;        /* it goes into the journal */
    bool is_asked;       /* a person waits for it, and is told if it cannot be kept */
    struct ms_buf data;
};

/* Ends that are alike and were not told yet (ends.c). */
struct ms_job_ends {
    struct ms_job_report *all;
    size_t count, room;
    struct ms_buf text;         /* of all of them */
    char node[MS_NAME_MAX + 1]; /* where all of them were */
    struct ms_timer later;
};

/* One job. */
struct ms_hosted {
    struct ms_list link; /* ms_jobs.all, by age */
    struct ms_jobs *jobs;
    char name[MS_NAME_MAX + 1];
    char key[MS_ORCH_KEY_MAX + 1]; /* of its reservation */
    uint64_t id;                   /* clusters of it have it as their driver's */
    Muster__SubmitJob *submit;
    struct ms_job file;
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
    struct ms_timer recover, later;
    struct ms_job_demand machine; /* queue.c; nothing: not looked at yet */
    size_t count;
    bool has_room; /* a node of ours has joined, and nobody was told yet */
    bool is_ending;
};

/* ---- jobs.c ------------------------------------------------------------------------ */

struct ms_hosted *ms_hosted_find(const struct ms_jobs *j, const char *name);
struct ms_hosted *ms_hosted_find_id(const struct ms_jobs *j, uint64_t id);
/* Takes the message, also on failure. NULL: with the reason. */
struct ms_hosted *
ms_hosted_create(struct ms_jobs *j, Muster__SubmitJob *submit, struct ms_error *err);
void ms_hosted_destroy(struct ms_hosted *job);
/* Something has changed: who waits looks again; the queue too. */
void ms_jobs_changed(struct ms_jobs *j);
/* The cluster of a role (MS_JOB_DRIVER: of the driver). Returns `out`. */
const char *ms_hosted_cluster(const struct ms_hosted *job,
                              uint32_t role,
                              char out[MS_NAME_MAX + 1]);
/* The role of that cluster; MS_JOB_NO_ROLE: it is none of this job. */
uint32_t ms_hosted_role(const struct ms_hosted *job, const char *cluster);
/* Somebody else has made it; one that nobody has any more, as that of a job that was deleted,
 * is in nobody's way. */
bool ms_hosted_is_foreign(const struct ms_hosted *job, const struct ms_cluster *c);
const struct ms_job_role *ms_hosted_file_role(const struct ms_hosted *job,
                                              uint32_t role);

/* ---- queue.c ----------------------------------------------------------------------- */

/* Those whose turn has come start; the others are told what they wait for. */
void ms_jobs_admit(struct ms_jobs *j);
/* What is left of the machine for a job that runs there, beyond what it has. False: its
 * machines are elsewhere, and nobody here counts them. */
bool ms_jobs_left(struct ms_hosted *job, struct ms_job_demand *left);
/* Take that much of it. False: there is less, and nothing has changed. */
bool ms_jobs_take(struct ms_jobs *j,
                  const struct ms_job_demand *wants,
                  struct ms_job_demand *left);
/* What one of its nodes takes of the machine. */
struct ms_job_demand ms_hosted_node_demand(const struct ms_hosted *job, uint32_t node);

/* ---- feed.c ------------------------------------------------------------------------ */

int ms_hosted_start(struct ms_hosted *job, struct ms_error *err); /* its timers */
int64_t ms_hosted_now_ns(const struct ms_hosted *job);
/* An event that has happened: it is in the core sooner or later. */
void ms_hosted_feed(struct ms_hosted *job, const struct ms_job_event *e);
/* One that a person wants: 0, or why not, and nothing has changed. */
int ms_hosted_want(struct ms_hosted *job,
                   const struct ms_job_event *e,
                   struct ms_error *err);
/* One more line of the explanation. */
void ms_hosted_say(struct ms_hosted *job, const struct ms_job_action *said);
/* The same, of the host itself. */
void ms_hosted_note(struct ms_hosted *job,
                    enum ms_job_level level,
                    const char *fmt,
                    ...) __attribute__((format(printf, 3, 4)));
/* "NAME/00000000000000000012" */
void ms_hosted_number_key(const struct ms_hosted *job, uint64_t number, char out[96]);
/* Its record in the journal, as it is now. */
int ms_hosted_keep(struct ms_hosted *job, struct ms_error *err);
/* The first one. */
int ms_hosted_keep_new(struct ms_hosted *job, struct ms_error *err);
/* Nothing of it stays in the journal. */
void ms_hosted_forget(struct ms_hosted *job);

/* ---- ends.c ------------------------------------------------------------------------ */

int ms_ends_init(struct ms_hosted *job, struct ms_error *err);
void ms_ends_finish(struct ms_hosted *job);
/* A process has ended, on a node that is known: it is told with those like it, before any
 * other event. All is copied. */
void ms_ends_add(struct ms_hosted *job,
                 const struct ms_job_report *report,
                 const char *text);
void ms_ends_tell(struct ms_hosted *job); /* now */

/* ---- act.c ------------------------------------------------------------------------- */

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
/* Ask the head; then `next`. */
void ms_doing_ask(struct ms_job_doing *d,
                  const Muster__DriverToHead *m,
                  void (*next)(struct ms_job_doing *d,
                               int rc,
                               const struct ms_error *why));
void ms_doings_drop(struct ms_hosted *job);

/* ---- act_role.c -------------------------------------------------------------------- */

void ms_act_create(struct ms_job_doing *d);
void ms_act_replace(struct ms_job_doing *d);
void ms_act_restart(struct ms_job_doing *d);
void ms_act_resize(struct ms_job_doing *d);
void ms_act_destroy(struct ms_job_doing *d);
void ms_act_end_strays(struct ms_job_doing *d);
void ms_act_start_driver(struct ms_job_doing *d);
void ms_act_stop_driver(struct ms_job_doing *d);
/* Of a rank whose process this is now; 0: not known. */
uint32_t
ms_hosted_incarnation(const struct ms_hosted *job, uint32_t role, uint64_t uid);
/* What the cluster has now; processes that are not known are of this incarnation. */
void ms_hosted_note_ranks(struct ms_hosted *job,
                          uint32_t role,
                          const struct ms_cluster *c,
                          uint32_t incarnation);
/* Those that have ended, again: the core ignores what it knows. */
void ms_hosted_tell_ends(struct ms_hosted *job, uint32_t role);
struct ms_job_ranks *ms_hosted_ranks(struct ms_hosted *job, uint32_t role);
/* What an exit is to the core; the text is for the event. */
enum ms_job_cause ms_job_cause_of(const Muster__Exit *exit);
void ms_job_exit_text(const Muster__Exit *exit, struct ms_buf *out);

/* ---- signs.c ----------------------------------------------------------------------- */

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

/* ---- beats.c ----------------------------------------------------------------------- */

/* How long until the next look, at most. */
int64_t ms_beats_look_ns(const struct ms_hosted *job);
/* What all workers do, as signs.c has asked: who was silent for too long has ended. */
void ms_beats_look(struct ms_hosted *job, const Muster__Status *status);
void ms_beats_finish(struct ms_hosted *job);

/* ---- check.c ----------------------------------------------------------------------- */

void ms_act_check(struct ms_job_doing *d);
/* A worker of the job has ended: true, if it was one of the check. */
bool ms_check_exited(struct ms_hosted *job,
                     const struct ms_slot *slot,
                     const Muster__Exit *exit);
/* End what is under way: nobody wants the answer any more. */
void ms_check_cancel(struct ms_hosted *job);
void ms_check_drop(struct ms_hosted *job); /* its memory alone */

/* ---- drain.c ----------------------------------------------------------------------- */

void ms_act_drain(struct ms_job_doing *d);

/* ---- machines.c -------------------------------------------------------------------- */

bool ms_hosted_is_on_ray(const struct ms_hosted *job);
/* It would run on nodes that have joined the head by themselves: none has to be lent. */
bool ms_machines_are_there(const struct ms_hosted *job);

void ms_act_reserve(struct ms_job_doing *d);
void ms_act_release(struct ms_job_doing *d);
void ms_act_avoid(struct ms_job_doing *d, const char *node, const char *reason);
int ms_machines_init(struct ms_hosted *job, struct ms_error *err);
void ms_machines_finish(struct ms_hosted *job);
/* A request for machines of the job; the message borrows from the others. */
struct ms_job_reserve {
    Muster__PlaceGroup pieces;
    Muster__Reserve reserve;
    Muster__DriverToHead request;
};
void ms_reserve_fill(const struct ms_hosted *job, struct ms_job_reserve *r);
/* Of the nodes that it needs. */
void ms_reserve_fill_least(const struct ms_hosted *job, struct ms_job_reserve *r);
/* Reserve again what the head before had; it is the same. */
void ms_machines_recover(struct ms_hosted *job);
/* The names of its nodes that are there, NULL-terminated, malloc'd, borrowed texts. */
const char **ms_machines_nodes(const struct ms_hosted *job);
/* The same without those that the core avoids; all of them, if it avoids all. */
const char **ms_machines_trusted(const struct ms_hosted *job);
bool ms_machines_are_back(const struct ms_hosted *job);

/* ---- mend.c ------------------------------------------------------------------------ */

int ms_mend_init(struct ms_hosted *job); /* its timer */
/* All that it needs: it is the same if it is held, and else asked for anew. */
void ms_mend_begin_again(struct ms_hosted *job);

/* ---- grow.c ------------------------------------------------------------------------ */

/* Nothing is held. */
void ms_grow_forget(struct ms_hosted *job);
/* The job has what it needs: answer the RESERVE when all others were asked for. */
void ms_grow_reserved(struct ms_job_doing *d);
/* See what there is. False: that is not known now. */
bool ms_grow_look(struct ms_hosted *job);
/* A node to be asked for again, and its piece that is to be given back (or none). */
bool ms_grow_find_lost(const struct ms_hosted *job, uint32_t *node, uint32_t *number);
/* Ask for nodes that it can do without, if it is time to. */
void ms_grow_try(struct ms_hosted *job);

/* ---- spec.c ------------------------------------------------------------------------ */

/* To be freed with muster__cluster_spec__free_unpacked; NULL with the reason. */
Muster__ClusterSpec *ms_spec_of_role(const struct ms_hosted *job,
                                     uint32_t role,
                                     uint32_t count,
                                     uint32_t memory,
                                     struct ms_error *err);
/* Bytes that each of its ranks may have, at so many percent of what the file says; 0: as much
 * as there is. */
uint64_t ms_spec_memory(const struct ms_hosted *job, uint32_t role, uint32_t percent);
Muster__ClusterSpec *
ms_spec_of_driver(const struct ms_hosted *job, uint32_t attempt, struct ms_error *err);
/* One rank of the check's command on each of these nodes. */
Muster__ClusterSpec *ms_spec_of_check(const struct ms_hosted *job,
                                      const char *cluster,
                                      const char **nodes,
                                      uint32_t count,
                                      struct ms_error *err);
/* ---- roles_entry.c ----------------------------------------------------------------- */

/* What the file says of roles, for the driver; the key-value store has it. */
int ms_roles_entry_put(const struct ms_hosted *job, struct ms_error *err);
void ms_roles_entry_delete(const struct ms_hosted *job);

/* ---- simulated.c ------------------------------------------------------------------- */

bool ms_hosted_is_simulated(const struct ms_hosted *job);
/* The spec as it is there. 0, or -EINVAL with the reason. */
void ms_simulated_change(struct ms_job_spec *spec);
void ms_act_simulated(struct ms_job_doing *d); /* any action */
void ms_simulated_recover(struct ms_hosted *job);

/* ---- status.c ---------------------------------------------------------------------- */

/* NULL: out of memory. */
Muster__JobStatus *ms_hosted_status(const struct ms_hosted *job);

/* ---- recover.c --------------------------------------------------------------------- */

int ms_jobs_read(struct ms_jobs *j, struct ms_error *err);
void ms_jobs_recover(void *jobs); /* of the timer `recover` */

#endif
