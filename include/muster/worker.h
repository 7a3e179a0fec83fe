/* worker.h - a worker in C: a table of functions in a shared library
 *
 * A driver that says worker_cls="libreward.so:reward" gets processes that have loaded
 * libreward.so and looked up `reward`, which is
 *
 *     #include <muster/worker.h>
 *
 *     static int score(void *self, struct muster_call *call, struct muster_error *err)
 *     {
 *         const char *text = muster_value_get_text(muster_call_arg(call, 0), NULL);
 *
 *         if (!text)
 *             return muster_error_set(err, -EINVAL, "TypeError", "score wants a text");
 *         return muster_call_reply(call, muster_value_float(strlen(text)));
 *     }
 *
 *     MUSTER_EXPORT const struct muster_worker_class reward = {
 *         MUSTER_WORKER_CLASS,
 *         .name = "Reward",
 *         .methods = (const struct muster_method[]){{"score", score}, {0}},
 *     };
 *
 * built with: cc -shared -fPIC $(pkg-config --cflags muster) -o libreward.so reward.c
 *
 * The process that loads it has all functions of muster/worker.h, value.h and error.h; the
 * library need not be linked with libmuster, and may be.
 *
 * Threads. create, the methods and destroy run on the main thread, one at a time, in the
 * order of the calls of each caller. Health, stacks and ports are answered meanwhile by
 * another thread. A worker may have threads of its own, which call nothing of this
 * header but muster_call_is_cancelled. What is printed to stdout and stderr goes to the
 * worker's log and to the driver; exit() or a crash ends the worker, and its callers
 * learn how.
 *
 * SIGTERM is the request to end: a method that runs for long asks
 * muster_call_is_cancelled now and then. After it the engines are destroyed.
 */
#ifndef MUSTER_WORKER_H
#define MUSTER_WORKER_H

#include <muster/common.h>
#include <muster/error.h>
#include <muster/value.h>

/* For the class, where a library hides its symbols. */
#define MUSTER_EXPORT __attribute__((visibility("default")))

struct muster_context; /* who this worker is */
struct muster_call;    /* one call, while its method runs */

/* A method. `self` is what create made. Answers at most once, by muster_call_reply or
 * muster_call_reply_bytes; one that returns 0 without has answered null. To fail it
 * returns a negative errno (or any other number but 0) and fills err, most simply by
 * muster_error_set; the caller gets type and message. */
struct muster_method {
    const char *name;
    int (*run)(void *self, struct muster_call *call, struct muster_error *err);
};

struct muster_worker_class {
    uint32_t abi; /* MUSTER_WORKER_CLASS fills in these two */
    uint32_t size;
    const char *name; /* for people */
    /* Make an engine: *self is given to every method. `args` (a list) and `kwargs` (a map)
     * are the driver's, borrowed until it returns; `ctx` lives as long as the process.
     * 0, or the failure as a method has it. NULL: self is NULL. */
    int (*create)(const struct muster_context *ctx,
                  const struct muster_value *args,
                  const struct muster_value *kwargs,
                  void **self,
                  struct muster_error *err);
    void (*destroy)(void *self);         /* may be NULL */
    const struct muster_method *methods; /* ends with {0} */
};

#define MUSTER_WORKER_CLASS                                                            \
    .abi = MUSTER_ABI, .size = (uint32_t)sizeof(struct muster_worker_class)

MUSTER_BEGIN

/* ---- what was asked ---------------------------------------------------------------- */

enum muster_codec {
    MUSTER_CODEC_BYTES = 0, /* one block of bytes, and the answer is one */
    MUSTER_CODEC_PLAIN = 2, /* values */
};

MUSTER_API enum muster_codec muster_call_codec(const struct muster_call *call);
/* The positional arguments, a list, and the named ones, a map. Borrowed until the method
 * returns. A call in bytes has its block as the only positional argument. */
MUSTER_API const struct muster_value *muster_call_args(const struct muster_call *call);
MUSTER_API const struct muster_value *
muster_call_kwargs(const struct muster_call *call);
/* One of them; NULL if it was not given. */
MUSTER_API const struct muster_value *muster_call_arg(const struct muster_call *call,
                                                      size_t index);
MUSTER_API const struct muster_value *muster_call_kwarg(const struct muster_call *call,
                                                        const char *name);
MUSTER_API const char *muster_call_method(const struct muster_call *call);

/* Nobody wants the answer any more (cancelled, or its deadline has come), or this worker
 * is to end. Any thread, until the method returns. */
MUSTER_API bool muster_call_is_cancelled(const struct muster_call *call);
/* Until its deadline; MUSTER_NEVER if it has none, 0 if it is over. */
MUSTER_API int64_t muster_call_time_left_ns(const struct muster_call *call);

/* ---- answering --------------------------------------------------------------------- */

/* Answer now; the method may go on (to clean up, say), and then returns 0. Takes the
 * value, also on failure. A call that came in bytes is answered by a bytes value. 0;
 * -EALREADY: it was answered; -ENOMEM (also for NULL), -E2BIG, -EINVAL: it cannot be
 * sent, and the caller is told so when the method returns. */
MUSTER_API int muster_call_reply(struct muster_call *call, struct muster_value *value);
/* The bytes are copied. */
MUSTER_API int
muster_call_reply_bytes(struct muster_call *call, const void *data, size_t len);

/* Give one item of a stream, and wait while the caller is far behind; a method that has
 * given items ends without a reply. Takes the value, also on failure. 0; -ECANCELED:
 * nobody listens any more, return; or as above. */
MUSTER_API int muster_call_item(struct muster_call *call, struct muster_value *value);

/* ---- who this worker is ------------------------------------------------------------ */

MUSTER_API uint32_t muster_context_rank(const struct muster_context *ctx);
MUSTER_API uint32_t muster_context_world_size(const struct muster_context *ctx);
MUSTER_API const char *muster_context_cluster(const struct muster_context *ctx);
MUSTER_API const char *muster_context_node(const struct muster_context *ctx);
/* The devices that this worker may see, as the variable of their vendor names them
 * (CUDA_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES, ...); NULL behind the last. Other variables (MASTER_ADDR, LOCAL_RANK, the role's own) are in getenv. */
MUSTER_API const char *muster_context_device(const struct muster_context *ctx,
                                             size_t index);
/* What the driver gave by configure(); NULL: nothing. Valid until it does so again. */
MUSTER_API const struct muster_value *
muster_context_config(const struct muster_context *ctx);

MUSTER_END

#endif
