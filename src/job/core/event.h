/* event.h - what the job controller is told, and what it wants done
 *
 * Both are values without references to the outside, and both have a wire form: events are
 * what a journal keeps. Strings and arrays are borrowed: of an event until the step returns,
 * of an action until the next step.
 *
 * Identity. A slot is (role, rank). `role` is the role's index in the spec. An incarnation
 * counts within a role: all processes that one action starts have the same, and each later
 * action has a larger one. A host that is given an action again does not start a process of
 * it again whose end it has told or is about to tell. The host keeps the incarnation with the
 * process, so that it can tell it of each end and after a recovery. The driver's incarnation
 * is its attempt: 1, 2, ... An event of an older incarnation changes nothing.
 */
#ifndef MS_JOB_CORE_EVENT_H
#define MS_JOB_CORE_EVENT_H

#include "base/buf.h"
#include "job/core/spec.h"

#define MS_JOB_TEXT_MAX    ((size_t)2048) /* longer texts keep their end */
#define MS_JOB_REPORTS_MAX (2u * MS_JOB_CORE_SLOTS_MAX)
#define MS_JOB_DRIVER      UINT32_MAX /* in the place of a role: the driver */
#define MS_JOB_NO_ROLE     (UINT32_MAX - 1)
#define MS_JOB_ALL_RANKS   UINT32_MAX

/* ---- events ------------------------------------------------------------------------ */

enum ms_job_event_what {
    MS_JOB_SUBMITTED = 1, /* spec. The first event, once */
    MS_JOB_ADMITTED,      /* its turn has come: it leaves the queue */

    /* The answer to an action, exactly one for each, by its id. */
    MS_JOB_DONE, /* id. Of CHECK_NODES: reports of what is wrong, by node; none: all well;
                    text: what was done.
                    Of DUMP_STACKS: text */
    MS_JOB_NOT_DONE, /* id, failure, text; of CREATE, REPLACE, RESTART, RESIZE also fits,
                        and the ends of ranks as reports */

    /* What happens. */
    MS_JOB_EXITED, /* reports: one end or a million, of roles and of the driver; text: of
                      the first, e.g. its traceback */
    MS_JOB_PROGRESS, /* reports: who was looked at: running, or silent since the last sign;
                         count: that was known so many ms ago. Need not be journalled */
    MS_JOB_SUSPECTED, /* role, reports: from ms_job_core_suspect */
    MS_JOB_HUNG, /* role, reports: from ms_job_core_suspect. None: they work again */
    MS_JOB_CANNOT_ASK, /* the orchestrator cannot be asked; text */
    MS_JOB_CAN_ASK,    /* it can again */
    MS_JOB_RECOVERED, /* the controller was restarted; reports: what was found; flags */
    MS_JOB_FOUND,     /* reports: what is found later of what was unknown */
    MS_JOB_ROOM,      /* a machine has come: what waits for room is tried at once */
    MS_JOB_TICK,

    /* What people want. */
    MS_JOB_STOP,    /* text: who, or why */
    MS_JOB_SUSPEND, /* text */
    MS_JOB_RESUME,  /* text, flags */
    MS_JOB_SCALE,   /* role, count */
    MS_JOB_RESTART, /* role, rank or MS_JOB_ALL_RANKS; or MS_JOB_NO_ROLE: the job;
                       MS_JOB_DRIVER: the driver */
    MS_JOB_DELETE,  /* stop it if it runs, and forget it */
    MS_JOB_EVENT_WHATS
};

/* Why an action was not done. */
enum ms_job_failure {
    MS_JOB_FAILED,  /* it began and failed; the reports of its ranks have the causes */
    MS_JOB_NO_ROOM, /* not now: fits says how many of those that it would have started
                         could be had */
    MS_JOB_REFUSED, /* never: it makes no sense to ask again */
    MS_JOB_NOT_ASKED, /* the orchestrator, or the node, could not be asked */
    MS_JOB_FAILURES
};

/* What is known of a process. */
enum ms_job_seen {
    MS_JOB_SEEN_ENDED,   /* cause, exit code */
    MS_JOB_SEEN_RUNNING, /* found, or works */
    MS_JOB_SEEN_MISSING, /* the one that would have it was asked, and has not */
    MS_JOB_SEEN_SILENT,  /* of PROGRESS: there, without a sign of work */
    MS_JOB_SEENS
};

/* In an event: of one process. */
struct ms_job_report {
    uint32_t role, rank, incarnation;
    uint8_t seen;     /* ms_job_seen */
    uint8_t cause;    /* ms_job_cause, of an end */
    uint8_t signaled; /* code is a signal */
    uint8_t unused;
    int32_t code;
    const char *node; /* where it was; NULL: not known */
};

#define MS_JOB_COMPLETE UINT32_C(1) /* RECOVERED: what is not reported is missing */
#define MS_JOB_REQUEUE  UINT32_C(2) /* RESUME: it waits for its turn again */

struct ms_job_event {
    uint32_t what;
    uint32_t role, rank, count, fits, flags;
    uint8_t failure;
    uint64_t id;
    const char *text; /* NULL: none */
    const struct ms_job_report *reports;
    size_t report_count;
    const struct ms_job_spec *spec; /* of SUBMITTED */
};

/* ---- actions ----------------------------------------------------------------------- */

enum ms_job_action_what {
    /* Of the whole job. */
    MS_JOB_DO_RESERVE = 1,
    MS_JOB_DO_RELEASE,     /* all that was reserved; what is not there is no failure */
    MS_JOB_DO_CHECK_NODES, /* of the reservation */
    MS_JOB_DO_AVOID,       /* node, text: lend nothing there */

    /* Of a role. All or none; count is the size that the role has afterwards. */
    MS_JOB_DO_CREATE,  /* role, count, incarnation, memory */
    MS_JOB_DO_REPLACE, /* role, ranks, incarnation, memory: their old processes end */
    MS_JOB_DO_RESTART, /* role, count, incarnation, memory: all ranks */
    MS_JOB_DO_RESIZE, /* role, count, ranks: those that are new, with incarnation; ranks
                          from count on go */
    MS_JOB_DO_DRAIN,  /* role, ranks: no new work for them; done when they have none */
    MS_JOB_DO_DESTROY,     /* role; what is not there is no failure */
    MS_JOB_DO_DUMP_STACKS, /* role: of all ranks */
    MS_JOB_DO_END_STRAYS,  /* role, ranks, each with the incarnation that is to end */

    /* Of the driver. */
    MS_JOB_DO_START_DRIVER, /* incarnation: the attempt */
    MS_JOB_DO_STOP_DRIVER,  /* done when it has ended; EXITED need not follow */

    /* For people and the host; there is no answer to these. */
    MS_JOB_DO_SAY,    /* level, role, rank, cause, text: one line of `muster events` */
    MS_JOB_DO_FINISH, /* stage, code, cause, text: the job is over */
    MS_JOB_DO_FORGET, /* nothing is left of it: its name is free */
    MS_JOB_ACTION_WHATS
};

enum ms_job_level { MS_JOB_INFO, MS_JOB_WARNING, MS_JOB_ERROR };

#define MS_JOB_ELSEWHERE UINT32_C(1) /* not where it was, if there is any other place */

struct ms_job_action_rank {
    uint32_t rank;
    uint32_t incarnation; /* it and all older ones are to end */
    uint32_t flags;       /* MS_JOB_ELSEWHERE */
};

struct ms_job_action {
    uint32_t what;
    uint64_t id; /* 0 if there is no answer to it */
    uint32_t role, rank, count, incarnation;
    uint32_t memory; /* percent of the role's request */
    uint8_t level, cause, stage;
    int32_t code;
    const char *node, *text; /* NULL: none */
    const struct ms_job_action_rank *ranks;
    size_t rank_count;
};

const char *ms_job_event_name(uint32_t what);  /* "exited" */
const char *ms_job_action_name(uint32_t what); /* "replace" */

/* ---- wire form --------------------------------------------------------------------- */

/* Append an event. 0 or -ENOMEM. Equal values have equal bytes. */
int ms_job_event_encode(const struct ms_job_event *e, struct ms_buf *out);

/* An event that was read. It owns all that it refers to. */
struct ms_job_event_read {
    struct ms_job_event event;
    struct ms_job_spec spec;
    void *memory; /* of its arrays and strings */
};

/* All of `len` bytes. 0; -EBADMSG: they are no event; -ENOTSUP: of a newer version;
 * -ENOMEM. There is nothing to finish then. */
int ms_job_event_decode(struct ms_job_event_read *r,
                        const void *data,
                        size_t len,
                        struct ms_error *err);
void ms_job_event_read_finish(struct ms_job_event_read *r);

#endif
