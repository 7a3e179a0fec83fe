/* target.h - which head a command asks, and asking it
 *
 * A head is one of this machine, by its session's folder (embedded in a driver, or a
 * daemon: both have a head.sock there), or one that is named by an address. The first
 * that is given counts: --head, --session, $MUSTER_ADDRESS, else the newest session
 * that runs here. The secret of an address is that of --secret-file, of
 * $MUSTER_SECRET_FILE, or of the one daemon of this machine.
 *
 * These print their own failure and return its exit code, so a command can say
 *     code = ms_target_init(&t, cli);
 *     if (code)
 *         return code;
 */
#ifndef MS_CLI_TARGET_H
#define MS_CLI_TARGET_H

#include "cli/cli.h"
#include "io/session/session.h"
#include "proto/muster.pb-c.h"
#include "session/jobs_head.h"
#include "session/tool.h"

#include <stdbool.h>
#include <stdint.h>

struct ms_sessions {
    struct ms_session *all; /* newest first */
    size_t count;
};

enum ms_exit ms_sessions_init(struct ms_sessions *s, const struct ms_cli *cli);
void ms_sessions_finish(struct ms_sessions *s);

/* The session of --session, else the newest that is alive, else (unless `alive`) the
 * newest that has ended. Borrowed from `s`. */
enum ms_exit ms_target_session(const struct ms_cli *cli,
                               const struct ms_sessions *s,
                               bool alive,
                               const struct ms_session **out);

enum { MS_TARGET_ADDRESS_MAX = MS_JOBS_ADDRESS_MAX };

struct ms_target {
    const struct ms_cli *cli;
    struct ms_sessions sessions;      /* of this machine */
    const struct ms_session *session; /* NULL: it is known by its address alone */
    char address[MS_TARGET_ADDRESS_MAX];
    char who[MS_TARGET_ADDRESS_MAX + 32]; /* for sentences: "the head of session 'x'" */
    uint8_t secret[MS_SESSION_SECRET_SIZE];
    int64_t timeout_ns;  /* --timeout, or 10 s */
    struct ms_tool tool; /* by which it is asked */
    const char *doing;   /* shown while it takes long; NULL: that we wait for it */
};

/* Is it named by an address? */
bool ms_target_is_remote(const struct ms_cli *cli);

/* Find it; no request is sent yet. Finish it also after a failure. */
enum ms_exit ms_target_init(struct ms_target *t, const struct ms_cli *cli);
/* The head of jobs, also if it is not there now: it may be back soon. */
enum ms_exit ms_target_init_jobs(struct ms_target *t,
                                 const struct ms_cli *cli,
                                 const struct ms_jobs_head *head);
void ms_target_finish(struct ms_target *t);

/* How many sessions run on this machine besides the target. */
size_t ms_target_others(const struct ms_target *t);

/* Join it, if that was not done before; 0, or why it does not answer. */
int ms_target_join(struct ms_target *t, struct ms_error *err);
/* Ask the head (head/ops/verbs.h) with `want`, which is the body `what` of a DriverToHead: what
 * answers, freed with protobuf_c_message_free_unpacked. Its kind is as proto/muster.proto
 * says; where that is Done, it is NULL. */
enum ms_exit ms_target_ask(struct ms_target *t,
                           Muster__DriverToHead__BodyCase what,
                           const ProtobufCMessage *want,
                           int64_t timeout_ns,
                           ProtobufCMessage **answer);
/* The same without a word: as ms_tool_ask. */
int ms_target_try(struct ms_target *t,
                  Muster__DriverToHead__BodyCase what,
                  const ProtobufCMessage *want,
                  int64_t timeout_ns,
                  ProtobufCMessage **answer,
                  struct ms_error *err);

/* Freed with muster__status__free_unpacked. */
static inline void ms_status_cleanup(Muster__Status **s)
{
    muster__status__free_unpacked(*s, NULL);
}
enum ms_exit ms_target_status(struct ms_target *t, Muster__Status **out);
/* The same, with what each worker does. */
enum ms_exit ms_target_activity(struct ms_target *t, Muster__Status **out);
/* ms_target_init and that, or (`activity`) the other. */
enum ms_exit ms_target_look(struct ms_target *t,
                            const struct ms_cli *cli,
                            bool activity,
                            Muster__Status **out);

#endif
