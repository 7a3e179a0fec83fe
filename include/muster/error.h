/* error.h - why something failed, as a value
 *
 * A `struct muster_error` is the caller's, usually on the stack. It is written only on
 * failure, owns nothing and needs no preparation. Texts that are too long are cut.
 */
#ifndef MUSTER_ERROR_H
#define MUSTER_ERROR_H

#include <muster/common.h>

/* What kind of thing went wrong. */
enum muster_error_kind {
    MUSTER_ERROR_UNKNOWN = 0,
    MUSTER_ERROR_RAISED = 1, /* the method failed; `type` and `message` are its own */
    MUSTER_ERROR_NO_ENGINE = 2,    /* the worker has no engine of that name */
    MUSTER_ERROR_NO_METHOD = 3,    /* the engine has no such method */
    MUSTER_ERROR_DEADLINE = 4,     /* no answer in time */
    MUSTER_ERROR_CANCELLED = 5,    /* by muster_future_cancel */
    MUSTER_ERROR_BAD_ARGUMENT = 6, /* the arguments could not be sent or understood */
    MUSTER_ERROR_BAD_RESULT = 7,   /* the result could not be sent or understood */
    MUSTER_ERROR_REFUSED = 8,      /* what was asked is not possible there */
    MUSTER_ERROR_DEADLOCK = 9,     /* a worker would wait for itself */
    MUSTER_ERROR_SHUTTING_DOWN = 10,
    MUSTER_ERROR_LOST = 11,        /* the answer was dropped before it was fetched */
    MUSTER_ERROR_WORKER_DIED = 12, /* `exit` says how */
    MUSTER_ERROR_UNREACHABLE = 13, /* it does not answer, and nobody knows why */
    MUSTER_ERROR_NO_MEMORY = 14,
    MUSTER_ERROR_PLACEMENT = 15, /* the workers do not fit; `message` has the table */
    MUSTER_ERROR_SYSTEM = 64,    /* something on this side: `code` says what */
};

/* How a worker's process ended. */
struct muster_exit {
    int32_t pid;       /* 0: nothing is known */
    int32_t signal;    /* that killed it; 0: it exited by itself */
    int32_t exit_code; /* if no signal did */
    bool out_of_memory;
    bool requested;        /* it had been asked to stop */
    char node[72];         /* where it ran */
    char log_path[256];    /* all that it printed */
    char last_lines[1024]; /* the end of it, newline between lines */
};

struct muster_error {
    enum muster_error_kind kind;
    int code;           /* a negative errno; 0 where there is none that fits */
    char type[128];     /* RAISED: "RewardError", "builtins.ValueError"; else empty */
    char message[1536]; /* for people: what happened, and where */
    char where[160];    /* "cluster/rank@node", if it happened in a worker */
    struct muster_exit exit; /* WORKER_DIED */
};

MUSTER_BEGIN

/* Fill `err` (may be NULL) and return `code`, so that a failure is one statement:
 *     return muster_error_set(err, -EINVAL, "ValueError", "the batch is empty");
 * `type` may be NULL. In a worker's method the caller gets type and message; a Python
 * driver sees a RemoteError with them. */
MUSTER_API int muster_error_set(struct muster_error *err,
                                int code,
                                const char *type,
                                const char *fmt,
                                ...) __attribute__((format(printf, 4, 5)));

/* The name of a kind, in lower case: "worker_died". */
MUSTER_API const char *muster_error_kind_name(enum muster_error_kind kind);

MUSTER_END

#endif
