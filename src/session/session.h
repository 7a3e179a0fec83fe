/* session.h - what a driver has: a head, a client, and what is known of ended workers
 *
 * The head is a thread of this process, or one that runs elsewhere and was joined; the
 * client calls workers and lives on the head's loop. Drivers in C (src/capi) and in Python
 * (python/core) are thin layers over this, so that both see the same: which secret proves
 * what, how a worker ended, who has its place, what a forked child may do, how it ends.
 *
 * Ended workers. The head reports ends as they come, and the client remembers the last
 * MS_EXITS_KEPT. When a connection breaks and the end is not known here, the head is asked
 * (once at a time for each worker) and answers when it knows; a worker that it does not
 * know either has ended with code -1 and a detail that says so.
 *
 * Forks. A child that was forked from a driver can do nothing with the session: its
 * descriptors are closed in the child before fork() returns, calls and requests fail, and
 * stop does nothing. Its exit ends nothing.
 *
 * Locks. There is one, over the list of all sessions of this process, for forks. It is not
 * held while the head, the client or a function of the driver is called: so a driver may hold
 * locks of its own when it calls here, and take them in its callbacks.
 * What is known of ended workers belongs to the head's loop and has no lock.
 */
#ifndef MS_SESSION_SESSION_H
#define MS_SESSION_SESSION_H

#include "base/error.h"
#include "head/head.h"
#include "wire/client/client.h"

#include <stdbool.h>
#include <stdint.h>

struct ms_driver_session;
struct ms_timeline;

/* Borrowed until the start has returned, but for callbacks and their `arg`. */
struct ms_driver_session_options {
    /* As for a head. Of its callbacks the driver may have on_log and on_node, with
     * head.arg; on_exit, on_agent_lost, on_successor, secret and tls are filled in here. */
    struct ms_head_options head;
    const char *address;     /* of the head to join; NULL: start one in this process */
    const char *secret_file; /* of the head to join, or what agents of others have */
    const uint8_t *secret; /* the same as 32 bytes, if there is no file; may be NULL */
    const char *tls;       /* "auto", "on" or "off"; NULL: "auto" */
    /* As for a client (wire/client/client.h), with head.arg. May be NULL. */
    void *(*on_stored)(void *arg, const uint8_t *body, size_t len);
    void (*on_stored_drop)(void *token);
};

/* Start or join the head, and open a client. NULL with the reason; nothing is left then. */
struct ms_driver_session *
ms_driver_session_start(const struct ms_driver_session_options *o,
                        struct ms_error *err);

/* Fail all open calls, end the workers (ms_head_stop) and wait for that. The session stays
 * and says that it has ended; what is asked of it a second time, or in a forked child, does
 * nothing. From any thread but the head's. */
void ms_driver_session_stop(struct ms_driver_session *s, int64_t grace_ns);

/* Before it: the driver has failed (ms_head_fail). */
void ms_driver_session_fail(struct ms_driver_session *s);

/* After stop, or in a forked child: free it. NULL does nothing. Peers and calls may outlive
 * it. */
void ms_driver_session_destroy(struct ms_driver_session *s);

/* Record calls, and whatever else is added, in a file (io/session/timeline.h); NULL: that of
 * the session's folder, which stays with its logs. With MUSTER_TIMELINE=1 or =FILE in the
 * environment the start does this. 0, or a negative errno and the reason. */
int ms_driver_session_record(struct ms_driver_session *s,
                             const char *path,
                             struct ms_error *err);
struct ms_timeline *ms_driver_session_timeline(struct ms_driver_session *s);

/* Borrowed until stop begins. */
struct ms_head *ms_driver_session_head(const struct ms_driver_session *s);
struct ms_client *ms_driver_session_client(const struct ms_driver_session *s);

/* The head runs in another process. */
bool ms_driver_session_is_joined(const struct ms_driver_session *s);
/* Stop has not begun, and this is no forked child. */
bool ms_driver_session_is_open(struct ms_driver_session *s);
/* The same, and there is still a head with nodes, or one that may come back. */
bool ms_driver_session_is_alive(struct ms_driver_session *s);

#endif
