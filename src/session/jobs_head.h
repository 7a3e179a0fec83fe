/* jobs_head.h - the head that hosts this user's jobs, and asking it
 *
 * It is that of MUSTER_ADDRESS; else the session that `muster submit` starts, else the only
 * daemon of this user on this machine. Nothing is started here and no session is needed. A
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

/* Which of these sessions hosts jobs. NULL: none; *coming: the one called `jobs` is not
 * alive, and perhaps about to be started again. */
const struct ms_session *
ms_jobs_session(const struct ms_session *all, size_t count, bool *coming);

/* 0; -ENOENT: there is none, also none that comes back within 2 s; else why it cannot be
 * known. */
int ms_jobs_head_find(struct ms_jobs_head *out, struct ms_error *err);

/* The body `what` of a DriverToHead and its answer, which the caller frees with
 * protobuf_c_message_free_unpacked. 0; -EREMOTEIO: the head's own words; else why it does not
 * answer. One question. */
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
