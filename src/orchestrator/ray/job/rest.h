/* rest.h - what Ray's REST answers mean
 *
 * Pure: an answer in, what it says or a sentence that a person understands out. The
 * address in those sentences is the one that the user wrote.
 */
#ifndef MS_ORCHESTRATOR_RAY_JOB_REST_H
#define MS_ORCHESTRATOR_RAY_JOB_REST_H

#include "base/buf.h"
#include "orchestrator/ray/job/fetch.h"

#include <jansson.h>
#include <stdbool.h>

enum { MS_RAY_MAJOR_MIN = 2, MS_RAY_MINOR_MIN = 40 };
enum { MS_RAY_VERSION_MAX = 32, MS_RAY_MESSAGE_MAX = 240 };

/* "HEAD:8265", "http://HEAD:8265/": the base of all addresses, without a slash behind.
 * malloc'd; NULL: with the reason. */
char *ms_ray_base_url(const char *address, struct ms_error *err);

/* 0; -ECONNREFUSED, -ENXIO, -ETIMEDOUT and others (nobody answers), -EACCES (401, 403),
 * -EPROTO (it is not Ray), -ENOTSUP (too old). */
int ms_ray_read_version(const struct ms_fetch_answer *a,
                        const char *address,
                        char version[MS_RAY_VERSION_MAX],
                        struct ms_error *err);

/* Of /api/authentication_mode: does it want a token? Clusters that are too old to know of
 * tokens do not. */
bool ms_ray_wants_token(const struct ms_fetch_answer *a);

/* No answer, or one that says no, to a request that is called `what`. 0: it is one of the
 * status 200. The server's own words are in it, the last line of a traceback. */
int ms_ray_read_plain(const struct ms_fetch_answer *a,
                      const char *address,
                      const char *what,
                      struct ms_error *err);

enum ms_ray_status {
    MS_RAY_PENDING,
    MS_RAY_RUNNING,
    MS_RAY_STOPPED,
    MS_RAY_SUCCEEDED,
    MS_RAY_FAILED
};

struct ms_ray_details {
    enum ms_ray_status status;
    char message[MS_RAY_MESSAGE_MAX];
    int exit_code; /* -1: not known */
};

/* Of /api/jobs/ID. -ENOENT: there is no such job. */
int ms_ray_read_job(const struct ms_fetch_answer *a,
                    const char *address,
                    struct ms_ray_details *out,
                    struct ms_error *err);

/* Of /api/jobs/ID/stop: Ray will end it. */
bool ms_ray_read_stopped(const struct ms_fetch_answer *a);

/* Of /api/jobs/ID/logs: the whole log, malloc'd; NULL: there is none in it. */
char *ms_ray_read_logs(const struct ms_fetch_answer *a, size_t *len);

/* The body of a submission, malloc'd; NULL: out of memory. `env` is "NAME=value". */
char *ms_ray_submission(const char *id,
                        const char *entrypoint,
                        const char *package,
                        const char *const *env);

/* "NAME=value" as an object; NULL: out of memory. `env` may be NULL. */
json_t *ms_ray_env_object(const char *const *env);

/* Put the last lines of a log behind a sentence, as far as they fit. */
void ms_ray_add_log(struct ms_error *err, const char *log, size_t len);

#endif
