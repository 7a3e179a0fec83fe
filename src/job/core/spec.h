/* spec.h - what the job controller needs to know of a job: roles, budgets, time limits
 *
 * A spec says how a job may be kept alive, not what its processes are: the host has their
 * commands, classes and resources. It is part of the SUBMITTED event and does not change
 * afterwards, whatever happens to the file that it was read from.
 *
 * Budgets. Each cause of an end has its own limit, so that one cause never spends another
 * one's budget. A budget counts restarts of what restarts:
 *   restart: rank   of one rank
 *   restart: role   of the role
 *   restart: job    of the job, because of this role
 * MS_JOB_UNLIMITED is never spent. 0 means that the first such end is one too many.
 *
 * Back-off. The first restart is made at once. One that fails again within `stable_ns` waits
 * for backoff_ns, then twice as long each time, up to backoff_max_ns.
 */
#ifndef MS_JOB_CORE_SPEC_H
#define MS_JOB_CORE_SPEC_H

#include "base/error.h"
#include "base/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MS_JOB_CORE_ROLES_MAX 4096u
#define MS_JOB_CORE_SLOTS_MAX (1u << 20) /* of all roles, at their largest */
#define MS_JOB_UNLIMITED      UINT16_MAX

/* Why a process, or a job, has ended. */
enum ms_job_cause {
    MS_JOB_CAUSE_NONE,    /* it has not */
    MS_JOB_SUCCEEDED,     /* exit code 0 */
    MS_JOB_APPLICATION,   /* its own error: an exception, an exit code, a crash */
    MS_JOB_OUT_OF_MEMORY, /* killed at its memory limit */
    MS_JOB_PREEMPTED,     /* killed from outside, or its machine was taken away */
    MS_JOB_HARDWARE,      /* its device or machine reported an error */
    MS_JOB_NODE_LOST,     /* nobody saw it end: its machine is gone */
    MS_JOB_NO_HEARTBEAT,  /* its machine is there, and it is silent */
    MS_JOB_CHECK_FAILED,  /* its node did not pass the node check */
    MS_JOB_START_FAILED,  /* its process never ran */
    MS_JOB_HANG,          /* no sign of work for the role's hang_ns */
    MS_JOB_BUDGETS, /* the number of causes that have a budget, and those below 0 */
    MS_JOB_NO_CAPACITY = MS_JOB_BUDGETS, /* of a job: what it needs was not to be had */
    MS_JOB_STOPPED,                      /* of a job: a user asked for it */
    MS_JOB_CAUSES
};

const char *ms_job_cause_name(enum ms_job_cause c); /* "out of memory" */

/* How a process ended, as an agent tells it. */
struct ms_job_exit {
    int code; /* exit code, or the signal */
    bool signaled;
    bool out_of_memory;
    bool unreachable; /* nobody saw it end */
    const char *text; /* its last lines, or what it raised; NULL: nothing */
};

/* Exit codes above 128 are read as signals, as shells write them. What would be an error of
 * the application is one of the hardware if its text says so. */
enum ms_job_cause ms_job_classify(const struct ms_job_exit *exit);
/* The first words of the text which say that a device or a machine is broken; NULL: none. */
const char *ms_job_find_hardware(const char *text);

/* The last line of a text that has something on it, as an exception is named by a traceback;
 * *len is its length. */
const char *ms_job_last_line(const char *text, int *len);

enum ms_job_restart {
    MS_JOB_RESTART_RANK, /* what has died is replaced; the others go on */
    MS_JOB_RESTART_ROLE, /* all ranks together */
    MS_JOB_RESTART_JOB,  /* all roles and the driver */
};

enum ms_job_on_hang {
    MS_JOB_HANG_RESTART, /* as for any other end, within budget[MS_JOB_HANG] */
    MS_JOB_HANG_SAY,     /* stacks are dumped and that is all */
};

struct ms_job_role_spec {
    char name[MS_NAME_MAX + 1];
    uint32_t count;          /* at the start: min to max, a multiple of unit */
    uint32_t min, max, unit; /* min and max are multiples of unit; min is not 0 */
    uint8_t restart;         /* ms_job_restart */
    uint8_t on_hang;         /* ms_job_on_hang */
    bool critical;           /* the job ends with it */
    uint16_t budget[MS_JOB_BUDGETS];
    int64_t hang_ns; /* without a sign of work; 0: never suspected */
    /* The request for memory after an end by OUT_OF_MEMORY, in percent of what it was,
     * and at most, in percent of the first; 0: it stays. */
    uint32_t memory_raise, memory_raise_max;
};

struct ms_job_spec {
    char name[MS_NAME_MAX + 1];
    struct ms_job_role_spec *roles;
    uint32_t role_count;
    bool has_driver;
    /* CHECK_FAILED is the job's: checks that found faulty nodes, when nothing ran yet */
    uint16_t driver_budget[MS_JOB_BUDGETS];
    int64_t driver_hang_ns; /* as a role's hang_ns */
    /* before the roles are created, before the job is restarted, and before anything is
     * started again after an end that its machine may have caused */
    bool check_nodes;
    uint16_t role_restarts_max; /* of a rank's role, when the rank's budget is spent */
    uint16_t job_restarts_max;  /* when a role's budget is spent; or MS_JOB_UNLIMITED */
    uint16_t same_error_max;    /* the same application error so often ends the job */
    uint16_t node_strikes_max;  /* failures on one node until it is avoided */
    int64_t stable_ns;          /* a process that ran so long was started well */
    int64_t backoff_ns, backoff_max_ns;
    int64_t
        pending_timeout_ns; /* a critical role below min, or no capacity; 0: never */
    int64_t unknown_ns;     /* after a recovery, for what nobody has reported */
};

/* The defaults of doc/jobs.md; the name, the counts and the roles are the caller's. */
void ms_job_role_spec_init(struct ms_job_role_spec *r);
void ms_job_spec_init(struct ms_job_spec *s);

/* 0, or -EINVAL (names, counts, units, times), -E2BIG: what is wrong, for a person. */
int ms_job_spec_check(const struct ms_job_spec *s, struct ms_error *err);

#endif
