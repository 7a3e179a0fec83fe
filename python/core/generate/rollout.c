/* rollout.c - generation on clusters: the scheduler's rollout as a Python object */
#include "core/generate/rollout_impl.h"

#include "base/clock.h"

#include <errno.h>
#include <string.h>

#define SPAN_MAX_NS (MS_NEVER / 4)

struct ms_rollout *core_rollout_get(PyObject *self)
{
    return ((struct rollout_object *)self)->rollout;
}

/* Why not, of what can be asked at the wrong time. */
static const char *refusal_of(const char *what)
{
    static const struct {
        const char *what, *why;
    } all[] = {
        {"restored", "an update is under way"},
        {"weights", "another update is under way"},
        {"weights_failed", "no update is under way"},
        {"drain", "at least one replica must stay"},
        {"resize", "a scheduler needs a replica that is not drained"},
        {"pause", "it was resumed meanwhile"},
        {"resume", "it is not paused"},
    };

    for (size_t i = 0; i < MS_COUNT(all); i++)
        if (strcmp(all[i].what, what) == 0)
            return all[i].why;
    return "it cannot be so";
}

PyObject *core_rollout_raise(int rc, const char *what)
{
    struct ms_error err = {0};

    if (rc == -ENOENT)
        return PyErr_Format(PyExc_LookupError, "%s: there is no such", what);
    if (rc == -EINVAL || rc == -EAGAIN)
        return PyErr_Format(PyExc_ValueError, "%s: %s", what, refusal_of(what));
    if (rc == -ENOMEM)
        return PyErr_NoMemory();
    if (rc == -EBUSY)
        ms_error_set(&err, rc, "%s: %s", what, refusal_of(what));
    else if (rc == -ECHILD)
        ms_error_set(&err, rc, "%s: " MS_ROLLOUT_FORKED, what);
    else if (rc == -ESHUTDOWN)
        ms_error_set(&err, rc, "%s: the scheduler is closed", what);
    else
        ms_error_sys(&err, rc, "%s", what);
    return core_raise(&err);
}

PyObject *core_rollout_done(int rc, const char *what)
{
    if (rc < 0)
        return core_rollout_raise(rc, what);
    Py_RETURN_NONE;
}

/* False with an exception set: this is a forked child. */
static bool is_usable(struct ms_rollout *r, const char *what)
{
    int rc = ms_rollout_status(r);

    if (rc == -ECHILD)
        core_rollout_raise(rc, what);
    return rc != -ECHILD;
}

/* ---- life -------------------------------------------------------------------------- */

/* A span that can be added to any time; infinity is SPAN_MAX_NS. */
int64_t core_rollout_span_ns(double seconds)
{
    int64_t ns = core_ns(seconds);

    return ns < SPAN_MAX_NS ? ns : SPAN_MAX_NS;
}

static int take_options(PyObject *kwargs, struct ms_rollout_options *o)
{
    static const char *const names[] = {
        "engine", "role",        "policy",          "seed",    "chunk", "max_staleness",
        "batch",  "filter",      "poison",          "silence", "probe", "rebalance",
        "ageing", "history",     "history_prompts", "version", "slots", "kv_tokens",
        "mesh",   "session_ttl", "max_bias",        NULL};
    MS_CLEANUP(core_unref) PyObject *none = PyTuple_New(0);
    double silence, probe, rebalance, ageing, ttl, bias;
    unsigned long long seed, prompts;
    int filter;

    if (!none || !PyArg_ParseTupleAndKeywords(none,
                                              kwargs,
                                              "$sssKIIIpIddddzKIII(III)dd",
                                              CORE_NAMES(names),
                                              &o->engine,
                                              &o->role,
                                              &o->policy,
                                              &seed,
                                              &o->core.chunk,
                                              &o->core.staleness_max,
                                              &o->core.batch,
                                              &filter,
                                              &o->core.poison_replicas,
                                              &silence,
                                              &probe,
                                              &rebalance,
                                              &ageing,
                                              &o->history,
                                              &prompts,
                                              &o->version,
                                              &o->slots,
                                              &o->kv_tokens,
                                              &o->tp,
                                              &o->cp,
                                              &o->pp,
                                              &ttl,
                                              &bias))
        return -1;
    o->core.seed = seed;
    o->core.filter = filter;
    o->core.silence_ns = core_rollout_span_ns(silence);
    o->core.probe_ns = core_rollout_span_ns(probe);
    o->core.rebalance_ns = core_rollout_span_ns(rebalance);
    o->core.ageing = ageing;
    o->core.bias_max = bias;
    o->session_ttl_ns = core_rollout_span_ns(ttl);
    o->history_prompts = (size_t)prompts;
    return 0;
}

static PyObject *rollout_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    struct ms_rollout_options o = {0};
    struct ms_error err = {0};
    struct rollout_object *self;

    if (PyTuple_Size(args) != 0)
        return PyErr_Format(PyExc_TypeError, "a rollout takes named arguments");
    if (take_options(kwargs, &o) < 0)
        return NULL;
    self = (struct rollout_object *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type,
                                                                                   0);
    if (!self)
        return NULL;
    self->owners = PySet_New(NULL);
    if (self->owners)
        self->rollout = ms_rollout_create(&o, &err);
    if (!self->rollout) {
        if (self->owners)
            core_raise(&err);
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    return (PyObject *)self;
}

static PyObject *rollout_close(PyObject *self, PyObject *unused)
{
    struct ms_rollout *r = core_rollout_get(self);

    Py_BEGIN_ALLOW_THREADS;
    ms_rollout_close(r);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

static void rollout_dealloc(PyObject *self)
{
    struct rollout_object *o = (struct rollout_object *)self;
    struct ms_rollout *r = MS_TAKE(o->rollout);

    Py_BEGIN_ALLOW_THREADS;
    ms_rollout_destroy(r);
    Py_END_ALLOW_THREADS;
    Py_XDECREF(o->owners);
    core_object_free(self);
}

/* (role): the file that a rollout of it has by itself, or None. */
static PyObject *rollout_history_of(PyObject *self, PyObject *role)
{
    const char *name = PyUnicode_AsUTF8AndSize(role, NULL);
    MS_CLEANUP(ms_cleanup_free) char *path = name ? ms_rollout_history_of(name) : NULL;

    if (!name)
        return NULL;
    return path ? PyUnicode_DecodeFSDefault(path) : Py_NewRef(Py_None);
}

/* ---- news -------------------------------------------------------------------------- */

/* (seen, seconds or None): the number of news; the same as `seen` after that time. Closed: it
 * raises, unless `seen` is 0. */
static PyObject *rollout_wait(PyObject *self, PyObject *args)
{
    struct ms_rollout *r = core_rollout_get(self);
    unsigned long long seen;
    PyObject *seconds;
    int64_t until_ns;
    uint64_t news;
    int rc;

    if (!PyArg_ParseTuple(args, "KO", &seen, &seconds) ||
        core_deadline(seconds, MS_NEVER, &until_ns) < 0)
        return NULL;
    do {
        Py_BEGIN_ALLOW_THREADS;
        news = ms_rollout_wait(r, seen, core_slice(until_ns));
        rc = seen ? ms_rollout_status(r) : 0; /* there will be no more news */
        Py_END_ALLOW_THREADS;
        if (PyErr_CheckSignals() < 0)
            return NULL;
        if (rc < 0)
            return core_rollout_raise(rc, "wait");
    } while (news == seen && ms_now_ns() < until_ns);
    return PyLong_FromUnsignedLongLong(news);
}

static PyObject *rollout_listen(PyObject *self, PyObject *unused)
{
    struct ms_rollout *r = core_rollout_get(self);
    int fd = ms_rollout_listen(r);

    return fd < 0 ? core_rollout_raise(fd, "listen") : PyLong_FromLong(fd);
}

static PyObject *rollout_unlisten(PyObject *self, PyObject *fd)
{
    struct ms_rollout *r = ((struct rollout_object *)self)->rollout;
    long n = PyLong_AsLong(fd);

    if (n == -1 && PyErr_Occurred())
        return NULL;
    ms_rollout_unlisten(r, (int)n);
    Py_RETURN_NONE;
}

/* ---- of a number, or of nothing ----------------------------------------------------- */

/* A function of a number; and what to call it in an error. */
#define OF_NUMBER(name, type, call)                                                    \
    static PyObject *rollout_##name(PyObject *self, PyObject *number)                  \
    {                                                                                  \
        struct ms_rollout *r = core_rollout_get(self);                                 \
        unsigned long long n = PyLong_AsUnsignedLongLong(number);                      \
        int rc;                                                                        \
                                                                                       \
        if (PyErr_Occurred())                                                          \
            return NULL;                                                               \
        Py_BEGIN_ALLOW_THREADS;                                                        \
        rc = call(r, (type)n);                                                         \
        Py_END_ALLOW_THREADS;                                                          \
        return core_rollout_done(rc, #name);                                           \
    }
OF_NUMBER(cancel, uint64_t, ms_rollout_cancel)
OF_NUMBER(consumed, uint64_t, ms_rollout_consumed)
OF_NUMBER(give_back, uint64_t, ms_rollout_give_back)
OF_NUMBER(weights_ready, uint32_t, ms_rollout_weights_ready)
OF_NUMBER(session_finish, uint64_t, ms_rollout_session_finish)
OF_NUMBER(pause, enum ms_weights_mode, ms_rollout_pause)

#define PLAIN(name, call)                                                              \
    static PyObject *rollout_##name(PyObject *self, PyObject *unused)                  \
    {                                                                                  \
        struct ms_rollout *r = core_rollout_get(self);                                 \
        int rc;                                                                        \
                                                                                       \
        Py_BEGIN_ALLOW_THREADS;                                                        \
        rc = call(r);                                                                  \
        Py_END_ALLOW_THREADS;                                                          \
        return core_rollout_done(rc, #name);                                           \
    }
PLAIN(cancel_all, ms_rollout_cancel_all)
PLAIN(weights_failed, ms_rollout_weights_failed)
PLAIN(resume, ms_rollout_resume)

/* ---- weights ----------------------------------------------------------------------- */

/* Why an engine has not paused. */
static PyObject *raise_refusal(struct ms_rollout *r)
{
    struct ms_rollout_replica_stats s;
    struct ms_error err = {0};

    for (uint32_t i = 0; ms_rollout_replica_stats(r, i, &s); i++)
        if (s.state == MS_ROLLOUT_UP && s.failure[0]) {
            ms_error_set(
                &err, -EREMOTEIO, "replica %u did not stand still: %s", i, s.failure);
            return core_raise(&err);
        }
    return core_rollout_raise(-EREMOTEIO, "pause");
}

/* (version, mode, rolling, seconds or None) */
static PyObject *rollout_weights_begin(PyObject *self, PyObject *args)
{
    struct ms_rollout *r = core_rollout_get(self);
    unsigned version, mode;
    PyObject *seconds;
    int64_t until_ns;
    int rolling, rc;

    if (!PyArg_ParseTuple(args, "IIpO", &version, &mode, &rolling, &seconds) ||
        core_deadline(seconds, MS_NEVER, &until_ns) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    rc = ms_rollout_weights_begin(
        r, version, (enum ms_weights_mode)mode, rolling, until_ns);
    Py_END_ALLOW_THREADS;
    if (rc == -EINVAL)
        return PyErr_Format(PyExc_ValueError,
                            "version: %u is not after %u",
                            version,
                            (unsigned)ms_rollout_version(r));
    return core_rollout_done(rc, "weights");
}

/* The number of the next replica; -1: there is none left; None: not yet. */
static PyObject *rollout_weights_next(PyObject *self, PyObject *unused)
{
    struct ms_rollout *r = core_rollout_get(self);
    uint32_t replica = 0;
    int rc;

    Py_BEGIN_ALLOW_THREADS;
    rc = ms_rollout_weights_next(r, &replica);
    Py_END_ALLOW_THREADS;
    if (rc == -EAGAIN)
        Py_RETURN_NONE;
    if (rc == -EREMOTEIO)
        return raise_refusal(r);
    if (rc < 0)
        return core_rollout_raise(rc, "weights");
    return PyLong_FromLong(rc > 0 ? (long)replica : -1L);
}

static PyObject *rollout_is_paused(PyObject *self, PyObject *unused)
{
    struct ms_rollout *r = core_rollout_get(self);
    int rc = ms_rollout_is_paused(r);

    if (rc == -EREMOTEIO)
        return raise_refusal(r);
    return rc == 0 || rc == -EAGAIN ? PyBool_FromLong(rc == 0)
                                    : core_rollout_raise(rc, "pause");
}

/* ---- looking ----------------------------------------------------------------------- */

static PyObject *rollout_version(PyObject *self, void *unused)
{
    struct ms_rollout *r = core_rollout_get(self);

    if (!is_usable(r, "version"))
        return NULL;
    return PyLong_FromUnsignedLong(ms_rollout_version(r));
}

static PyObject *rollout_stats(PyObject *self, PyObject *unused)
{
    struct ms_rollout *r = core_rollout_get(self);

    return is_usable(r, "stats") ? core_rollout_stats(r) : NULL;
}

static PyObject *rollout_explain(PyObject *self, PyObject *text)
{
    struct ms_rollout *r = core_rollout_get(self);
    const char *rid = PyUnicode_AsUTF8AndSize(text, NULL);
    struct ms_explanation x;
    char sentence[1024];
    int rc;

    if (!rid)
        return NULL;
    rc = ms_rollout_explain(r, rid, &x, sentence, sizeof sentence);
    return rc < 0 ? core_rollout_raise(rc, rid)
                  : core_rollout_explanation(&x, sentence);
}

/* (from): a list of marks, and the number behind the last. */
static PyObject *rollout_marks(PyObject *self, PyObject *number)
{
    enum { ROOM = 1024 };
    struct ms_rollout *r = core_rollout_get(self);
    MS_CLEANUP(ms_cleanup_free) struct ms_rollout_mark *marks = NULL;
    MS_CLEANUP(core_unref) PyObject *list = NULL;
    unsigned long long from = PyLong_AsUnsignedLongLong(number);
    uint64_t next = from;
    size_t n;

    if (PyErr_Occurred() || !is_usable(r, "timeline"))
        return NULL;
    marks = calloc(ROOM, sizeof *marks);
    list = PyList_New(0);
    if (!marks || !list)
        return PyErr_NoMemory();
    do {
        n = ms_rollout_marks(r, next, marks, ROOM, &next);
        for (size_t i = 0; i < n; i++)
            if (!core_append(list, core_rollout_mark(&marks[i])))
                return NULL;
    } while (n == ROOM);
    return Py_BuildValue("(OK)", list, (unsigned long long)next);
}

static PyMethodDef rollout_methods[] = {
    {"close", rollout_close, METH_NOARGS, NULL},
    {"wait", rollout_wait, METH_VARARGS, NULL},
    {"listen", rollout_listen, METH_NOARGS, NULL},
    {"unlisten", rollout_unlisten, METH_O, NULL},
    {"follow", core_rollout_follow, METH_O, NULL},
    {"limit", core_rollout_limit, METH_O, NULL},
    {"drain", core_rollout_drain, METH_O, NULL},
    {"undrain", core_rollout_undrain, METH_O, NULL},
    {"rank", core_rollout_rank, METH_O, NULL},
    {"submit", core_rollout_submit, METH_VARARGS, NULL},
    {"session_open", core_rollout_session_open, METH_VARARGS, NULL},
    {"session_finish", rollout_session_finish, METH_O, NULL},
    {"session_replica", core_rollout_session_replica, METH_O, NULL},
    {"pull", core_rollout_pull, METH_O, NULL},
    {"history_of", rollout_history_of, METH_O | METH_STATIC, NULL},
    {"lease", core_rollout_lease, METH_O, NULL},
    {"consumed", rollout_consumed, METH_O, NULL},
    {"give_back", rollout_give_back, METH_O, NULL},
    {"take", core_rollout_take, METH_O, NULL},
    {"take_dropped", core_rollout_take_dropped, METH_NOARGS, NULL},
    {"judge", core_rollout_judge, METH_NOARGS, NULL},
    {"verdict", core_rollout_verdict, METH_VARARGS, NULL},
    {"take_refill", core_rollout_take_refill, METH_NOARGS, NULL},
    {"cancel", rollout_cancel, METH_O, NULL},
    {"cancel_rid", core_rollout_cancel_rid, METH_O, NULL},
    {"cancel_all", rollout_cancel_all, METH_NOARGS, NULL},
    {"rid", core_rollout_rid, METH_VARARGS, NULL},
    {"weights_begin", rollout_weights_begin, METH_VARARGS, NULL},
    {"weights_next", rollout_weights_next, METH_NOARGS, NULL},
    {"weights_ready", rollout_weights_ready, METH_O, NULL},
    {"weights_failed", rollout_weights_failed, METH_NOARGS, NULL},
    {"restored", core_rollout_restored, METH_O, NULL},
    {"pause", rollout_pause, METH_O, NULL},
    {"is_paused", rollout_is_paused, METH_NOARGS, NULL},
    {"resume", rollout_resume, METH_NOARGS, NULL},
    {"stats", rollout_stats, METH_NOARGS, NULL},
    {"explain", rollout_explain, METH_O, NULL},
    {"marks", rollout_marks, METH_O, NULL},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef rollout_getset[] = {{"version", rollout_version, NULL, NULL, NULL},
                                       {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot rollout_slots[] = {{Py_tp_new, rollout_new},
                                      {Py_tp_dealloc, rollout_dealloc},
                                      {Py_tp_methods, rollout_methods},
                                      {Py_tp_getset, rollout_getset},
                                      {0, NULL}};

struct core_type core_rollout = {.name = "muster._core.Rollout",
                                 .size = sizeof(struct rollout_object),
                                 .slots = rollout_slots};
