/* store.h - payloads in shared memory, for the files of the extension
 *
 * store.c       the client of this process, objects as Python sees them, put and empty
 * stored.c      payloads whose big parts are in a store
 * piece.c       bytes in a store that are read only when they are wanted
 * memory.c      memory that is written: private maps of objects, spare memory
 */
#ifndef MS_PYTHON_STORE_H
#define MS_PYTHON_STORE_H

#include "core.h"

#include "store/client/client.h"
#include "wire/server/server.h"

/* The node's store; NULL: there is none. A worker opens it when it is first asked for. */
struct ms_store_client *core_store_get(void);
/* The same; NULL with an exception set. */
struct ms_store_client *core_store_need(void);
/* In a forked child. */
void core_store_forget(void);

/* What a payload refers to, shared by all the calls that carry it. */
struct core_hold {
    _Atomic unsigned refs;
    size_t count;
    struct core_held_object {
        struct ms_held *held;
        bool rests; /* it is kept, and not read */
    } objects[];
};
struct core_hold *core_hold_new(size_t room); /* empty; NULL: out of memory */
void core_hold_ref(struct core_hold *h);
void core_hold_unref(void *hold); /* without the interpreter's lock too */

/* Of struct ms_client_options. */
void *core_on_stored(void *arg, const uint8_t *body, size_t len);
/* Of struct ms_server_ops. */
void core_on_unread(void *arg, const struct ms_request *r);

/* An object that exports the bytes of `h`, or only keeps it; takes the reference, also on
 * failure. */
enum core_held_how { CORE_HELD_READS, CORE_HELD_WRITES, CORE_HELD_RESTS };
PyObject *core_held_new(struct ms_held *h, enum core_held_how how);
/* Borrowed; NULL with an exception set. */
struct ms_held *core_held_get(PyObject *held);

/* Lay out a payload that was pickled. 0, or -1 with an exception set. */
int core_stored_lay_out(struct core_payload *p, enum core_stored_how how);
/* As core_decode. */
PyObject *core_stored_decode(uint8_t *memory, const uint8_t *body, size_t len);
/* A pickle without buffers; takes over the memory that it is in. Of payload.c. */
PyObject *core_load_bare(uint8_t *memory, const uint8_t *pickle, size_t len);

extern _Atomic uint64_t
    core_copied; /* bytes that this process has copied into a store */

/* (meta, held objects) of a payload in a store. */
PyObject *core_stored_ref(const uint8_t *body, size_t len);

/* ms_store_client_attach with this process's store. 0, or -1 with an exception set and nothing
 * held. */
int core_store_attach(const struct ms_stored_name *names,
                      size_t count,
                      bool bare,
                      struct ms_held **held);

/* Raise StoreFull, ObjectLost or MusterError; returns NULL. */
PyObject *core_store_raise(const struct ms_error *err);

/* This process has no store: raise ObjectLost. Returns NULL. */
PyObject *core_no_store(void);

/* ms_store_client_write, for the line of the user's program that does this. 0, or -1 with an
 * exception set. */
int core_store_write(struct ms_store_client *c,
                     struct ms_store_bytes *all,
                     size_t count,
                     bool together);

#endif
