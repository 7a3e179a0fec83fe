/* watch.h - when something happens to a session's logs, and when the session ends
 *
 * Event-driven: inotify on the logs folder, and a thread that waits for the session's
 * lock, which the kernel gives it when the last holder is gone, however it went.
 */
#ifndef MS_CLI_LOGS_WATCH_H
#define MS_CLI_LOGS_WATCH_H

#include "base/error.h"
#include "io/session/session.h"

struct ms_logwatch {
    int inotify;
    int ended; /* readable when the session has ended */
};

/* `logs` is the path of the folder. A session that has ended already is fine: the first
 * wait says so. 0 or a negative errno. */
int ms_logwatch_open(struct ms_logwatch *f,
                     const struct ms_session *session,
                     const char *logs,
                     struct ms_error *err);
void ms_logwatch_close(struct ms_logwatch *f);

enum ms_logwatch_event {
    MS_LOGWATCH_WRITTEN, /* a file has grown */
    MS_LOGWATCH_NEW,     /* there may be new files as well */
    MS_LOGWATCH_ENDED    /* nothing more will be written */
};

/* Wait; several things that have happened are one event, the greatest. A negative errno
 * on failure. */
int ms_logwatch_wait(struct ms_logwatch *f);

#endif
