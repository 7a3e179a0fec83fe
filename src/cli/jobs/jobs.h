/* jobs.h - commands about jobs: which head hosts them, and asking it
 *
 *   check.c    `muster check`
 *   submit.c   `muster submit`
 *   host.c     which head, and asking it
 *   look.c     `list jobs`, `get job/NAME`, `wait`, `events`
 *   change.c   `suspend`, `resume`, `scale`, `restart`, `stop job`, `delete`
 *   on_ray.c   `muster submit --on ray`
 *   in_ray.c   `muster host`: the head of such a job, in the Ray cluster
 *   keep.c     `muster keep`: the process above a head, which starts it again
 *   node_check.c `muster node-check`: what two nodes do to be checked together
 *   start.c    starting that, or a unit of systemd
 */
#ifndef MS_CLI_JOBS_JOBS_H
#define MS_CLI_JOBS_JOBS_H

#include "base/error.h"
#include "cli/target.h"
#include "job/file.h"
#include "session/jobs_elsewhere.h"

#include <jansson.h>

/* Read the command's FILE, and see whether it makes sense and its roles fit on its nodes.
 * MS_EXIT_OK, and the job is the caller's; else it was said what is wrong. */
enum ms_exit ms_jobs_check(const struct ms_cli *cli, struct ms_job *job);

/* The head of --head, --session or MUSTER_ADDRESS; else that of this job, if it is elsewhere;
 * else the one called `jobs`, else the only daemon of this user; else, if `start`, a new one.
 * `job` may be NULL. As ms_target_init. */
enum ms_exit ms_jobs_target(struct ms_target *t,
                            const struct ms_cli *cli,
                            const char *job,
                            bool start);
/* Ask it patiently: a head that is not there is waited for (session/tool.h). What fails is
 * said. */
enum ms_exit ms_jobs_ask(struct ms_target *t,
                         Muster__DriverToHead__BodyCase what,
                         const ProtobufCMessage *want,
                         ProtobufCMessage **answer);

/* What stands in it, cut to what a job's file may have; NULL: errno says why. */
char *ms_jobs_read_text(const char *path);

/* By which the head of a job on Ray and who submits it come to a secret (offer.h). */
#define MS_JOB_OFFER_ENV "MUSTER_JOB_OFFER"
enum ms_exit ms_jobs_submit_on_ray(const struct ms_cli *cli, const struct ms_job *job);

/* NULL: out of memory. */
json_t *ms_jobs_json(const Muster__JobStatus *s);
enum ms_exit ms_jobs_list(const struct ms_cli *cli);
enum ms_exit ms_jobs_get(const struct ms_cli *cli, const char *name);
enum ms_exit ms_jobs_stop(const struct ms_cli *cli, const char *name);

/* A head of this program, with a process above it that starts it again: a unit of systemd where
 * the user's manager runs and outlives the login, else `muster keep` in a session of its own.
 * *watched_by says which. 0: it has been started, and is there soon. */
int ms_watchdog_start(const char **watched_by, struct ms_error *err);

#endif
