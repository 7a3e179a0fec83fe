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

static PyObject *raise_text(PyObject *type, const char *text)
{
    PyObject *message = core_text(text);

    if (message)
        PyErr_SetObject(type, message);
    Py_XDECREF(message);
    return NULL;
}

PyObject *core_raise(const struct ms_error *err)
{
    PyObject *type = err->code == -EEXIST      ? PyExc_FileExistsError
                     : err->code == -ETIMEDOUT ? PyExc_TimeoutError
                     : core_error              ? core_error
                                               : PyExc_RuntimeError;

    return raise_text(type, err->text);
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
    if (isnan(s)) {
        PyErr_SetString(PyExc_ValueError, "a timeout must be a number");
        return -1;
    }
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

bool core_append(PyObject *list, PyObject *item)
{
    bool ok = item && PyList_Append(list, item) == 0;

    Py_XDECREF(item);
    return ok;
}

PyObject *core_str_list(char **texts, size_t count)
{
    PyObject *list = PyList_New(0);

    for (size_t i = 0; list && i < count; i++)
        if (!core_append(list, core_text(texts[i])))
            Py_CLEAR(list);
    return list;
}

static char *string_copy(PyObject *text)
{
    PyObject *bytes = PyUnicode_Check(text) ? PyUnicode_EncodeFSDefault(text) : NULL;
    char *copy = NULL;

    if (bytes)
        copy = strdup(PyBytes_AsString(bytes));
    else if (!PyErr_Occurred())
        PyErr_SetString(PyExc_TypeError, "a list of strings is needed");
    if (bytes && !copy)
        PyErr_NoMemory();
    Py_XDECREF(bytes);
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
        PyObject *item = PySequence_GetItem(list, i);

        out[i] = item ? string_copy(item) : NULL;
        Py_XDECREF(item);
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

static bool has_slot(const PyType_Slot *slots, int slot)
{
    for (; slots->slot; slots++)
        if (slots->slot == slot)
            return true;
    return false;
}

PyTypeObject *
core_type(PyObject *module, const char *name, size_t size, PyType_Slot *slots)
{
    PyType_Spec spec = {
        .name = name,
        .basicsize = (int)size,
        .flags = Py_TPFLAGS_DEFAULT |
                 (has_slot(slots, Py_tp_traverse) ? Py_TPFLAGS_HAVE_GC : 0) |
                 (has_slot(slots, Py_tp_new) ? 0 : Py_TPFLAGS_DISALLOW_INSTANTIATION),
        .slots = slots};
    PyObject *type = PyType_FromSpec(&spec);

    if (type && PyModule_AddObjectRef(module, strrchr(name, '.') + 1, type) < 0)
        Py_CLEAR(type);
    return (PyTypeObject *)type;
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
    (void)self;
    if (PyTuple_Size(args) || !kwargs || PyDict_Size(kwargs) != MS_COUNT(given)) {
        PyErr_SetString(PyExc_TypeError, "setup takes all of its names, and no others");
        return NULL;
    }
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

    (void)self;
    if (!text && !PyErr_ExceptionMatches(PyExc_UnicodeError))
        return NULL;
    PyErr_Clear();
    if (!text) /* half of a pair */
        ms_error_set(&err, -EINVAL, "engine: the name is not UTF-8");
    else
        ms_title_check(text, (size_t)len, MS_ENGINE_NAME_MAX, "engine", &err);
    if (!err.code)
        Py_RETURN_NONE;
    PyErr_SetString(PyExc_ValueError, err.text);
    return NULL;
}

/* (seconds): as messages have a duration; 0 if it is not positive. */
static PyObject *ns(PyObject *self, PyObject *seconds)
{
    double s = PyFloat_AsDouble(seconds);

    (void)self;
    return s == -1.0 && PyErr_Occurred() ? NULL : PyLong_FromLongLong(core_ns(s));
}

static PyMethodDef methods[] = {
    {"ns", ns, METH_O, NULL},
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
                                                core_call_setup,
                                                core_peer_setup,
                                                core_head_setup,
                                                core_operation_setup,
                                                core_step_setup,
                                                core_worker_setup,
                                                core_rows_setup,
                                                core_store_setup,
                                                core_piece_setup,
                                                core_private_map_setup,
                                                core_spare_setup,
                                                core_constants_setup};
    PyMethodDef *const functions[] = {core_zygote_methods,
                                      core_mapping_methods,
                                      core_call_many_methods,
                                      core_step_methods,
                                      core_dispatch_methods,
                                      core_head_functions};
    int rc = PyModule_AddStringConstant(module, "version", MS_VERSION);

    for (size_t i = 0; rc == 0 && i < MS_COUNT(setups); i++)
        rc = setups[i](module);
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
