/* rollout_impl.h - the Rollout of _core.pyi, for the files that it is made of
 *
 * rollout.c has the type, its life, news and weights; rollout_role.c the replicas;
 * rollout_groups.c the groups.
 */
#ifndef MS_PYTHON_ROLLOUT_IMPL_H
#define MS_PYTHON_ROLLOUT_IMPL_H

#include "core/generate/rollout.h"

struct rollout_object {
    PyObject head;
    struct ms_rollout *rollout;
    PyObject *owners; /* the clients of its peers, kept */
};

struct ms_rollout *core_rollout_get(PyObject *self);
/* NULL, with the exception for this errno set; `what` was asked for. */
PyObject *core_rollout_raise(int rc, const char *what);
/* None, or the exception. */
PyObject *core_rollout_done(int rc, const char *what);
/* A span that can be added to any time, also of an infinite one. */
int64_t core_rollout_span_ns(double seconds);

/* Methods about replicas. */
PyObject *core_rollout_follow(PyObject *self, PyObject *list);
PyObject *core_rollout_limit(PyObject *self, PyObject *number);
PyObject *core_rollout_drain(PyObject *self, PyObject *ranks);
PyObject *core_rollout_undrain(PyObject *self, PyObject *ranks);
PyObject *core_rollout_rank(PyObject *self, PyObject *number);
PyObject *core_rollout_restored(PyObject *self, PyObject *rank);

/* Methods about groups. */
PyObject *core_rollout_submit(PyObject *self, PyObject *args);
PyObject *core_rollout_session_open(PyObject *self, PyObject *args);
PyObject *core_rollout_session_replica(PyObject *self, PyObject *number);
PyObject *core_rollout_pull(PyObject *self, PyObject *number);
PyObject *core_rollout_lease(PyObject *self, PyObject *number);
PyObject *core_rollout_take(PyObject *self, PyObject *number);
PyObject *core_rollout_take_dropped(PyObject *self, PyObject *unused);
PyObject *core_rollout_judge(PyObject *self, PyObject *unused);
PyObject *core_rollout_verdict(PyObject *self, PyObject *args);
PyObject *core_rollout_take_refill(PyObject *self, PyObject *unused);
PyObject *core_rollout_cancel_rid(PyObject *self, PyObject *text);
PyObject *core_rollout_rid(PyObject *self, PyObject *args);

#endif
