/* host_object.h - the Host object of a worker, shared by the files that give it its
 * methods
 *
 * worker.c   the host: its start and its end, what it is
 * serve.c    the engine loop of synchronous classes, and answers
 * request.c  requests as objects, for an engine with an event loop of its own
 * chain.c    who waits for whom
 * end.c      the end that SIGTERM asks for
 * shards.c   tensors that are kept for HTTP
 * debug.c    the debugger's terminal
 */
#ifndef MS_PYTHON_HOST_OBJECT_H
#define MS_PYTHON_HOST_OBJECT_H

#include "core.h"

#include "worker/host.h"

struct host {
    PyObject_HEAD struct ms_host *host;
    PyObject *found; /* list by a method's index: (engine, name), None where unknown */
    PyObject *handler, *resolve, *describe;
    int stack_fd, async_fd;
    bool is_async; /* the engine's thread runs an event loop */
};

/* The one host of this process; NULL: it is no worker. */
extern struct host *the_host;

/* This process is a forked child of the worker: it has nobody to answer. */
static inline bool host_is_forgotten(const struct host *h)
{
    return the_host != h;
}

/* serve.c */
/* As core_encode, in the codec in which it was asked; without a store if its caller has none. */
int host_encode(const struct ms_request *r, PyObject *value, struct core_payload *p);
/* Send it; what it refers to in a store is given to the caller. Releases the payload. */
void host_reply(struct ms_request *r, struct core_payload *p);
/* The same for an item of a stream; as ms_request_item, and releases nothing. The caller
 * may confirm what it has not been given yet: we hold it meanwhile. */
int host_item(struct ms_request *r, struct core_payload *p);

/* The bound method of an engine that is known, or found by `resolve`. NULL: exception. */
PyObject *host_bound_method(struct host *h, const struct ms_method *m);
/* The decoded payload; it is taken out of the request. */
PyObject *host_take_argument(struct ms_request *r);
/* Answer with the exception `e`. -1: another one that is no Exception is set, and nothing was
 * answered. */
int host_fail(struct host *h,
              struct ms_request *r,
              PyObject *e,
              Muster__Failure__Kind kind);

PyObject *host_serve(PyObject *self, PyObject *unused);

/* request.c */
PyObject *host_poll(PyObject *self, PyObject *unused);

/* shards.c */
PyObject *host_shard_add(PyObject *self, PyObject *args);
PyObject *host_shard_find(PyObject *self, PyObject *id);
PyObject *host_shard_remove(PyObject *self, PyObject *id);

/* debug.c */
/* The program waits at a place; true: a client sees it. */
PyObject *host_debug_open(PyObject *self, PyObject *where);
PyObject *host_debug_write(PyObject *self, PyObject *text);
/* The line that is typed behind this prompt. */
PyObject *host_debug_read(PyObject *self, PyObject *prompt);
PyObject *host_debug_close(PyObject *self, PyObject *unused);

/* end.c */
/* For the handler of SIGTERM: raise SystemExit, again and again until the worker leaves.
 * With an event loop it first gives that some time to notice by itself. True: it was
 * raised for so long that it will not help. */
PyObject *host_terminate(PyObject *self, PyObject *signum);
/* The loop has noticed: not again within so many seconds. */
PyObject *host_give_time(PyObject *self, PyObject *seconds);
/* While the engines clean up, nothing is raised. */
PyObject *host_hold(PyObject *self, PyObject *on);
/* The end has begun; nothing interrupts it. */
PyObject *host_leave(PyObject *self, PyObject *unused);
PyObject *host_get_is_ending(PyObject *self, void *unused);
/* Whether the end was asked for; SystemExit is then set. */
bool host_is_ending(void);

/* chain.c */
void chain_start(uint64_t own_uid); /* a host began */
void chain_set_engine_thread(void); /* the calling thread is the engine's */
void chain_set_async(void);         /* many requests at a time run on it */
void chain_enter(const struct ms_request *r);
void chain_leave(void);
void chain_forget(void); /* a forked child is no worker */

#endif
