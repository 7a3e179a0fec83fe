/* session.h - the beginning and the end of a driver
 *
 * A session is what a driver starts workers in: an embedded head (a thread of this
 * process) and an agent (a process of its own) on this machine; or, with an address, the
 * nodes of a head that runs already (`muster head`). It ends by muster_shutdown, or with
 * the process, however that ends: no worker outlives it, but those of detached clusters
 * of a head that goes on.
 *
 *     struct muster_session_options options = MUSTER_SESSION_OPTIONS;
 *     struct muster_error err;
 *     struct muster_session *s = muster_init(&options, &err);
 *
 *     if (!s)
 *         fprintf(stderr, "%s\n", err.message);
 *     ...
 *     muster_shutdown(s, 3000000000);
 *
 * All functions may be called from any thread, but nothing may use a session during and
 * after muster_shutdown. Calls that are open then, and later calls of its clusters, fail with
 * MUSTER_ERROR_SHUTTING_DOWN. In a forked child a session is of no use: all that is asked of
 * it fails, calls with MUSTER_ERROR_REFUSED, and neither muster_shutdown nor the child's exit
 * ends anything of its parent's.
 */
#ifndef MUSTER_SESSION_H
#define MUSTER_SESSION_H

#include <muster/common.h>
#include <muster/error.h>

struct muster_session;

/* One line that a worker has printed; borrowed until on_log returns. */
struct muster_log_line {
    const char *cluster;
    uint32_t rank;
    bool is_stderr;
    const char *text; /* without its newline; `len` bytes, no NUL behind them */
    size_t len;
};

struct muster_session_options {
    uint32_t size;    /* MUSTER_SESSION_OPTIONS fills in this and the numbers */
    int32_t num_gpus; /* devices of this machine, also where there are none; -1: look */
    int32_t num_cpus; /* -1: look */
    int64_t timeout_ns; /* for the start; 0: 60 s */
    /* How workers in Python are started, NULL-terminated; NULL: $MUSTER_PYTHON, else
     * python3. It must be able to import muster. */
    const char *const *python;
    /* The muster program; NULL: $MUSTER_BIN, else that of this library's installation,
     * else the one in PATH. */
    const char *muster_path;
    bool quiet; /* what workers print is in their logs alone */
    /* What they print, on a thread of Muster's, which should have it back soon. NULL:
     * lines go to stderr as "(cluster/rank) text". */
    void (*on_log)(void *arg, const struct muster_log_line *line);
    void *arg;
    /* A head to join, "HOST:PORT", or "auto" for the one of this machine and user; NULL:
     * $MUSTER_ADDRESS, else "local", a head of our own. */
    const char *address;
    /* The file with its secret; NULL: $MUSTER_SECRET_FILE, else that of the one head of
     * this machine and user. */
    const char *secret_file;
    const char *tls; /* "auto" (or NULL), "on", "off" */
};

#ifdef __cplusplus
inline struct muster_session_options muster_session_options_of()
{
    struct muster_session_options o =
        muster_options_of<struct muster_session_options>();

    o.num_gpus = o.num_cpus = -1;
    return o;
}
#define MUSTER_SESSION_OPTIONS muster_session_options_of()
#else
#define MUSTER_SESSION_OPTIONS                                                         \
    {                                                                                  \
        .size = (uint32_t)sizeof(struct muster_session_options), .num_gpus = -1,       \
        .num_cpus = -1                                                                 \
    }
#endif

MUSTER_BEGIN

/* Start. `options` may be NULL, and is not needed afterwards. NULL with the reason. */
MUSTER_API struct muster_session *
muster_init(const struct muster_session_options *options, struct muster_error *err);

/* End all workers (SIGTERM, after grace_ns SIGKILL), wait until they are gone, free the
 * session. Clusters that were not destroyed may be destroyed afterwards, and must be, as
 * futures. NULL does nothing. */
MUSTER_API void muster_shutdown(struct muster_session *session, int64_t grace_ns);

/* Its name, as `muster status` shows it; and its folder. Borrowed. */
MUSTER_API const char *muster_session_name(const struct muster_session *session);
MUSTER_API const char *muster_session_dir(const struct muster_session *session);

MUSTER_END

#endif
