/* run.h - `muster run`, once the job is read and its nodes are known
 *
 * What it says itself goes to stderr, so that stdout is the driver's; of a dry run, which
 * has no driver, to stdout. With --json each of its lines is an object with an "event".
 */
#ifndef MS_CLI_RUN_H
#define MS_CLI_RUN_H

#include "cli/cli.h"
#include "cli/run_nodes.h"
#include "orchestrator/orchestrator.h"

#include <jansson.h>
#include <stdio.h>

struct ms_run {
    const struct ms_cli *cli;
    const struct ms_job *job;
    const char *key;
    struct ms_run_nodes *nodes;
    FILE *out;
};

/* The driver's exit code, or why it could not be run. */
enum ms_exit ms_run_local(const struct ms_run *r);
/* The history of a reservation in virtual time; nothing is started. */
enum ms_exit ms_run_sim(const struct ms_run *r);

/* One line. `object` is taken; NULL: out of memory, and nothing is said. */
void ms_run_say(const struct ms_run *r, json_t *object, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* What a piece is now. `at_ns` is when, in virtual time; < 0: now. */
void ms_run_say_piece(const struct ms_run *r,
                      const struct ms_lent_piece *p,
                      int64_t at_ns);
/* Which nodes there are, and what of them. */
void ms_run_say_reserved(const struct ms_run *r, const struct ms_reservation *got);

#endif
