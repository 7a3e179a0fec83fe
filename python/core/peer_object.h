/* peer_object.h - the Peer object, for the files that call it */
#ifndef MS_PYTHON_PEER_OBJECT_H
#define MS_PYTHON_PEER_OBJECT_H

#include "core.h"

struct peer {
    PyObject_HEAD struct ms_peer *peer;
    PyObject *owner; /* keeps the client alive */
    PyObject *label;
    /* the last method that was called, by identity of its name */
    PyObject *engine, *method;
    int op;
};

/* What is sent: to one peer, or the same to many. */
struct peer_start {
    int op;
    int64_t deadline_ns, asked_ns;
    bool waits, is_of_many;
    struct core_payload payload;
};

/* The interned op of a method; -1 with an exception set. */
int peer_method_op(struct peer *p, PyObject *engine, PyObject *method);
/* A codec as Python gives it; -1 with an exception set. */
int peer_parse_codec(PyObject *codec);
/* Encode (args, kwargs). 0 or -1 with an exception set. */
int peer_encode(PyObject *args, PyObject *kwargs, int codec, struct core_payload *p);
/* Without the interpreter's lock. NULL: out of memory. */
struct ms_call *peer_send(struct peer *p, const struct peer_start *s);

#endif
