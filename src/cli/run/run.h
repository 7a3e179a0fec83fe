/* run.h - `muster run`, once the job is read and its nodes are known
 *
 * What it says itself goes to stderr, so that stdout is the driver's; of a dry run, which
 * has no driver, to stdout. With --json each of its lines is an object with an "event".
 */
#ifndef MS_CLI_RUN_RUN_H
#define MS_CLI_RUN_RUN_H

#include "base/buf.h"
#include "base/json.h"
#include "cli/cli.h"
#include "job/file.h"
#include "orchestrator/orchestrator.h"
#include "orchestrator/whole_nodes.h"

#include <stdio.h>

struct ms_run_spec {
    const struct ms_cli *cli;
    const struct ms_job *job;
    const char *key;
    const char *on;      /* the orchestrator's name */
    const char *address; /* of it; NULL: not said */
    bool is_inside;      /* this is the part of --on ray that is in the Ray job */
    int64_t timeout_ns;  /* for the machines to be there */
    struct ms_whole_nodes *nodes;
    FILE *out;
};

/* Do the roles fit on these nodes? MS_EXIT_OK; else it was said what does not fit, as
 * `muster plan` says it. */
enum ms_exit ms_plan_check(const struct ms_cli *cli,
                           const struct ms_job *job,
                           const Muster__NodeShape *const *nodes,
                           size_t count);
/* What a plan has come to, said as `muster plan` says it: MS_EXIT_OK, or why not. */
enum ms_exit ms_plan_answer(const struct ms_cli *cli,
                            int rc,
                            struct ms_buf *table,
                            const struct ms_error *err);

/* The head, its machines and the driver, here. The driver's exit code, or why it could not
 * be run. */
enum ms_exit ms_run_job(const struct ms_run_spec *r);
/* The same in a job on a Ray cluster, whose output is shown here. */
enum ms_exit ms_run_ray(const struct ms_run_spec *r);
/* The history of a reservation in virtual time; nothing is started. */
enum ms_exit ms_run_sim(const struct ms_run_spec *r);

/* In a Ray job: the Python that Ray runs with, and the module in the package, which is in the
 * folder above that of this program. 0 or -ENOMEM. */
struct ms_env;
int ms_run_inside_env(const char *muster, struct ms_env *e);

/* Block SIGINT, SIGTERM and SIGHUP, and have them here; before there are threads. 0 or a
 * negative errno. */
int ms_run_signals(int *fd);

/* Inside of a Ray job, where the driver's output and ours are one stream, each line of ours
 * begins with this mark, by which `muster run` outside tells them apart. */
#define MS_RUN_MARK '\036'
void ms_run_mark(const struct ms_run_spec *r);

/* One line. `object` is taken; NULL: out of memory, and nothing is said. */
void ms_run_report(const struct ms_run_spec *r, json_t *object, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* What a piece is now. `at_ns` is when, in virtual time; < 0: now. */
void ms_run_report_piece(const struct ms_run_spec *r,
                         const struct ms_lent_piece *p,
                         int64_t at_ns);
/* A line that belongs to the one before. */
void ms_run_report_detail(const struct ms_run_spec *r, const char *text);
/* Which nodes there are, and what of them. */
void ms_run_report_reserved(const struct ms_run_spec *r,
                            const struct ms_reservation *got);

#endif
