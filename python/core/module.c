/* module.c - the module muster._core, and what all its files use */
#include "store.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/name.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/syscall.h>

PyObject *core_dumps, *core_dumps_call, *core_dumps_alone, *core_loads,
    *core_make_error, *core_error;
PyObject *core_site;

/* How long the main thread waits before it looks whether a signal came just before. */
#define SIGNAL_SLICE_NS (100 * MS_NS_PER_MS)

PyObject *core_text(const char *text)
{
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

PyObject *core_exception_take(void)
{
    PyObject *type, *value, *traceback;

    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (value && traceback)
        PyException_SetTraceback(value, traceback);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return value;
}

int core_fail(PyObject *type, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    PyErr_FormatV(type, format, args);
    va_end(args);
    return -1;
}

int core_no_memory(void)
{
    PyErr_NoMemory();
    return -1;
}

PyObject *core_raise(const struct ms_error *err)
{
    PyObject *type = err->code == -EEXIST      ? PyExc_FileExistsError
                     : err->code == -ETIMEDOUT ? PyExc_TimeoutError
                     : core_error              ? core_error
                                               : PyExc_RuntimeError;

    return PyErr_Format(type, "%s", err->text);
}

int core_deadline(PyObject *seconds, int64_t none_ns, int64_t *deadline_ns)
{
    int64_t now_ns = ms_now_ns();
    double s;

    if (seconds == Py_None) {
        *deadline_ns = ms_deadline_ns(now_ns, none_ns);
        return 0;
    }
    s = PyFloat_AsDouble(seconds);
    if (s == -1.0 && PyErr_Occurred())
        return -1;
    if (isnan(s))
        return core_fail(PyExc_ValueError, "a timeout must be a number");
    *deadline_ns = ms_deadline_ns(now_ns, core_ns(s));
    return 0;
}

int64_t core_ns(double seconds)
{
    if (!(seconds > 0))
        return 0;
    return seconds > 1e9 ? MS_NEVER : (int64_t)(seconds * 1e9);
}

int64_t core_slice(int64_t until_ns)
{
    static _Thread_local int is_main = -1; /* not yet known */
    int64_t slice_ns;

    if (is_main < 0)
        is_main = (pid_t)syscall(SYS_gettid) == getpid();
    if (!is_main)
        return until_ns; /* signals are the main thread's */
    slice_ns = ms_now_ns() + SIGNAL_SLICE_NS;
    return slice_ns < until_ns ? slice_ns : until_ns;
}

PyObject *core_import(const char *module, const char *name)
{
    MS_CLEANUP(core_unref) PyObject *from = PyImport_ImportModule(module);

    return from ? PyObject_GetAttrString(from, name) : NULL;
}

bool core_append(PyObject *list, PyObject *item)
{
    MS_CLEANUP(core_unref) PyObject *owned = item;

    return owned && PyList_Append(list, owned) == 0;
}

PyObject *core_fs_list(char **texts, size_t count)
{
    PyObject *list = PyList_New(0);

    for (size_t i = 0; list && i < count; i++)
        if (!core_append(list, PyUnicode_DecodeFSDefault(texts[i])))
            Py_CLEAR(list);
    return list;
}

PyObject *core_number_list(const uint32_t *numbers, size_t count)
{
    PyObject *list = PyList_New(0);

    for (size_t i = 0; list && i < count; i++)
        if (!core_append(list, PyLong_FromUnsignedLong(numbers[i])))
            Py_CLEAR(list);
    return list;
}

static char *string_copy(PyObject *text)
{
    MS_CLEANUP(core_unref) PyObject *bytes = NULL;
    char *copy;

    if (!PyUnicode_Check(text))
        PyErr_SetString(PyExc_TypeError, "a list of strings is needed");
    else
        bytes = PyUnicode_EncodeFSDefault(text);
    copy = bytes ? strdup(PyBytes_AsString(bytes)) : NULL;
    if (bytes && !copy)
        PyErr_NoMemory();
    return copy;
}

char **core_strings(PyObject *list)
{
    Py_ssize_t n = PySequence_Size(list);
    char **out = n < 0 ? NULL : calloc((size_t)n + 1, sizeof *out);

    if (!out) {
        if (n >= 0)
            PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        MS_CLEANUP(core_unref) PyObject *item = PySequence_GetItem(list, i);

        out[i] = item ? string_copy(item) : NULL;
        if (!out[i]) {
            core_strings_free(out);
            return NULL;
        }
    }
    return out;
}

void core_strings_free(char **strings)
{
    for (size_t i = 0; strings && strings[i]; i++)
        free(strings[i]);
    free(strings);
}

int core_buffers_init(struct core_buffers *b, PyObject *list, int flags)
{
    Py_ssize_t count = PyList_Size(list);

    *b = (struct core_buffers){0};
    if (count < 0)
        return -1;
    b->at = calloc((size_t)count + 1, sizeof *b->at);
    if (!b->at)
        return core_no_memory();
    for (; b->count < count; b->count++) {
        PyObject *item = PyList_GetItem(list, b->count);

        if (!item || PyObject_GetBuffer(item, &b->at[b->count], flags) < 0)
            return -1;
    }
    return 0;
}

void core_buffers_finish(struct core_buffers *b)
{
    for (Py_ssize_t i = 0; i < b->count; i++)
        PyBuffer_Release(&b->at[i]);
    free(b->at);
}

static bool has_slot(const PyType_Slot *slots, int slot)
{
    for (; slots->slot; slots++)
        if (slots->slot == slot)
            return true;
    return false;
}

static int add_type(PyObject *module, struct core_type *t)
{
    unsigned gc = has_slot(t->slots, Py_tp_traverse) ? Py_TPFLAGS_HAVE_GC : 0;
    unsigned new =
        has_slot(t->slots, Py_tp_new) ? 0 : Py_TPFLAGS_DISALLOW_INSTANTIATION;
    PyType_Spec spec = {.name = t->name,
                        .basicsize = (int)t->size,
                        .flags = Py_TPFLAGS_DEFAULT | gc | new,
                        .slots = t->slots};
    PyObject *type = PyType_FromSpec(&spec);

    t->type = (PyTypeObject *)type;
    return type ? PyModule_AddObjectRef(module, strrchr(t->name, '.') + 1, type) : -1;
}

void core_object_free(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF((PyObject *)type);
}

/* What muster/__init__.py gives, by name. */
static const struct {
    const char *name;
    PyObject **slot;
} given[] = {
    {"dumps", &core_dumps},
    {"dumps_call", &core_dumps_call},
    {"dumps_alone", &core_dumps_alone},
    {"loads", &core_loads},
    {"make_error", &core_make_error},
    {"error", &core_error},
    {"tensor_of", &core_tensor_of},
    {"tensor", &core_tensor},
    {"site", &core_site},
};

static PyObject *setup(PyObject *self, PyObject *args, PyObject *kwargs)
{
    if (PyTuple_Size(args) || !kwargs || PyDict_Size(kwargs) != MS_COUNT(given))
        return PyErr_Format(PyExc_TypeError,
                            "setup takes all of its names, and no others");
    for (size_t i = 0; i < MS_COUNT(given); i++) {
        PyObject *value = PyDict_GetItemString(kwargs, given[i].name);
        PyObject *old = *given[i].slot;

        if (!value)
            return PyErr_Format(PyExc_TypeError, "setup: no %s", given[i].name);
        *given[i].slot = Py_NewRef(value);
        Py_XDECREF(old);
    }
    Py_RETURN_NONE;
}

/* (name): ValueError, unless an engine may be called so. */
static PyObject *check_engine_name(PyObject *self, PyObject *name)
{
    struct ms_error err = {0};
    Py_ssize_t len;
    const char *text = PyUnicode_AsUTF8AndSize(name, &len);

    if (!text && !PyErr_ExceptionMatches(PyExc_UnicodeError))
        return NULL;
    PyErr_Clear();
    if (!text) /* half of a pair */
        ms_error_set(&err, -EINVAL, "engine: the name is not UTF-8");
    else
        ms_title_check(text, (size_t)len, MS_ENGINE_NAME_MAX, "engine", &err);
    if (err.code)
        return PyErr_Format(PyExc_ValueError, "%s", err.text);
    Py_RETURN_NONE;
}

/* (seconds): as messages have a duration; 0 if it is not positive. */
static PyObject *ns(PyObject *self, PyObject *seconds)
{
    double s = PyFloat_AsDouble(seconds);

    return s == -1.0 && PyErr_Occurred() ? NULL : PyLong_FromLongLong(core_ns(s));
}

static PyMethodDef methods[] = {
    {"ns", ns, METH_O, NULL},
    {"ask_jobs", core_ask_jobs, METH_VARARGS, NULL},
    {"jobs_elsewhere", core_jobs_elsewhere, METH_NOARGS, NULL},
    {"check_engine_name", check_engine_name, METH_O, NULL},
    {"setup", (PyCFunction)(void (*)(void))setup, METH_VARARGS | METH_KEYWORDS, NULL},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {.m_base = PyModuleDef_HEAD_INIT,
                                        .m_name = "muster._core",
                                        .m_size = -1,
                                        .m_methods = methods};

PyMODINIT_FUNC PyInit__core(void);

static int add_all(PyObject *module)
{
    static int (*const setups[])(PyObject *) = {core_payload_setup,
                                                core_operation_setup,
                                                core_serve_setup,
                                                core_constants_setup,
                                                core_rollout_setup};
    struct core_type *const types[] = {&core_memory,
                                       &core_call,
                                       &core_inbox,
                                       &core_peer,
                                       &core_head,
                                       &core_operation,
                                       &core_host,
                                       &core_request,
                                       &core_rows,
                                       &core_held,
                                       &core_staleness,
                                       &core_rollout,
                                       &core_replay};
    PyMethodDef *const functions[] = {core_call_functions,
                                      core_call_many_functions,
                                      core_dispatch_functions,
                                      core_head_functions,
                                      core_mapping_functions,
                                      core_memory_functions,
                                      core_piece_functions,
                                      core_role_functions,
                                      core_rows_functions,
                                      core_step_functions,
                                      core_store_functions,
                                      core_worker_functions,
                                      core_zygote_functions};
    int rc = PyModule_AddStringConstant(module, "version", MS_VERSION);

    for (size_t i = 0; rc == 0 && i < MS_COUNT(setups); i++)
        rc = setups[i](module);
    for (size_t i = 0; rc == 0 && i < MS_COUNT(types); i++)
        rc = add_type(module, types[i]);
    for (size_t i = 0; rc == 0 && i < MS_COUNT(functions); i++)
        rc = PyModule_AddFunctions(module, functions[i]);
    return rc;
}

PyMODINIT_FUNC PyInit__core(void)
{
    PyObject *module = PyModule_Create(&definition);

    if (module && add_all(module) < 0)
        Py_CLEAR(module);
    return module;
}
