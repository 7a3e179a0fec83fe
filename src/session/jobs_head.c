/* jobs_head.c - the head that hosts this user's jobs, and asking it */
#include "session/jobs_head.h"
#include "base/clock.h"
#include "io/session/secret.h"
#include "io/tree.h"
#include "session/find.h"
#include "session/jobs_elsewhere.h"
#include "session/tool.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* How long one is waited for that nobody starts again, but perhaps systemd its watchdog; or that
 * could not come up last time. */
#define UNKEPT_NS (2 * MS_NS_PER_S)
#define FAILED_NS (1 * MS_NS_PER_S)
#define LOOK_NS   (100 * MS_NS_PER_MS)

static void pause_some(void)
{
    struct timespec pause = ms_timespec(LOOK_NS);

    nanosleep(&pause, NULL);
}

/* ---- which ------------------------------------------------------------------------- */

void ms_jobs_look_for_watchdog(struct ms_jobs_absent *a)
{
    char root[MS_SESSION_DIR_MAX], path[PATH_MAX], text[sizeof a->why + 16] = "";
    char name[32] = "", *end = text;

    a->is_watched = false;
    a->why[0] = 0;
    if (ms_session_root(root, NULL) < 0)
        return;
    snprintf(path, sizeof path, "%s/" MS_JOBS_SESSION "/" MS_JOBS_WATCHDOG, root);
    if (ms_tree_read(AT_FDCWD, path, text, sizeof text) <= 0)
        return;
    a->watchdog = (pid_t)strtol(text, &end, 10);
    snprintf(path, sizeof path, "/proc/%d/comm", (int)a->watchdog);
    a->is_watched = a->watchdog > 0 &&
                    ms_tree_read(AT_FDCWD, path, name, sizeof name) > 0 &&
                    strcmp(name, MS_JOBS_WATCHDOG_NAME "\n") == 0;
    if (*end == '\n')
        snprintf(a->why, sizeof a->why, "%.*s", (int)strcspn(end + 1, "\n"), end + 1);
}

/* The last one has not come up, and it is not known of this one yet. */
static bool is_trying(struct ms_jobs_absent *a)
{
    ms_jobs_look_for_watchdog(a);
    return a->is_watched && a->why[0];
}

static const struct ms_session *
choose(const struct ms_session *all, size_t count, struct ms_jobs_absent *absent)
{
    const struct ms_session *only = NULL;
    size_t daemons = 0;

    absent->was_killed = false;
    for (size_t i = 0; i < count; i++) {
        const struct ms_session *s = &all[i];
        bool is_named = strcmp(s->name, MS_JOBS_SESSION) == 0;

        if (is_named && !s->alive)
            absent->was_killed = s->driver_pid > 0;
        if (!s->alive || !s->is_daemon || (is_named && is_trying(absent)))
            continue;
        if (is_named)
            return s;
        only = s;
        daemons++;
    }
    ms_jobs_look_for_watchdog(absent);
    return daemons == 1 ? only : NULL;
}

/* It is worth looking again, after a pause. */
static bool may_come(const struct ms_jobs_absent *a)
{
    int64_t patience_ns = 0;

    if (a->is_watched)
        patience_ns = a->why[0] ? FAILED_NS : MS_TOOL_BACK_NS;
    else if (a->was_killed && !a->starts)
        patience_ns = UNKEPT_NS;
    return ms_now_ns() - a->since_ns < patience_ns;
}

/* Why there is none, for a person. */
static int explain(const struct ms_jobs_absent *a, struct ms_error *err)
{
    if (a->is_watched && a->why[0])
        return ms_error_set(
            err,
            -ENOENT,
            "the head for jobs cannot start: %s; process %d tries again",
            a->why,
            (int)a->watchdog);
    if (a->was_killed)
        return ms_error_set(
            err,
            -ENOENT,
            "the head for jobs was killed, and %s; `muster submit FILE` "
            "starts one that goes on with its jobs",
            a->is_watched ? "is not back yet" : "nobody starts it again");
    return ms_error_set(
        err,
        -ENOENT,
        "no head of this user hosts jobs here; `muster submit FILE` starts one");
}

static int
look(struct ms_jobs_head *out, struct ms_jobs_absent *absent, struct ms_error *err)
{
    struct ms_session *all = NULL;
    const struct ms_session *s;
    int count = ms_session_list(&all, err), rc = count < 0 ? count : -ENOENT;

    s = count >= 0 ? choose(all, (size_t)count, absent) : NULL;
    if (s) {
        memcpy(out->secret, s->secret, sizeof out->secret);
        snprintf(out->address, sizeof out->address, "%s/head.sock", s->dir);
        snprintf(out->who,
                 sizeof out->who,
                 "the head of session '%s' (process %d)",
                 s->name,
                 (int)s->driver_pid);
        rc = 0;
    }
    if (all)
        explicit_bzero(all, (size_t)count * sizeof *all); /* secrets */
    free(all);
    return rc;
}

static int find_named(struct ms_jobs_head *out, struct ms_error *err)
{
    struct ms_found_head found = {0};
    int rc = ms_find_head(NULL, NULL, &found, err);

    if (rc == 0 && strlen(found.address) >= sizeof out->address)
        rc = ms_error_set(err, -ENAMETOOLONG, "MUSTER_ADDRESS is too long");
    if (rc == 0)
        rc = ms_secret_read(found.secret_file, out->secret, err);
    if (rc == 0) {
        strcpy(out->address, found.address);
        snprintf(out->who, sizeof out->who, "the head at %.200s", found.address);
    }
    ms_found_head_finish(&found);
    return rc;
}

int ms_jobs_head_await(struct ms_jobs_head *out,
                       struct ms_jobs_absent *absent,
                       int64_t least_ns,
                       struct ms_error *err)
{
    int rc;

    absent->since_ns = ms_now_ns();
    while ((rc = look(out, absent, err)) == -ENOENT &&
           (may_come(absent) || ms_now_ns() - absent->since_ns < least_ns))
        pause_some();
    return rc;
}

int ms_jobs_head_find(const char *job,
                      struct ms_jobs_head *out,
                      struct ms_jobs_absent *absent,
                      struct ms_error *err)
{
    struct ms_job_elsewhere elsewhere;
    const char *named = getenv("MUSTER_ADDRESS");
    int rc;

    if (named && named[0] && strcmp(named, "local") != 0)
        return find_named(out, err);
    if (job && ms_jobs_elsewhere_find(job, &elsewhere) == 0) {
        *out = elsewhere.head;
        explicit_bzero(&elsewhere, sizeof elsewhere);
        return 0;
    }
    rc = ms_jobs_head_await(out, absent, 0, err);
    return rc == -ENOENT ? explain(absent, err) : rc;
}
