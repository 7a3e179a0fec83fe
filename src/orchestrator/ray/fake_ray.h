/* fake_ray.h - what answers at a Ray's dashboard, for tests without one
 *
 * It takes packages and jobs as Ray does, and runs a job's entrypoint by a shell, here, in
 * `work_dir`. What can go wrong is told to it. On the test's own loop.
 */
#ifndef MS_ORCHESTRATOR_RAY_FAKE_RAY_H
#define MS_ORCHESTRATOR_RAY_FAKE_RAY_H

#include "io/http/conn.h"

#include <sys/types.h>

struct fake_ray {
    struct ms_http_server http;
    struct ms_watch listening;
    int fd;
    char address[64];
    const char *work_dir;
    /* how it is */
    const char *version; /* NULL: 2.60.0 */
    const char *token;   /* NULL: none is wanted */
    bool is_html, is_forgetful /* it knows no job any more */;
    unsigned refuse_uploads; /* so many are cut */
    unsigned lose_answers;   /* to so many submissions, which it takes */
    /* what it has */
    unsigned uploads, submissions, stops, deletions;
    char package[80];
    char id[128];
    pid_t job; /* its process; 0: none */
    bool has_job, was_stopped;
    int status; /* as wait says, once job is 0 */
    char log[128];
};

void fake_ray_start(struct fake_ray *f, struct ms_loop *loop, const char *work_dir);
/* A folder "muster" in `dir`: as much of the Python package as a job needs. */
void fake_ray_make_python_dir(const char *dir);
/* What runs is killed. */
void fake_ray_finish(struct fake_ray *f);

#endif
