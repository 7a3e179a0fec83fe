/* jobs_head.h - the head that hosts this user's jobs, and asking it
 *
 * It is that of MUSTER_ADDRESS; else, of a job whose head is elsewhere (jobs_elsewhere.h),
 * that one; else the session that `muster submit` starts, else the only daemon of this user
 * on this machine. Nothing is started here and no session is needed. A
 * head that is being started again, because it was killed, is waited for.
 */
#ifndef MS_SESSION_JOBS_HEAD_H
#define MS_SESSION_JOBS_HEAD_H

#include "io/session/session.h"
#include "proto/muster.pb-c.h"

#include <stddef.h>

#define MS_JOBS_SESSION "jobs" /* of the head that `submit` starts */

enum { MS_JOBS_ADDRESS_MAX = 512 };

struct ms_jobs_head {
    char address[MS_JOBS_ADDRESS_MAX];
    uint8_t secret[MS_SESSION_SECRET_SIZE];
};

/* The process above that head, which starts it again, has a file in its folder: its number, and
 * in the second line why the last head has not come up. */
#define MS_JOBS_KEEPER      "keeper"
#define MS_JOBS_KEEPER_NAME "muster-keep" /* as ps shows it */

/* What is known of a head that is not there. */
struct ms_jobs_absent {
    int64_t since_ns; /* the caller's: when it began to look */
    bool was_killed;  /* it has not ended in order */
    bool is_kept;     /* there is a process that starts it again: */
    pid_t keeper;
    char why[384]; /* the last one has not come up; "": it has */
};

/* Which of these sessions hosts jobs. NULL: none, and *absent says what is known of it. */
const struct ms_session *ms_jobs_session(const struct ms_session *all,
                                         size_t count,
                                         struct ms_jobs_absent *absent);
/* It is worth looking again, after a pause. */
bool ms_jobs_may_come(const struct ms_jobs_absent *absent);
/* Why there is none, for a person. -ENOENT. */
int ms_jobs_explain(const struct ms_jobs_absent *absent, struct ms_error *err);

/* The head of this job (NULL: of no one in particular). 0; -ENOENT: there is none, also none
 * that comes back; else why it cannot be known. */
int ms_jobs_head_find(const char *job, struct ms_jobs_head *out, struct ms_error *err);

/* The body `what` of a DriverToHead and its answer, which the caller frees with
 * protobuf_c_message_free_unpacked. 0; -EREMOTEIO: the head's own words and code; else why it
 * does not answer. One question. */
int ms_jobs_head_try(const char *address,
                     const uint8_t secret[MS_SESSION_SECRET_SIZE],
                     Muster__DriverToHead__BodyCase what,
                     const ProtobufCMessage *want,
                     int64_t timeout_ns,
                     ProtobufCMessage **answer,
                     struct ms_error *err);
/* The same; a head that is being started again is asked again for up to 30 s. */
int ms_jobs_head_ask(const char *address,
                     const uint8_t secret[MS_SESSION_SECRET_SIZE],
                     Muster__DriverToHead__BodyCase what,
                     const ProtobufCMessage *want,
                     int64_t timeout_ns,
                     ProtobufCMessage **answer,
                     struct ms_error *err);

#endif
