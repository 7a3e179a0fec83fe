/* jobs_head.h - the head that hosts this user's jobs, and asking it
 *
 * It is that of MUSTER_ADDRESS; else, of a job whose head is elsewhere (jobs_elsewhere.h),
 * that one; else the session that `muster submit` starts, else the only daemon of this user
 * on this machine. Nothing is started here and no session is needed. A
 * head that is being started again, because it was killed, is waited for.
 *
 * It is asked over a link, by a tool that has joined it (head.h): what was asked is answered
 * once, also if the link breaks meanwhile, or the head is killed and started again.
 */
#ifndef MS_SESSION_JOBS_HEAD_H
#define MS_SESSION_JOBS_HEAD_H

#include "base/clock.h"
#include "head/head.h"
#include "io/session/session.h"
#include "proto/muster.pb-c.h"

#include <stddef.h>

#define MS_JOBS_SESSION "jobs" /* of the head that `submit` starts */

/* How long a head that is being started again may take. */
#define MS_JOBS_BACK_NS (30 * MS_NS_PER_S)

enum { MS_JOBS_ADDRESS_MAX = 512, MS_JOBS_WHO_MAX = 320 };

struct ms_jobs_head {
    char address[MS_JOBS_ADDRESS_MAX];
    char who[MS_JOBS_WHO_MAX]; /* for sentences: "the head of session 'jobs'" */
    uint8_t secret[MS_SESSION_SECRET_SIZE];
};

/* The process above that head, which starts it again, has a file in its folder: its number, and
 * in the second line why the last head has not come up. */
#define MS_JOBS_KEEPER      "keeper"
#define MS_JOBS_KEEPER_NAME "muster-keep" /* as ps shows it */

/* What is known of a head that is not there. */
struct ms_jobs_absent {
    int64_t since_ns; /* the caller's: when it began to look */
    bool starts;      /* the caller's: it starts one unless there is such a process */
    bool was_killed;  /* it has not ended in order */
    bool is_kept;     /* there is a process that starts it again: */
    pid_t keeper;
    char why[384]; /* the last one has not come up; "": it has */
};

/* Whether there is a process that starts it again, and what it says. */
void ms_jobs_look_for_keeper(struct ms_jobs_absent *absent);

/* The head on this machine; one that may come (back) is waited for, and anyone for `least_ns`.
 * 0; -ENOENT: there is none, and *absent says what is known of it; else why it cannot be
 * known. */
int ms_jobs_head_await(struct ms_jobs_head *out,
                       struct ms_jobs_absent *absent,
                       int64_t least_ns,
                       struct ms_error *err);

/* The head of this job (NULL: of no one in particular). 0; -ENOENT: there is none, also none
 * that comes back; else why it cannot be known. */
int ms_jobs_head_find(const char *job,
                      struct ms_jobs_head *out,
                      struct ms_jobs_absent *absent,
                      struct ms_error *err);

/* Join it, as one who only asks; ms_head_stop ends that. `timeout_ns` is for the start; a
 * patient one waits for a head that is not there yet, for MS_JOBS_BACK_NS at least. NULL with
 * the reason. */
struct ms_head *ms_jobs_head_join(const char *address,
                                  const uint8_t secret[MS_SESSION_SECRET_SIZE],
                                  int64_t timeout_ns,
                                  bool is_patient,
                                  struct ms_error *err);

/* The body `what` of a DriverToHead and its answer (NULL where that is Done), which the caller
 * frees with protobuf_c_message_free_unpacked. 0; -EREMOTEIO: the head's own words and code;
 * else why it does not answer. A patient one waits for a head that is away,
 * or has just started again, as long as MS_JOBS_BACK_NS. */
int ms_jobs_head_ask(struct ms_head *h,
                     Muster__DriverToHead__BodyCase what,
                     const ProtobufCMessage *want,
                     int64_t timeout_ns,
                     bool is_patient,
                     ProtobufCMessage **answer,
                     struct ms_error *err);

#endif
