/* session.h - the folder of one running Muster on this machine
 *
 * root    $MUSTER_HOME, else /tmp/muster-<uid>; mode 0700 and ours, or it is refused
 * session root/<name>/ with
 *   lock       flock(2)ed by the head and (by inheritance) its agent: held = alive
 *   secret     64 hexadecimal digits, mode 0600
 *   driver     pid of the driver, decimal
 *   head.sock  the head's control socket
 *   spin       the page of spin leases
 *   w/         sockets of the workers
 *   logs/      <cluster>-<rank>.log, merged.log, agent.log; stays when the rest goes
 * A daemon head has a session with a name that a person gave. Its folder has `daemon` in
 * it and is never swept: secret and lock stay, so that the head finds them again. Beside
 * those it has `address` (where it listens) and `nodes` (their names) while it runs.
 */
#ifndef MS_IO_SESSION_SESSION_H
#define MS_IO_SESSION_SESSION_H

#include "base/error.h"
#include "base/limits.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    MS_SESSION_DIR_MAX = 72,
    MS_SESSION_NAMED_MAX = 27, /* characters of a name that a person gives */
    MS_SESSION_SECRET_SIZE = 32
};

struct ms_session {
    char name[MS_NAME_MAX + 1]; /* e.g. "20261115-203011-4711" */
    char dir[MS_SESSION_DIR_MAX];
    uint8_t secret[MS_SESSION_SECRET_SIZE];
    pid_t driver_pid;
    bool alive;     /* a process holds the lock */
    bool is_daemon; /* of a head that others join */
    bool was_left;  /* ms_session_open: the head before did not end in order */
};

/* The root's path; made if it is not there. -EPERM: it is not ours alone.
 * -ENAMETOOLONG: sockets below it would not fit into sun_path. */
int ms_session_root(char out[MS_SESSION_DIR_MAX], struct ms_error *err);

/* A new session with a secret that others have too; NULL: a fresh one. *lock_fd is the held
 * lock. First every session that nobody holds is removed, and those of their logs that
 * are too many, too big or too old (log_limits.h). */
int ms_session_create(struct ms_session *s,
                      const uint8_t *secret,
                      int *lock_fd,
                      struct ms_error *err);

/* The session of that name, made when it is not there. The secret is that of secret_file,
 * else the one that is there, else a new one. -EBUSY: another process holds it; -EINVAL,
 * -ENAMETOOLONG: the name. */
int ms_session_open(const char *name,
                    const char *secret_file,
                    struct ms_session *s,
                    int *lock_fd,
                    struct ms_error *err);
/* A head that others join is in this session, which ends with it. */
int ms_session_mark_daemon(struct ms_session *s, struct ms_error *err);
/* It ends: what tells of a running head goes, the secret, the lock and the logs stay. */
void ms_session_close(const struct ms_session *s);

/* Remove everything but logs/ (and the folder itself, if there are no logs).
 * Idempotent; missing things are fine. Also points root/latest at the newest session
 * that is left. */
int ms_session_remove(const char *dir);

/* Sessions, newest first, and then those of daemons; the count, or a negative errno. `out` is malloc'd. The secret
 * is read where it can be. Dead sessions are listed too (their logs are there). */
int ms_session_list(struct ms_session **out, struct ms_error *err);

#endif
