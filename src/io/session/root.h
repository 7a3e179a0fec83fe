/* root.h - the folder of all sessions, for the files of this folder
 *
 * Sessions appear in the root by a rename, with their lock already held, so a process that
 * finds one without a holder may remove it. Names that begin with a dot are under way:
 * a session being made, or `latest` being replaced.
 */
#ifndef MS_IO_SESSION_ROOT_H
#define MS_IO_SESSION_ROOT_H

#include "base/error.h"
#include "io/session/session.h"

#include <stdbool.h>
#include <stddef.h>

#define MS_SESSION_NEW    ".new-"
#define MS_SESSION_LATEST ".latest-"
#define MS_SESSION_DAEMON "daemon"

/* Make and check the root; its descriptor, or a negative errno. */
int ms_session_root_open(char path[MS_SESSION_DIR_MAX], struct ms_error *err);

/* "YYYYMMDD-HHMMSS-<pid>...". */
bool ms_session_name_is_ours(const char *name);

/* Is this a folder that ms_session_open has made? */
bool ms_session_is_named(int root, const char *name);

struct ms_session_names {
    char (*at)[MS_NAME_MAX + 1];
    size_t count, room;
};

/* The names of all sessions, newest first. */
int ms_session_names_init(struct ms_session_names *n, int root);
void ms_session_names_finish(struct ms_session_names *n);

/* Take the lock of a session's folder without waiting; `flags` is 0, O_CREAT or
 * O_CREAT | O_EXCL, `how` is LOCK_SH or LOCK_EX. The descriptor, -EWOULDBLOCK (alive), -ENOENT
 * (it has none: its session has ended). */
int ms_session_lock(int dir, int flags, int how);

/* The files `secret` and `driver`. 0 or a negative errno. A `driver` that is there is replaced,
 * and is never missing meanwhile: it says that a head was here. */
int ms_session_write_secret(int dir, const uint8_t secret[MS_SESSION_SECRET_SIZE]);
int ms_session_write_driver(int dir, pid_t pid);

/* Remove everything below it but the logs and the lock; the first failure. */
int ms_session_empty(int dir);
/* Remove everything below an open session folder but logs with something in it, the
 * lock last, and then the folder if it is empty. */
int ms_session_clear(int root, int dir, const char *name);

/* Point root/latest at the newest living session, else at the newest, else nowhere. */
void ms_session_point_latest(int root);

#endif
