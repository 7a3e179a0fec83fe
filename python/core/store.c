/* store.c - the store client of this process, and its objects as Python sees them */
#include "store.h"

#include "core/worker/host_object.h"
#include "head_object.h"
#include "message.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/name.h"
#include "store/path.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

static struct ms_store_client *the_store;
static bool was_tried;           /* in a worker: with or without success */
static struct ms_error why_none; /* why the last attempt to open one failed */

/* ---- the client ------------------------------------------------------------------ */

static bool is_interrupted(void)
{
    PyGILState_STATE state = PyGILState_Ensure();
    bool came = PyErr_CheckSignals() < 0;

    PyGILState_Release(state);
    return came;
}

static struct ms_store_client *open_store(const char *dir,
                                          const char *node,
                                          const uint8_t *secret,
                                          uint64_t holder,
                                          const char *name,
                                          struct ms_error *err)
{
    char path[MS_STORE_PATH_MAX];
    struct ms_store_client_options o = {.path = ms_store_path(dir, node, path),
                                        .secret = secret,
                                        .holder = holder,
                                        .name = name,
                                        .is_interrupted = is_interrupted};

    return ms_store_client_open(&o, err);
}

/* Nobody listens: the agent could not make one, and goes on without. */
static void note_failure(const char *dir)
{
    if (why_none.code == -ENOENT)
        ms_error_set(&why_none,
                     -ENOENT,
                     "the agent of this machine could not make one; %s/logs/agent.log "
                     "says why (a limit of memory, such as `ulimit -v`?)",
                     dir);
}

static void open_in_worker(void)
{
    const Muster__WorkerBoot *boot = ms_host_boot(the_host->host);
    char name[MS_NAME_MAX + 16];

    snprintf(name, sizeof name, "%s/%u", boot->cluster, (unsigned)boot->rank);
    the_store = open_store(boot->session_dir,
                           boot->node_name,
                           boot->secret.data,
                           boot->uid,
                           name,
                           &why_none);
    note_failure(boot->session_dir);
}

struct ms_store_client *core_store_get(void)
{
    if (!the_store && the_host && !was_tried) {
        was_tried = true;
        open_in_worker();
    }
    return the_store;
}

void core_store_forget(void)
{
    ms_store_client_forget(the_store);
    the_store = NULL; /* what is held there stays readable */
    was_tried = true;
}

/* (head, folder, node, name of this process): the driver's. True if there is a store. */
static PyObject *store_open(PyObject *self, PyObject *args)
{
    const char *dir, *node, *name;
    const struct ms_session *session;
    struct ms_error err = {0};
    PyObject *head;

    if (!PyArg_ParseTuple(args, "Osss", &head, &dir, &node, &name))
        return NULL;
    session = ms_head_session(((struct head *)head)->head);
    if (the_store) {
        ms_store_client_close(the_store);
        the_store = NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    the_store = open_store(dir, node, session->secret, ms_random_id(), name, &err);
    Py_END_ALLOW_THREADS;
    why_none = err;
    note_failure(dir);
    return PyBool_FromLong(the_store != NULL);
}

static PyObject *store_forget(PyObject *self, PyObject *unused)
{
    core_store_forget();
    Py_RETURN_NONE;
}

static PyObject *store_close(PyObject *self, PyObject *unused)
{
    struct ms_store_client *c = the_store;

    the_store = NULL;
    why_none.code = 0;
    ms_store_client_close(c);
    Py_RETURN_NONE;
}

PyObject *core_store_raise(const struct ms_error *err)
{
    if (err->code == -EINTR && PyErr_Occurred())
        return NULL;
    if (err->code == -ENOSPC || err->code == -ENOMEM)
        return core_raise_kind("store_full", "%s", err->text);
    if (err->code == -ENOENT || err->code == -EHOSTUNREACH)
        return core_raise_kind("object_lost", "%s", err->text);
    if (err->code == -ETIMEDOUT)
        return core_raise_kind("deadline", "%s", err->text);
    return core_raise(err);
}

struct ms_store_client *core_store_need(void)
{
    struct ms_store_client *c = core_store_get();

    if (!c && why_none.code)
        PyErr_Format(core_error, "there is no store here: %s", why_none.text);
    else if (!c)
        PyErr_SetString(core_error,
                        "there is no store here: call muster.init() first, and run an "
                        "agent on this machine");
    return c;
}

PyObject *core_no_store(void)
{
    return core_raise_kind(
        "object_lost",
        "this process has no store: its node has no agent, or the agent has ended");
}

int core_store_attach(const struct ms_stored_name *names,
                      size_t count,
                      bool bare,
                      struct ms_held **held)
{
    struct ms_store_client *c = core_store_get();
    struct ms_error err = {0};
    int rc;

    if (count == 0)
        return 0;
    if (!c) {
        core_no_store();
        return -1;
    }
    Py_BEGIN_ALLOW_THREADS;
    rc = ms_store_client_attach(c, names, count, bare, held, &err);
    Py_END_ALLOW_THREADS;
    if (rc == 0)
        return 0;
    memset(held, 0, count * sizeof(*held));
    core_store_raise(&err);
    return -1;
}

_Atomic uint64_t core_copied;

int core_store_write(struct ms_store_client *c,
                     struct ms_store_bytes *all,
                     size_t count,
                     bool together)
{
    MS_CLEANUP(core_unref) PyObject *text = NULL; /* keeps `site` */
    struct ms_error err = {0};
    const char *site = NULL;
    uint64_t fresh = 0;
    size_t missing = 0;
    int rc;

    for (size_t i = 0; i < count; i++)
        if (!all[i].held) {
            missing++;
            fresh += all[i].len;
        }
    if (!missing)
        return 0;
    text = core_site ? PyObject_CallFunctionObjArgs(core_site, NULL) : NULL;
    site = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    if (!site)
        PyErr_Clear();
    Py_BEGIN_ALLOW_THREADS;
    rc = ms_store_client_write(c, all, count, together, site ? site : "", &err);
    Py_END_ALLOW_THREADS;
    if (rc < 0)
        core_store_raise(&err);
    else
        core_copied += fresh;
    return rc;
}

/* ---- what several calls hold ----------------------------------------------------- */

struct core_hold *core_hold_new(size_t room)
{
    struct core_hold *h = calloc(1, sizeof *h + room * sizeof h->objects[0]);

    if (h)
        h->refs = 1;
    return h;
}

void core_hold_ref(struct core_hold *h)
{
    atomic_fetch_add(&h->refs, 1);
}

void core_hold_unref(void *hold)
{
    struct core_hold *h = hold;

    if (!h || atomic_fetch_sub(&h->refs, 1) != 1)
        return;
    for (size_t i = 0; i < h->count; i++) {
        if (h->objects[i].rests)
            ms_held_wake(h->objects[i].held);
        ms_held_unref(h->objects[i].held);
    }
    free(h);
}

/* The objects that the payload's own bytes lie in are read now. The others, those of
 * references, rest until they are wanted, which may be long after, so that they can be
 * spilled. */
static void adopt(struct core_hold *out,
                  struct ms_store_client *c,
                  const struct ms_stored *s,
                  bool *is_read)
{
    bool is_fresh = ms_stored_is_fresh(s, ms_now_ns());
    struct ms_stored_walk walk = {0};
    struct ms_stored_part part;
    struct ms_stored_name name;
    size_t at = 0;

    while (ms_stored_part(s, &walk, &part))
        if (part.object >= 0)
            is_read[part.object] = true;
    for (size_t i = 0; ms_stored_next(s, &at, &name); i++) {
        struct ms_held *h;

        if (!is_fresh)
            name.at = MS_PLACE_UNKNOWN;
        h = ms_store_client_adopt(c, &name, s->node);
        if (!h)
            continue;
        if (!is_read[i])
            ms_held_rest(h);
        out->objects[out->count++] =
            (struct core_held_object){.held = h, .rests = !is_read[i]};
    }
}

void *core_on_stored(void *arg, const uint8_t *body, size_t len)
{
    MS_CLEANUP(ms_cleanup_free) bool *is_read = NULL;
    struct ms_store_client *c = the_store;
    struct core_hold *h;
    struct ms_stored s;

    if (!c || ms_stored_parse(&s, body, len, NULL) < 0 || !s.object_count)
        return NULL;
    is_read = calloc(s.object_count, sizeof *is_read);
    h = is_read ? core_hold_new(s.object_count) : NULL;
    if (h)
        adopt(h, c, &s, is_read);
    return h;
}

void core_on_unread(void *arg, const struct ms_request *r)
{
    struct ms_store_client *c = the_store;
    struct ms_stored_name name;
    struct ms_stored s;
    size_t at = 0;

    if (!c || r->reply_codec != MS_CODEC_STORED ||
        ms_stored_parse(&s, r->reply, r->reply_len, NULL) < 0)
        return;
    while (ms_stored_next(&s, &at, &name))
        ms_store_client_grant(c, &name, r->owner_words[1], r->owner_words[0], true);
}

/* ---- objects --------------------------------------------------------------------- */

struct held {
    PyObject_HEAD struct ms_held *held;
    enum core_held_how how;
};

PyObject *core_held_new(struct ms_held *h, enum core_held_how how)
{
    struct held *o = PyObject_New(struct held, core_held.type);

    if (!o) {
        ms_held_unref(h);
        return NULL;
    }
    o->held = h;
    o->how = how;
    if (how == CORE_HELD_RESTS)
        ms_held_rest(h);
    return (PyObject *)o;
}

struct ms_held *core_held_get(PyObject *held)
{
    if (PyObject_TypeCheck(held, core_held.type))
        return ((struct held *)held)->held;
    PyErr_SetString(PyExc_TypeError, "an object of the store is needed");
    return NULL;
}

static void held_dealloc(PyObject *self)
{
    struct held *o = (struct held *)self;

    if (o->how == CORE_HELD_RESTS)
        ms_held_wake(o->held);
    ms_held_unref(o->held);
    core_object_free(self);
}

static int held_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
    struct held *o = (struct held *)self;
    bool writes = o->how == CORE_HELD_WRITES;
    const uint8_t *at = writes                      ? o->held->write
                        : o->how == CORE_HELD_READS ? o->held->read
                                                    : NULL;

    if (!at)
        return core_fail(PyExc_BufferError, "the bytes of this object are not here");
    return PyBuffer_FillInfo(
        view, self, (void *)(uintptr_t)at, (Py_ssize_t)o->held->len, !writes, flags);
}

/* `at`: which field of struct ms_held. */
static PyObject *held_number(PyObject *self, void *at)
{
    const char *held = (const char *)((struct held *)self)->held;
    uint64_t value;

    memcpy(&value, held + (uintptr_t)at, sizeof value);
    return PyLong_FromUnsignedLongLong(value);
}

#define NUMBER(field) (void *)offsetof(struct ms_held, field)

static PyGetSetDef held_getset[] = {{"node", held_number, NULL, NULL, NUMBER(node)},
                                    {"id", held_number, NULL, NULL, NUMBER(id)},
                                    {"nbytes", held_number, NULL, NULL, NUMBER(len)},
                                    {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot held_slots[] = {{Py_tp_dealloc, held_dealloc},
                                   {Py_bf_getbuffer, held_getbuffer},
                                   {Py_tp_getset, held_getset},
                                   {0, NULL}};

struct core_type core_held = {
    .name = "muster._core.Held", .size = sizeof(struct held), .slots = held_slots};

/* ---- functions ------------------------------------------------------------------- */

/* (nbytes, site): room for so many bytes, to be written. */
static PyObject *store_empty(PyObject *self, PyObject *args)
{
    struct ms_store_client *c;
    struct ms_error err = {0};
    unsigned long long len;
    struct ms_held *h;
    const char *site;

    if (!PyArg_ParseTuple(args, "Ks", &len, &site))
        return NULL;
    c = core_store_need();
    if (!c)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    h = ms_store_client_make(c, len, site, &err);
    Py_END_ALLOW_THREADS;
    return h ? core_held_new(h, CORE_HELD_WRITES) : core_store_raise(&err);
}

/* (meta): hold what it refers to: (meta, held objects). */
static PyObject *store_hold(PyObject *self, PyObject *meta)
{
    Py_ssize_t len;
    char *at;

    if (PyBytes_AsStringAndSize(meta, &at, &len) < 0 || !core_store_need())
        return NULL;
    return core_stored_ref((const uint8_t *)at, (size_t)len);
}

/* (value): its payload, with all that is big in the store: (meta, held objects). */
static PyObject *store_put(PyObject *self, PyObject *value)
{
    MS_CLEANUP(core_unref) PyObject *meta = NULL;
    struct core_payload p;
    PyObject *ref;

    if (!core_store_need())
        return NULL;
    if (!ms_store_client_limit(the_store))
        return core_raise_kind("store_full",
                               "this node has no store: its store_limit is 0");
    if (core_encode(value, MS_CODEC_PICKLE, CORE_STORED_PUT, &p) < 0)
        return NULL;
    meta = core_payload_bytes(&p);
    ref = meta ? store_hold(NULL, meta) : NULL;
    core_payload_release(&p); /* the reference holds what it names by now */
    return ref;
}

/* (meta): the value. */
static PyObject *store_get(PyObject *self, PyObject *meta)
{
    return core_store_need() ? core_decode_bytes(MS_CODEC_STORED, meta) : NULL;
}

static PyObject *store_node(PyObject *self, PyObject *unused)
{
    if (!the_store)
        Py_RETURN_NONE;
    return Py_BuildValue("KK",
                         (unsigned long long)ms_store_client_node(the_store),
                         (unsigned long long)ms_store_client_limit(the_store));
}

/* (with the largest objects): a StoreStats as a dict. */
static PyObject *store_stats(PyObject *self, PyObject *with_objects)
{
    struct ms_store_client *c = core_store_need();
    bool objects = PyObject_IsTrue(with_objects) == 1;
    struct ms_error err = {0};
    Muster__StoreStats *m;
    PyObject *dict;

    if (!c)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    m = ms_store_client_stats(c, objects, &err);
    Py_END_ALLOW_THREADS;
    if (!m)
        return core_store_raise(&err);
    dict = core_message_dict(&m->base);
    muster__store_stats__free_unpacked(m, NULL);
    return dict;
}

/* What a user should know of this node's store; or "". */
static PyObject *store_warning(PyObject *self, PyObject *unused)
{
    return PyUnicode_FromString(the_store ? ms_store_client_warning(the_store) : "");
}

static PyObject *store_copied(PyObject *self, PyObject *unused)
{
    return PyLong_FromUnsignedLongLong(core_copied);
}

PyMethodDef core_store_functions[] = {
    {"store_open", store_open, METH_VARARGS, NULL},
    {"store_close", store_close, METH_NOARGS, NULL},
    {"store_forget", store_forget, METH_NOARGS, NULL},
    {"store_empty", store_empty, METH_VARARGS, NULL},
    {"store_put", store_put, METH_O, NULL},
    {"store_get", store_get, METH_O, NULL},
    {"store_hold", store_hold, METH_O, NULL},
    {"store_node", store_node, METH_NOARGS, NULL},
    {"store_stats", store_stats, METH_O, NULL},
    {"store_warning", store_warning, METH_NOARGS, NULL},
    {"store_copied", store_copied, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL}};
