/* rollout_groups.c - groups of a rollout: submitted, handed out when they are over, cancelled */
#include "core/generate/rollout_impl.h"

#include <errno.h>

#define GROUPS_MAX (1UL << 24) /* of a batch */

/* Plain data as a value; NULL with an exception set. */
static struct muster_value *value_of(PyObject *o)
{
    struct core_payload p;
    MS_CLEANUP(core_unref) PyObject *bytes = NULL;
    struct muster_value *v;
    struct muster_error err;

    if (core_encode(o, MS_CODEC_PLAIN, CORE_STORED_NONE, &p) < 0)
        return NULL;
    bytes = core_payload_bytes(&p);
    core_payload_release(&p);
    if (!bytes)
        return NULL;
    v = muster_value_decode(PyBytes_AsString(bytes), (size_t)PyBytes_Size(bytes), &err);
    if (!v)
        PyErr_Format(PyExc_ValueError, "%s", err.message);
    return v;
}

static void value_free(struct muster_value **v)
{
    muster_value_destroy(*v);
}

/* What a sample has already, borrowed from (tokens, logprobs or None, runs), bytes of their C types;
 * nothing of None. -1 with an exception set. */
static int take_before(PyObject *given, struct ms_rollout_sample *s)
{
    PyObject *tokens, *logprobs, *runs;

    if (given == Py_None)
        return 0;
    if (!PyTuple_Check(given) ||
        !PyArg_ParseTuple(given, "SOS", &tokens, &logprobs, &runs))
        return -1;
    s->tokens = (int32_t *)PyBytes_AsString(tokens);
    s->count = (size_t)PyBytes_Size(tokens) / sizeof *s->tokens;
    s->runs = (struct ms_rollout_run *)PyBytes_AsString(runs);
    s->run_count = (size_t)PyBytes_Size(runs) / sizeof *s->runs;
    if (logprobs == Py_None)
        return 0;
    s->logprobs = (float *)PyBytes_AsString(logprobs);
    if (!s->logprobs)
        return -1;
    if ((size_t)PyBytes_Size(logprobs) == s->count * sizeof *s->logprobs)
        return 0;
    PyErr_SetString(PyExc_ValueError, "logprobs that are not one for each token");
    return -1;
}

/* (key, prompt, sampling or None, samples, surplus, whether that is kept, prompt_tokens,
 * max_new_tokens, hint, session or 0, seconds or None, what its sample has already or None): the
 * group's id. */
PyObject *core_rollout_submit(PyObject *self, PyObject *args)
{
    struct ms_rollout *r = core_rollout_get(self);
    struct ms_rollout_submit s = {0};
    MS_CLEANUP(value_free) struct muster_value *prompt = NULL;
    MS_CLEANUP(value_free) struct muster_value *sampling = NULL;
    PyObject *prompt_object, *sampling_object, *seconds, *before_object;
    struct ms_rollout_sample before = {0};
    struct ms_error err = {0};
    unsigned long long key, session;
    uint64_t group = 0;
    int rc, keeps_surplus;

    if (!r ||
        !PyArg_ParseTuple(args,
                          "KOOIIpIIIKOO",
                          &key,
                          &prompt_object,
                          &sampling_object,
                          &s.samples,
                          &s.surplus,
                          &keeps_surplus,
                          &s.prompt_tokens,
                          &s.max_new_tokens,
                          &s.hint,
                          &session,
                          &seconds,
                          &before_object) ||
        take_before(before_object, &before) < 0 ||
        core_deadline(seconds, MS_NEVER, &s.deadline_ns) < 0)
        return NULL;
    prompt = value_of(prompt_object);
    if (!prompt)
        return NULL;
    if (sampling_object != Py_None && !(sampling = value_of(sampling_object)))
        return NULL;
    s.before = before_object == Py_None ? NULL : &before;
    s.keeps_surplus = keeps_surplus;
    s.key = key;
    s.prompt = prompt;
    s.sampling = sampling;
    s.session = session;
    s.replica = MS_NOWHERE;
    Py_BEGIN_ALLOW_THREADS;
    rc = ms_rollout_submit(r, &s, &group, &err);
    Py_END_ALLOW_THREADS;
    if (rc == -EINVAL)
        return PyErr_Format(PyExc_ValueError, "%s", err.text);
    if (rc == -ENOENT)
        return PyErr_Format(PyExc_LookupError, "%s", err.text);
    return rc < 0 ? core_raise(&err) : PyLong_FromUnsignedLongLong(group);
}

/* (key, turn): the id of a session. */
PyObject *core_rollout_session_open(PyObject *self, PyObject *args)
{
    struct ms_error err = {0};
    unsigned long long key;
    uint64_t id = 0;
    unsigned turn;
    int rc;

    if (!PyArg_ParseTuple(args, "KI", &key, &turn))
        return NULL;
    rc = ms_rollout_session_open(core_rollout_get(self), key, turn, &id, &err);
    return rc < 0 ? core_raise(&err) : PyLong_FromUnsignedLongLong(id);
}

/* (id): the replica that has its prefix, or None. LookupError: there is no such session. */
PyObject *core_rollout_session_replica(PyObject *self, PyObject *number)
{
    unsigned long long id = PyLong_AsUnsignedLongLong(number);
    uint32_t replica = MS_NOWHERE;
    int rc;

    if (PyErr_Occurred())
        return NULL;
    rc = ms_rollout_session_replica(core_rollout_get(self), id, &replica);
    if (rc < 0)
        return core_rollout_raise(rc, "session");
    return replica == MS_NOWHERE ? Py_NewRef(Py_None)
                                 : PyLong_FromUnsignedLong(replica);
}

static PyObject *one_or_none(int rc, struct ms_rollout_group *g, const char *what)
{
    if (rc == -EAGAIN)
        Py_RETURN_NONE;
    return rc < 0 ? core_rollout_raise(rc, what) : core_rollout_group(g);
}

/* Takes them. */
static PyObject *groups_list(struct ms_rollout_group **groups, unsigned long n)
{
    PyObject *list = PyList_New(0);

    for (unsigned long i = 0; i < n; i++)
        if (!list)
            ms_rollout_group_free(groups[i]);
        else if (!core_append(list, core_rollout_group(groups[i])))
            Py_CLEAR(list);
    return list;
}

/* False with an exception set. */
static bool is_batch(unsigned long groups)
{
    bool is_so = groups > 0 && groups <= GROUPS_MAX;

    if (!is_so)
        PyErr_Format(
            PyExc_ValueError, "groups: from 1 to %lu, not %lu", GROUPS_MAX, groups);
    return is_so;
}

/* (n): a list of n groups, or None: they are not there yet. */
PyObject *core_rollout_pull(PyObject *self, PyObject *number)
{
    struct ms_rollout *r = core_rollout_get(self);
    MS_CLEANUP(ms_cleanup_free) struct ms_rollout_group **out = NULL;
    unsigned long n = PyLong_AsUnsignedLong(number);
    int rc;

    if (PyErr_Occurred() || !is_batch(n))
        return NULL;
    out = calloc(n + 1, sizeof *out);
    if (!out)
        return PyErr_NoMemory();
    Py_BEGIN_ALLOW_THREADS;
    rc = ms_rollout_pull(r, (uint32_t)n, out);
    Py_END_ALLOW_THREADS;
    if (rc == -EAGAIN)
        Py_RETURN_NONE;
    return rc < 0 ? core_rollout_raise(rc, "groups") : groups_list(out, n);
}

/* (n): (batch, a list of n groups), or None. */
PyObject *core_rollout_lease(PyObject *self, PyObject *number)
{
    struct ms_rollout *r = core_rollout_get(self);
    MS_CLEANUP(ms_cleanup_free) struct ms_rollout_group **out = NULL;
    MS_CLEANUP(core_unref) PyObject *list = NULL;
    unsigned long n = PyLong_AsUnsignedLong(number);
    uint64_t batch = 0;
    int rc;

    if (PyErr_Occurred() || !is_batch(n))
        return NULL;
    out = calloc(n + 1, sizeof *out);
    if (!out)
        return PyErr_NoMemory();
    Py_BEGIN_ALLOW_THREADS;
    rc = ms_rollout_lease(r, (uint32_t)n, out, &batch);
    Py_END_ALLOW_THREADS;
    if (rc == -EAGAIN)
        Py_RETURN_NONE;
    if (rc < 0)
        return core_rollout_raise(rc, "groups");
    list = groups_list(out, n);
    if (list)
        return Py_BuildValue("(KO)", (unsigned long long)batch, list);
    ms_rollout_give_back(r, batch);
    return NULL;
}

PyObject *core_rollout_take(PyObject *self, PyObject *number)
{
    struct ms_rollout *r = core_rollout_get(self);
    unsigned long long id = PyLong_AsUnsignedLongLong(number);
    struct ms_rollout_group *g = NULL;
    int rc;

    if (PyErr_Occurred())
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    rc = ms_rollout_take(r, id, &g);
    Py_END_ALLOW_THREADS;
    return one_or_none(rc, g, "group");
}

#define NEXT(name)                                                                     \
    PyObject *core_rollout_##name(PyObject *self, PyObject *unused)                    \
    {                                                                                  \
        struct ms_rollout *r = core_rollout_get(self);                                 \
        struct ms_rollout_group *g = NULL;                                             \
        int rc;                                                                        \
                                                                                       \
        Py_BEGIN_ALLOW_THREADS;                                                        \
        rc = ms_rollout_##name(r, &g);                                                 \
        Py_END_ALLOW_THREADS;                                                          \
        return one_or_none(rc, g, #name);                                              \
    }
NEXT(take_dropped)
NEXT(judge)

PyObject *core_rollout_verdict(PyObject *self, PyObject *args)
{
    struct ms_rollout *r = core_rollout_get(self);
    unsigned long long id;
    int keep, rc;

    if (!PyArg_ParseTuple(args, "Kp", &id, &keep))
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    rc = ms_rollout_verdict(r, id, keep);
    Py_END_ALLOW_THREADS;
    if (rc == -ENOENT || rc == -EINVAL)
        Py_RETURN_NONE; /* it was cancelled while it was judged */
    return core_rollout_done(rc, "verdict");
}

PyObject *core_rollout_take_refill(PyObject *self, PyObject *unused)
{
    struct ms_rollout *r = core_rollout_get(self);

    return PyLong_FromUnsignedLong(ms_rollout_take_refill(r));
}

PyObject *core_rollout_cancel_rid(PyObject *self, PyObject *text)
{
    struct ms_rollout *r = core_rollout_get(self);
    const char *rid = PyUnicode_AsUTF8AndSize(text, NULL);

    return rid ? core_rollout_done(ms_rollout_cancel_rid(r, rid), rid) : NULL;
}

PyObject *core_rollout_rid(PyObject *self, PyObject *args)
{
    struct ms_rollout *r = core_rollout_get(self);
    char rid[MS_ROLLOUT_RID];
    unsigned long long group;
    unsigned seq;

    if (!PyArg_ParseTuple(args, "KI", &group, &seq))
        return NULL;
    if (ms_rollout_rid(r, group, seq, rid) < 0)
        return core_rollout_raise(-ENOENT, "group");
    return PyUnicode_FromString(rid);
}
