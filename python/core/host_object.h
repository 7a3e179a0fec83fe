/* host_object.h - the Host object of a worker, shared by the files that give it its
 * methods
 *
 * worker.c   the host, and the engine loop of synchronous classes
 * request.c  requests as objects, for an engine with an event loop of its own
 * chain.c    who waits for whom
 */
#ifndef MS_PYTHON_HOST_OBJECT_H
#define MS_PYTHON_HOST_OBJECT_H

#include "core.h"

#include "worker/host.h"

struct host {
    PyObject_HEAD struct ms_host *host;
    PyObject *bound; /* list: bound methods by their index, None where unknown */
    PyObject *handler, *resolve, *describe;
    int stack_fd, async_fd;
};

/* The one host of this process; NULL: it is no worker. */
extern struct host *the_host;

/* The bound method, from the cache or through `resolve`. Borrowed; NULL: exception. */
PyObject *host_bound_method(struct host *h, const struct ms_method *m);
/* The decoded payload; it is taken out of the request. */
PyObject *host_take_argument(struct ms_request *r);
/* Answer with (kind, type, message, traceback, pickled), as `describe` gives it. */
int host_fail_with(struct ms_request *r, PyObject *description);
/* Wait until a stream's window is open: 0, -ECANCELED, or -1 with an exception set. */
int host_wait_window(struct ms_request *r);

/* request.c */
PyObject *host_poll(PyObject *self, PyObject *unused);
int host_request_setup(PyObject *module);

/* chain.c */
void chain_start(uint64_t own_uid); /* a host began */
void chain_set_engine_thread(void); /* the calling thread is the engine's */
void chain_enter(const struct ms_request *r);
void chain_leave(void);
void chain_forget(void); /* a forked child is no worker */

#endif
