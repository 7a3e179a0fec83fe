/* The Head's methods for machines that an orchestrator lends. */
#include "head_object.h"

#include "base/cleanup.h"

#include <stdlib.h>

static PyObject *device_list(const Muster__LentPiece *p)
{
    PyObject *list = PyList_New((Py_ssize_t)p->n_devices);

    for (size_t i = 0; list && i < p->n_devices; i++)
        PyList_SetItem(list, (Py_ssize_t)i, PyLong_FromUnsignedLong(p->devices[i]));
    return list;
}

/* number, node, devices, phase, cause, code, detail, machine */
static PyObject *piece_tuple(const Muster__LentPiece *p)
{
    return Py_BuildValue("INNNNiNN",
                         (unsigned)p->number,
                         core_text(p->node),
                         device_list(p),
                         core_text(p->phase),
                         core_text(p->cause),
                         (int)p->code,
                         core_text(p->detail),
                         core_text(p->machine));
}

static PyObject *piece_list(const Muster__Reservation *m)
{
    PyObject *list = PyList_New(m ? (Py_ssize_t)m->n_pieces : 0);

    for (size_t i = 0; list && m && i < m->n_pieces; i++) {
        PyObject *item = piece_tuple(m->pieces[i]);

        if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) < 0)
            Py_CLEAR(list);
    }
    return list;
}

/* The pieces of the answer; NULL with an exception set. */
static PyObject *ask(PyObject *self, const Muster__DriverToHead *m, PyObject *timeout)
{
    struct head *h = (struct head *)self;
    struct ms_head_op *op;
    PyObject *list = NULL;

    if (!head_is_running(h))
        return NULL;
    op = ms_head_request(h->head, m);
    if (head_op_finish_coded(op, timeout) == 0)
        list = piece_list((const Muster__Reservation *)ms_head_op_message(op));
    ms_head_op_unref(op);
    return list;
}

PyObject *head_reserve(PyObject *self, PyObject *args)
{
    MS_CLEANUP(head_bundles_free) struct head_bundles list = {0};
    Muster__PlaceGroup group = MUSTER__PLACE_GROUP__INIT;
    Muster__Reserve reserve = MUSTER__RESERVE__INIT;
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;
    PyObject *bundles, *timeout;
    double wait;
    int more, whole;

    if (!PyArg_ParseTuple(args,
                          "sppO!ssdO",
                          &group.name,
                          &more,
                          &whole,
                          &PyList_Type,
                          &bundles,
                          &group.strategy,
                          &group.same,
                          &wait,
                          &timeout) ||
        head_bundles_parse(bundles, &list, &group) < 0)
        return NULL;
    group.timeout_ns = wait > 0 ? (uint64_t)core_ns(wait) : 0;
    reserve.pieces = &group;
    reserve.more = more;
    reserve.whole = whole;
    m.body_case = MUSTER__DRIVER_TO_HEAD__BODY_RESERVE;
    m.reserve = &reserve;
    return ask(self, &m, timeout);
}

PyObject *head_release(PyObject *self, PyObject *args)
{
    Muster__ReleasePieces release = MUSTER__RELEASE_PIECES__INIT;
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;
    MS_CLEANUP(ms_cleanup_free) uint32_t *numbers = NULL;
    PyObject *list, *timeout;

    if (!PyArg_ParseTuple(args, "sO!O", &release.key, &PyList_Type, &list, &timeout))
        return NULL;
    release.n_numbers = (size_t)PyList_Size(list);
    numbers = calloc(release.n_numbers + 1, sizeof *numbers);
    if (!numbers)
        return PyErr_NoMemory();
    for (size_t i = 0; i < release.n_numbers; i++)
        numbers[i] =
            (uint32_t)PyLong_AsUnsignedLong(PyList_GetItem(list, (Py_ssize_t)i));
    if (PyErr_Occurred())
        return NULL;
    release.numbers = numbers;
    m.body_case = MUSTER__DRIVER_TO_HEAD__BODY_RELEASE_PIECES;
    m.release_pieces = &release;
    return ask(self, &m, timeout);
}

PyObject *head_reservation(PyObject *self, PyObject *args)
{
    Muster__ReservationRef ref = MUSTER__RESERVATION_REF__INIT;
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;
    PyObject *timeout;

    if (!PyArg_ParseTuple(args, "sO", &ref.key, &timeout))
        return NULL;
    m.body_case = MUSTER__DRIVER_TO_HEAD__BODY_RESERVATION;
    m.reservation = &ref;
    return ask(self, &m, timeout);
}
