/* rollout_role.c - the replicas of a rollout: the workers of its role, drained and used again */
#include "core/generate/rollout_impl.h"
#include "core/peer_object.h"

#include <errno.h>

/* The C peers of a list of Peers, which are kept; NULL with an exception set. */
static struct ms_peer **peers_of(struct rollout_object *o, PyObject *list, uint32_t *n)
{
    Py_ssize_t count = PyList_Size(list);
    MS_CLEANUP(ms_cleanup_free) struct ms_peer **peers = NULL;

    if (count < 0)
        return NULL;
    peers = calloc((size_t)count + 1, sizeof *peers);
    if (!peers)
        return (struct ms_peer **)PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *peer = PyList_GetItem(list, i); /* borrowed */
        PyObject *owner;

        if (!PyObject_TypeCheck(peer, core_peer.type))
            return (struct ms_peer **)PyErr_Format(PyExc_TypeError, "a list of peers");
        owner = ((struct peer *)peer)->owner;
        if (PySet_Add(o->owners, owner ? owner : Py_None) < 0)
            return NULL;
        peers[i] = core_peer_get(peer);
    }
    *n = (uint32_t)count;
    return MS_TAKE(peers);
}

/* (peers): those of all ranks now. */
PyObject *core_rollout_follow(PyObject *self, PyObject *list)
{
    struct ms_rollout *r = core_rollout_get(self);
    MS_CLEANUP(ms_cleanup_free) struct ms_peer **peers = NULL;
    struct ms_error err = {0};
    uint32_t n = 0;
    int rc;

    peers = peers_of((struct rollout_object *)self, list, &n);
    if (!peers)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    rc = ms_rollout_follow(r, peers, n, &err);
    Py_END_ALLOW_THREADS;
    if (rc == -EINVAL)
        return PyErr_Format(PyExc_ValueError, "%s", err.text);
    if (rc < 0)
        return core_raise(&err);
    Py_RETURN_NONE;
}

/* True: it is so; None: not yet. */
static PyObject *true_or_none(int rc, const char *what)
{
    if (rc == -EAGAIN)
        Py_RETURN_NONE;
    return rc < 0 ? core_rollout_raise(rc, what) : Py_NewRef(Py_True);
}

PyObject *core_rollout_limit(PyObject *self, PyObject *number)
{
    struct ms_rollout *r = core_rollout_get(self);
    unsigned long n = MS_ROLLOUT_NO_LIMIT;
    int rc;

    if (number != Py_None)
        n = PyLong_AsUnsignedLong(number);
    if (PyErr_Occurred())
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    rc = ms_rollout_limit(r,
                          n < MS_ROLLOUT_NO_LIMIT ? (uint32_t)n : MS_ROLLOUT_NO_LIMIT);
    Py_END_ALLOW_THREADS;
    return true_or_none(rc, "resize");
}

/* Call it with the ranks of a list. */
static int with_ranks(PyObject *self,
                      PyObject *list,
                      int (*call)(struct ms_rollout *, const uint32_t *, size_t))
{
    struct ms_rollout *r = core_rollout_get(self);
    MS_CLEANUP(ms_cleanup_free) uint32_t *ranks = NULL;
    Py_ssize_t count = PyList_Size(list);
    int rc;

    if (count < 0)
        return -EFAULT;
    ranks = calloc((size_t)count + 1, sizeof *ranks);
    for (Py_ssize_t i = 0; ranks && i < count; i++) {
        unsigned long rank = PyLong_AsUnsignedLong(PyList_GetItem(list, i));

        if (PyErr_Occurred())
            return -EFAULT;
        ranks[i] = rank < UINT32_MAX ? (uint32_t)rank : UINT32_MAX;
    }
    if (!ranks)
        return -ENOMEM;
    Py_BEGIN_ALLOW_THREADS;
    rc = call(r, ranks, (size_t)count);
    Py_END_ALLOW_THREADS;
    return rc;
}

PyObject *core_rollout_drain(PyObject *self, PyObject *ranks)
{
    int rc = with_ranks(self, ranks, ms_rollout_drain);

    return PyErr_Occurred() ? NULL : true_or_none(rc, "drain");
}

PyObject *core_rollout_undrain(PyObject *self, PyObject *ranks)
{
    int rc = with_ranks(self, ranks, ms_rollout_undrain);

    return PyErr_Occurred() ? NULL : core_rollout_done(rc, "undrain");
}

PyObject *core_rollout_rank(PyObject *self, PyObject *number)
{
    struct ms_rollout *r = core_rollout_get(self);
    unsigned long n = PyLong_AsUnsignedLong(number);

    return PyErr_Occurred() ? NULL
                            : PyLong_FromUnsignedLong(ms_rollout_rank(r, (uint32_t)n));
}

PyObject *core_rollout_restored(PyObject *self, PyObject *rank)
{
    struct ms_rollout *r = core_rollout_get(self);
    unsigned long n = PyLong_AsUnsignedLong(rank);
    int rc;

    if (PyErr_Occurred())
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    rc = ms_rollout_restored(r, (uint32_t)n);
    Py_END_ALLOW_THREADS;
    return true_or_none(rc == -EALREADY ? 0 : rc == -EBUSY ? -EINVAL : rc, "restored");
}
