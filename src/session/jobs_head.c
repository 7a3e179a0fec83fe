/* jobs_head.c - the head that hosts this user's jobs, and asking it */
#include "session/jobs_head.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/proto.h"
#include "head/ops/answer.h"
#include "head/ops/verbs.h"
#include "io/session/secret.h"
#include "io/tree.h"
#include "session/find.h"
#include "session/jobs_elsewhere.h"
#include "wire/client/blocking_call.h"
#include "wire/frame.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* How long a head that is being started again may take; how long one is waited for that nobody
 * starts again, but perhaps systemd its keeper; or that could not come up last time. */
#define BACK_NS   (30 * MS_NS_PER_S)
#define UNKEPT_NS (2 * MS_NS_PER_S)
#define FAILED_NS (1 * MS_NS_PER_S)
#define LOOK_NS   (100 * MS_NS_PER_MS)

static void pause_some(void)
{
    struct timespec pause = ms_timespec(LOOK_NS);

    nanosleep(&pause, NULL);
}

/* ---- which ------------------------------------------------------------------------- */

static void look_for_keeper(struct ms_jobs_absent *a)
{
    char root[MS_SESSION_DIR_MAX], path[PATH_MAX], text[sizeof a->why + 16] = "";
    char name[32] = "", *end = text;

    a->is_kept = false;
    a->why[0] = 0;
    if (ms_session_root(root, NULL) < 0)
        return;
    snprintf(path, sizeof path, "%s/" MS_JOBS_SESSION "/" MS_JOBS_KEEPER, root);
    if (ms_tree_read(AT_FDCWD, path, text, sizeof text) <= 0)
        return;
    a->keeper = (pid_t)strtol(text, &end, 10);
    snprintf(path, sizeof path, "/proc/%d/comm", (int)a->keeper);
    a->is_kept = a->keeper > 0 && ms_tree_read(AT_FDCWD, path, name, sizeof name) > 0 &&
                 strcmp(name, MS_JOBS_KEEPER_NAME "\n") == 0;
    if (*end == '\n')
        snprintf(a->why, sizeof a->why, "%.*s", (int)strcspn(end + 1, "\n"), end + 1);
}

const struct ms_session *ms_jobs_session(const struct ms_session *all,
                                         size_t count,
                                         struct ms_jobs_absent *absent)
{
    const struct ms_session *only = NULL;
    size_t daemons = 0;

    absent->was_killed = false;
    for (size_t i = 0; i < count; i++) {
        const struct ms_session *s = &all[i];
        bool is_named = strcmp(s->name, MS_JOBS_SESSION) == 0;

        if (is_named && !s->alive)
            absent->was_killed = s->driver_pid > 0;
        if (!s->alive || !s->is_daemon)
            continue;
        if (is_named)
            return s;
        only = s;
        daemons++;
    }
    look_for_keeper(absent);
    return daemons == 1 ? only : NULL;
}

bool ms_jobs_may_come(const struct ms_jobs_absent *a)
{
    int64_t patience_ns = 0;

    if (a->is_kept)
        patience_ns = a->why[0] ? FAILED_NS : BACK_NS;
    else if (a->was_killed)
        patience_ns = UNKEPT_NS;
    return ms_now_ns() - a->since_ns < patience_ns;
}

int ms_jobs_explain(const struct ms_jobs_absent *a, struct ms_error *err)
{
    if (a->is_kept && a->why[0])
        return ms_error_set(
            err,
            -ENOENT,
            "the head for jobs cannot start: %s; process %d tries again",
            a->why,
            (int)a->keeper);
    if (a->was_killed)
        return ms_error_set(
            err,
            -ENOENT,
            "the head for jobs was killed, and %s; `muster submit FILE` "
            "starts one that goes on with its jobs",
            a->is_kept ? "is not back yet" : "nobody starts it again");
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

    s = count >= 0 ? ms_jobs_session(all, (size_t)count, absent) : NULL;
    if (s) {
        memcpy(out->secret, s->secret, sizeof out->secret);
        snprintf(out->address, sizeof out->address, "%s/head.sock", s->dir);
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
    if (rc == 0)
        strcpy(out->address, found.address);
    ms_found_head_finish(&found);
    return rc;
}

int ms_jobs_head_find(const char *job, struct ms_jobs_head *out, struct ms_error *err)
{
    struct ms_job_elsewhere elsewhere;
    const char *named = getenv("MUSTER_ADDRESS");
    struct ms_jobs_absent absent = {.since_ns = ms_now_ns()};
    int rc;

    if (named && named[0] && strcmp(named, "local") != 0)
        return find_named(out, err);
    if (job && ms_jobs_elsewhere_find(job, &elsewhere) == 0) {
        *out = elsewhere.head;
        explicit_bzero(&elsewhere, sizeof elsewhere);
        return 0;
    }
    while ((rc = look(out, &absent, err)) == -ENOENT && ms_jobs_may_come(&absent))
        pause_some();
    return rc == -ENOENT ? ms_jobs_explain(&absent, err) : rc;
}

/* ---- asking ------------------------------------------------------------------------ */

static int pack(Muster__DriverToHead__BodyCase what,
                const ProtobufCMessage *want,
                struct ms_buf *out)
{
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;

    m.body_case = what;
    m.status = (Muster__StatusRequest *)(uintptr_t)want; /* any body: a union */
    return ms_proto_pack(&m.base, out);
}

static int take(Muster__DriverToHead__BodyCase what,
                const uint8_t *reply,
                size_t len,
                ProtobufCMessage **answer)
{
    Muster__HeadToDriver *all = muster__head_to_driver__unpack(NULL, len, reply);
    int rc = all ? ms_answer_take(ms_verb_find(what), all, answer) : -EPROTO;

    if (rc == 0 && !*answer)
        rc = -EPROTO;
    if (all)
        muster__head_to_driver__free_unpacked(all, NULL);
    return rc;
}

int ms_jobs_head_try(const char *address,
                     const uint8_t secret[MS_SESSION_SECRET_SIZE],
                     Muster__DriverToHead__BodyCase what,
                     const ProtobufCMessage *want,
                     int64_t timeout_ns,
                     ProtobufCMessage **answer,
                     struct ms_error *err)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf packed = {0};
    MS_CLEANUP(ms_cleanup_free) uint8_t *reply = NULL;
    size_t len = 0;
    int rc = pack(what, want, &packed);

    if (rc < 0)
        return ms_error_set(err, rc, "out of memory");
    rc = ms_blocking_call(address,
                          secret,
                          MS_OP_ASK,
                          packed.data,
                          packed.len,
                          timeout_ns,
                          &reply,
                          &len,
                          err);
    if (rc == 0)
        rc = take(what, reply, len, answer);
    if (rc == -EPROTO)
        ms_error_set(err, rc, "its answer cannot be read: another version of Muster?");
    return rc;
}

/* It is on its way, or (-EAGAIN) has just started again and does not know yet what runs. A
 * change whose answer was lost may have been made: only a question is asked again then. */
static bool
may_come(Muster__DriverToHead__BodyCase what, int rc, const struct ms_error *err)
{
    if (rc == -EPIPE || rc == -ECONNRESET || rc == -ECONNABORTED)
        return ms_verb_find(what)->is_question;
    return rc == -ECONNREFUSED || rc == -ENOENT || rc == -EAGAIN ||
           (rc == -EREMOTEIO && err->code == -EAGAIN);
}

int ms_jobs_head_ask(const char *address,
                     const uint8_t secret[MS_SESSION_SECRET_SIZE],
                     Muster__DriverToHead__BodyCase what,
                     const ProtobufCMessage *want,
                     int64_t timeout_ns,
                     ProtobufCMessage **answer,
                     struct ms_error *err)
{
    int64_t until_ns = ms_now_ns() + BACK_NS;
    struct ms_error why = {0};
    int rc;

    while ((rc = ms_jobs_head_try(
                address, secret, what, want, timeout_ns, answer, &why)) < 0 &&
           may_come(what, rc, &why) && ms_now_ns() < until_ns)
        pause_some();
    if (rc < 0 && err)
        *err = why;
    return rc;
}
