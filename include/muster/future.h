/* future.h - a call that was begun
 *
 * It completes exactly once: with a result, with a failure, by its deadline or by being
 * cancelled. Destroying a future that is open does not cancel its call.
 */
#ifndef MUSTER_FUTURE_H
#define MUSTER_FUTURE_H

#include <muster/common.h>
#include <muster/error.h>
#include <muster/value.h>

struct muster_future;

MUSTER_BEGIN

MUSTER_API bool muster_future_is_done(struct muster_future *f);
/* Wait until it is done, or, if the method gives a stream, until an item is there: 0;
 * -ETIMEDOUT after timeout_ns (MUSTER_NEVER: no end but the call's own deadline); -EINTR
 * after a signal. */
MUSTER_API int muster_future_wait(struct muster_future *f, int64_t timeout_ns);
/* Wait until one of them is: its index; -ETIMEDOUT, -EINTR or -ENOMEM. */
MUSTER_API int64_t muster_future_wait_any(struct muster_future *const *futures,
                                          size_t count,
                                          int64_t timeout_ns);

/* Wait, and take the result: 0 and *value is yours, once (-EALREADY after that); or a
 * negative errno with the reason in err. `value` may be NULL. */
MUSTER_API int muster_future_result(struct muster_future *f,
                                    struct muster_value **value,
                                    struct muster_error *err);

/* The next item of a stream, waiting for it: 1 and *item is yours; 0 at the end; a
 * negative errno with the reason in err (-ETIMEDOUT: none came in time, go on if you
 * like). */
MUSTER_API int muster_future_next(struct muster_future *f,
                                  int64_t timeout_ns,
                                  struct muster_value **item,
                                  struct muster_error *err);

/* Nobody wants it any more: one that has not begun never runs, one that runs is told. */
MUSTER_API void muster_future_cancel(struct muster_future *f);
MUSTER_API void muster_future_destroy(struct muster_future *f); /* NULL does nothing */

MUSTER_END

#endif
