/* core.h - what the files of the extension share
 *
 * The extension is thin: it turns Python objects into payloads and failures into
 * exceptions, and lets go of the interpreter's lock around everything that waits. It
 * uses the stable ABI of 3.11 only.
 */
#ifndef MS_PYTHON_CORE_H
#define MS_PYTHON_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "plain/plain.h"
#include "wire/client/client.h"
#include "wire/server/server.h"

#include <sys/uio.h>

/* Keyword names as PyArg_ParseTupleAndKeywords of 3.11 wants them. */
#define CORE_NAMES(names) ((char **)(uintptr_t)(names))

/* ---- module.c -------------------------------------------------------------------- */

extern PyObject *core_dumps, *core_dumps_call, *core_loads, *core_make_error,
    *core_error;
extern PyObject *core_refused; /* a LookupError(text, table, errno): a head refused */
extern PyObject *core_dumps_alone; /* of what cannot refer to a store */
extern PyObject *core_site;        /* which line of the user's program is running */

/* A type of this module; without a slot for `new` only C makes objects of it. */
struct core_type {
    const char *name; /* "muster._core.NAME" */
    size_t size;
    PyType_Slot *slots;
    PyTypeObject *type; /* once the module is made */
};
extern struct core_type core_memory, core_call, core_inbox, core_peer, core_head,
    core_operation, core_host, core_request, core_rows, core_held, core_staleness,
    core_rollout, core_replay;
/* The end of a type's dealloc. */
void core_object_free(PyObject *self);

/* Raise `core_error` (or OSError's cousin) with the text; returns NULL. */
PyObject *core_raise(const struct ms_error *err);
/* jobs.c */
PyObject *core_ask_jobs(PyObject *self, PyObject *args);
PyObject *core_jobs_elsewhere(PyObject *self, PyObject *unused);
/* PyErr_Format and PyErr_NoMemory for functions that return -1 with an exception set. */
int core_fail(PyObject *type, const char *format, ...);
int core_no_memory(void);
/* An absolute deadline from seconds as Python gives them (None: `none_ns` from now). -1
 * with an exception set if it is not a number. */
int core_deadline(PyObject *seconds, int64_t none_ns, int64_t *deadline_ns);
/* Seconds as Python gives them, as far as they fit. */
int64_t core_ns(double seconds);
/* Until when to wait before signals are looked at again. */
int64_t core_slice(int64_t until_ns);
/* A new str of what may have been cut in the middle of a character, or never was UTF-8. */
PyObject *core_text(const char *text);
/* Take the exception that is set, as an object. */
PyObject *core_exception_take(void);
/* New lists of paths or variables as the file system encodes them, and of numbers. */
PyObject *core_fs_list(char **texts, size_t count);
PyObject *core_number_list(const uint32_t *numbers, size_t count);
/* A name of a module, imported; NULL with an exception set. */
PyObject *core_import(const char *module, const char *name);
/* Append and give away; false with an exception set. */
bool core_append(PyObject *list, PyObject *item);
/* NULL-terminated UTF-8 copies of a list of str; core_strings_free. NULL on failure. */
char **core_strings(PyObject *list);
void core_strings_free(char **strings);

/* Buffers of the objects of a list. 0, or -1 with an exception set; released in both cases. */
struct core_buffers {
    Py_buffer *at;
    Py_ssize_t count;
};
int core_buffers_init(struct core_buffers *b, PyObject *list, int flags);
void core_buffers_finish(struct core_buffers *b);

/* For MS_CLEANUP. */
static inline void core_unref(PyObject **o)
{
    Py_XDECREF(*o);
}

/* ---- payload.c ------------------------------------------------------------------- */

enum { CORE_IOV_MAX = 40 };

/* An encoded object; borrows from Python objects that it holds. */
struct core_payload {
    uint8_t codec;
    struct iovec iov[CORE_IOV_MAX];
    int count;
    uint8_t *head;    /* sizes */
    PyObject *pickle; /* bytes */
    Py_buffer *buffers;
    Py_ssize_t buffer_count;
    uint8_t *gathered;
    struct ms_plain_writer *plain;
    PyObject *refs;         /* a list of objects of the store inside of the pickle */
    struct core_hold *hold; /* what it refers to in a store */
};

/* What is pickled for: a call, its result or an item of it, what is put into the store, or
 * a receiver that has no store. */
enum core_stored_how {
    CORE_STORED_CALL,
    CORE_STORED_RESULT,
    CORE_STORED_PUT,
    CORE_STORED_NONE
};

/* A value (a result, an item, an operation's argument), or the arguments of a call, a
 * tuple and a dict or None. 0, or -1 with an exception set. */
int core_encode(PyObject *value,
                uint8_t codec,
                enum core_stored_how how,
                struct core_payload *p);
int core_encode_call(PyObject *args,
                     PyObject *kwargs,
                     uint8_t codec,
                     struct core_payload *p);
/* The buffer of an object, for as long as the payload; borrowed until the next one. NULL with
 * an exception set. */
Py_buffer *core_payload_hold(struct core_payload *p, PyObject *o);
/* All of it, as one bytes object. */
PyObject *core_payload_bytes(const struct core_payload *p);
/* With the interpreter's lock. */
void core_payload_release(struct core_payload *p);

/* Decode a payload: a value, or (args, kwargs). Takes over `memory` (malloc'd; `body`
 * points into it), also on failure. NULL with an exception set. */
PyObject *core_decode(uint8_t codec, uint8_t *memory, const uint8_t *body, size_t len);
PyObject *core_decode_bytes(uint8_t codec, PyObject *bytes); /* of a copy */
PyObject *
core_decode_call(uint8_t codec, uint8_t *memory, const uint8_t *body, size_t len);

int core_payload_setup(PyObject *module);

/* ---- memory.c -------------------------------------------------------------------- */

/* An object with a buffer over [at, at + len); releases the owner with it, also on
 * failure. */
PyObject *
core_memory_new(void *owner, void (*release)(void *), const uint8_t *at, size_t len);

/* ---- plain.c --------------------------------------------------------------------- */

extern PyObject *core_tensor_of, *core_tensor; /* of muster/_plain.py */

/* As above. On failure the payload is to be released. */
int core_plain_encode(PyObject *value, struct core_payload *p);
int core_plain_encode_call(PyObject *args, PyObject *kwargs, struct core_payload *p);
void core_plain_release(struct core_payload *p);
PyObject *core_plain_decode(uint8_t *memory, const uint8_t *body, size_t len);
PyObject *core_plain_decode_call(uint8_t *memory, const uint8_t *body, size_t len);

/* ---- failure.c ------------------------------------------------------------------- */

/* Raise a new exception object, which is taken (NULL: another one is set already); returns
 * NULL. */
PyObject *core_raise_new(PyObject *e);
/* A new exception that says the same, without a traceback; NULL with another one set. */
PyObject *core_exception_copy(PyObject *e);
/* The exception object of a Failure; NULL with another exception set. `where` is named if
 * the failure itself names no worker. */
PyObject *core_failure_exception(const Muster__Failure *f, const char *where);
/* The exception of a packed Failure is set; returns NULL. `where` is named if the
 * failure itself names no worker. */
PyObject *core_raise_failure(const uint8_t *body, size_t len, const char *where);
/* Raise by kind's name, with a text as PyErr_Format makes it. */
PyObject *core_raise_kind(const char *kind, const char *format, ...);

/* ---- call.c ---------------------------------------------------------------------- */

/* Takes the references. */
PyObject *core_call_new(struct ms_call *call, PyObject *peer);
/* The value of a done call that has not failed; NULL with an exception set. Once. */
PyObject *core_call_value(struct ms_call *call, const struct ms_outcome *o);
/* Wait with signals looked at: 1 news, 0 timeout, -1 exception. */
int core_call_wait(struct ms_call *call, int64_t until_ns);

/* ---- peer.c ---------------------------------------------------------------------- */

/* A Peer of this client; `owner` is kept alive by it. */
PyObject *core_peer_new(struct ms_client *client, PyObject *args, PyObject *owner);
struct ms_peer *core_peer_get(PyObject *peer);

/* ---- chain.c and worker.c -------------------------------------------------------- */

/* Would a wait for this peer, here and now, be a wait for ourselves? Then the exception
 * is set. */
int core_check_deadlock(struct ms_peer *peer);
/* The chain of workers that wait for what the engine's thread runs now. */
const uint64_t *core_chain(uint32_t *count);

/* ---- what the module is made of --------------------------------------------------- */

int core_serve_setup(PyObject *module);
int core_operation_setup(PyObject *module);
int core_constants_setup(PyObject *module);
int core_rollout_setup(PyObject *module);
PyObject *core_zygote_fill(PyObject *self, PyObject *unused); /* zygote_fill.c */
/* Functions of the module, each of the file of that name; of head: head_start.c. */
extern PyMethodDef core_call_functions[], core_call_many_functions[],
    core_dispatch_functions[], core_head_functions[], core_mapping_functions[],
    core_memory_functions[], core_piece_functions[], core_role_functions[],
    core_rows_functions[], core_step_functions[], core_store_functions[],
    core_worker_functions[], core_zygote_functions[];

#endif
