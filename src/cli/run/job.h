/* job.h - a job while it runs: head, machines, driver
 *
 * job.c     the whole: signals, the head, its machines (by requests to the head, which owns
 *           the orchestrator), the end
 * driver.c  its driver
 *
 * All of it runs on one loop; events of the head's thread are posted there.
 */
#ifndef MS_CLI_RUN_JOB_H
#define MS_CLI_RUN_JOB_H

#include "cli/run/run.h"
#include "head/head.h"
#include "io/loop.h"
#include "io/spawn.h"

#include <limits.h>

enum { MS_RUN_SIGNALED = 128 }; /* what shells add to the signal that ended a process */

struct ms_job_run {
    const struct ms_run_spec *run;
    struct ms_loop *loop;
    struct ms_head *head;
    struct ms_head_op *reserving, *releasing; /* NULL: not under way */
    struct ms_process driver;
    struct ms_watch ended, signals;
    struct ms_timer force;
    int signal_fd;
    char muster[PATH_MAX]; /* this program */
    char folder[PATH_MAX]; /* where it was started */
    char secret_file[PATH_MAX];
    int stop_signal; /* that was got; 0: none */
    bool is_over;    /* what is lent is on its way back */
    enum ms_exit code;
};

/* ---- job.c ------------------------------------------------------------------------- */

/* It has failed: this is said, and it is the exit code. */
void ms_job_run_fail(struct ms_job_run *j, const char *what);

/* Give the machines back, or what is being reserved; then the loop stops. */
void ms_job_run_release(struct ms_job_run *j);

/* ---- driver.c ------------------------------------------------------------------ */

/* Start it; when it has ended all is given back. */
void ms_job_run_drive(struct ms_job_run *j);
/* SIGTERM, and SIGKILL some time later; the second time at once. False: it does not run. */
bool ms_job_run_stop_driver(struct ms_job_run *j);
/* Of the timer `force`. */
void ms_job_run_force(void *arg);

#endif
