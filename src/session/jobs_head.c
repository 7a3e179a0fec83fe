/* jobs_head.c - the head that hosts this user's jobs, and asking it */
#include "session/jobs_head.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/proto.h"
#include "head/ops/answer.h"
#include "head/ops/verbs.h"
#include "io/session/secret.h"
#include "session/find.h"
#include "wire/client/blocking_call.h"
#include "wire/frame.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* How long a head that is being started again may take: to be found, and to answer. */
#define COMING_NS (2 * MS_NS_PER_S)
#define BACK_NS   (30 * MS_NS_PER_S)
#define LOOK_NS   (100 * MS_NS_PER_MS)

static void pause_some(void)
{
    struct timespec pause = ms_timespec(LOOK_NS);

    nanosleep(&pause, NULL);
}

/* ---- which ------------------------------------------------------------------------- */

const struct ms_session *
ms_jobs_session(const struct ms_session *all, size_t count, bool *coming)
{
    const struct ms_session *only = NULL;
    size_t daemons = 0;

    *coming = false;
    for (size_t i = 0; i < count; i++) {
        const struct ms_session *s = &all[i];
        bool is_named = strcmp(s->name, MS_JOBS_SESSION) == 0;

        *coming = *coming || (is_named && !s->alive);
        if (!s->alive || !s->is_daemon)
            continue;
        if (is_named)
            return s;
        only = s;
        daemons++;
    }
    return daemons == 1 ? only : NULL;
}

static int look(struct ms_jobs_head *out, bool *coming, struct ms_error *err)
{
    struct ms_session *all = NULL;
    const struct ms_session *s;
    int count = ms_session_list(&all, err), rc = count < 0 ? count : -ENOENT;

    *coming = false;
    s = count > 0 ? ms_jobs_session(all, (size_t)count, coming) : NULL;
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

int ms_jobs_head_find(struct ms_jobs_head *out, struct ms_error *err)
{
    const char *named = getenv("MUSTER_ADDRESS");
    int64_t until_ns = ms_now_ns() + COMING_NS;
    bool coming = false;
    int rc;

    if (named && named[0] && strcmp(named, "local") != 0)
        return find_named(out, err);
    while ((rc = look(out, &coming, err)) == -ENOENT && coming &&
           ms_now_ns() < until_ns)
        pause_some();
    if (rc == -ENOENT)
        ms_error_set(
            err,
            rc,
            "no head of this user hosts jobs here; `muster submit FILE` starts "
            "one");
    return rc;
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

/* It is on its way. A change whose answer was lost may have been made: only a question is asked
 * again then. */
static bool
may_come(Muster__DriverToHead__BodyCase what, int rc, const struct ms_error *err)
{
    if (rc == -EPIPE || rc == -ECONNRESET || rc == -ECONNABORTED)
        return ms_verb_find(what)->is_question;
    return rc == -ECONNREFUSED || rc == -ENOENT ||
           (rc == -EREMOTEIO && strstr(err->text, "has just started again"));
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
