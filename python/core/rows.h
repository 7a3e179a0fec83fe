/* rows.h - which rows of which blocks, as Python has them
 *
 * rows.c      the type Rows: making, as bytes, looking
 * gather.c    its methods that copy payload, and partition()
 */
#ifndef MS_PYTHON_ROWS_H
#define MS_PYTHON_ROWS_H

#include "core.h"

#include "batch/rows.h"

/* Rows: constant once they are made. */
struct rows {
    PyObject_HEAD struct ms_rows r;
};

/* A contiguous buffer with at least this many bytes. 0, or -1 with an exception set; to be
 * released in both cases. */
int rows_buffer(PyObject *object, int flags, size_t bytes, Py_buffer *out);

/* Methods of Rows. */
PyObject *rows_gather(PyObject *rows, PyObject *args);
PyObject *rows_gather_ragged(PyObject *rows, PyObject *args);

/* partition(weights, parts, differencing, equal, out): int64 in, uint32 out. */
PyObject *rows_partition(PyObject *module, PyObject *args);

#endif
