/* role.c - what a driver says of a role, made into a spec by the same rules as in C */
#include "core.h"
#include "message.h"

#include "base/cleanup.h"
#include "cluster/spec_role.h"

/* What a role borrows. */
struct words {
    char **env, **preload, **python, **command;
    json_t *told;
};

static void words_finish(struct words *w)
{
    core_strings_free(w->env);
    core_strings_free(w->preload);
    core_strings_free(w->python);
    core_strings_free(w->command);
    json_decref(w->told);
}

static const char *const *borrowed(char **texts)
{
    return (const char *const *)texts;
}

/* {name: size}; NULL with an exception set. */
static json_t *mesh_json(PyObject *mesh)
{
    json_t *sizes = json_object();
    PyObject *name, *size;
    Py_ssize_t at = 0;

    while (sizes && PyDict_Next(mesh, &at, &name, &size)) {
        const char *key = PyUnicode_AsUTF8AndSize(name, NULL);

        if (key)
            json_object_set_new(sizes, key, json_integer(PyLong_AsLongLong(size)));
        if (PyErr_Occurred()) {
            json_decref(sizes);
            return NULL;
        }
    }
    return sizes ? sizes : (json_t *)PyErr_NoMemory();
}

/* As a file would say it. */
static int tell(struct words *w, PyObject *mesh, const char *visible, int http_open)
{
    json_t *sizes = mesh_json(mesh);

    if (!sizes)
        return -1;
    w->told = json_pack(
        "{s:o, s:s, s:b}", "mesh", sizes, "visible", visible, "http_open", http_open);
    if (w->told)
        return 0;
    PyErr_NoMemory();
    return -1;
}

/* start: "fork", "exec" or a command. */
static int take_start(struct ms_spec_role *r, struct words *w, PyObject *start)
{
    const char *how;

    if (!PyUnicode_Check(start)) {
        w->command = core_strings(start);
        r->command = borrowed(w->command);
        return w->command ? 0 : -1;
    }
    how = PyUnicode_AsUTF8AndSize(start, NULL);
    r->is_fresh = how && strcmp(how, "exec") == 0;
    return how ? 0 : -1;
}

static PyObject *build(const struct ms_spec_role *r)
{
    struct ms_error err = {0};
    Muster__ClusterSpec *spec = ms_spec_role_build(r, &err);
    PyObject *dict = spec ? core_message_dict(&spec->base) : core_raise(&err);

    muster__cluster_spec__free_unpacked(spec, NULL);
    return dict;
}

/* All but its places, its steps and what drivers tell each other. */
static PyObject *role_spec(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"name",
                                        "worker_cls",
                                        "start",
                                        "env",
                                        "preload",
                                        "python",
                                        "mesh",
                                        "visible",
                                        "memory",
                                        "working_dir",
                                        "http_open",
                                        "cpu_milli",
                                        "step_ns",
                                        "detached",
                                        NULL};
    MS_CLEANUP(words_finish) struct words w = {0};
    struct ms_spec_role r = {.brings_step = true};
    PyObject *start, *env, *preload, *python, *mesh;
    unsigned long long memory, cpu_milli, step_ns;
    int http_open, detached;
    const char *visible;

    if (!PyArg_ParseTupleAndKeywords(args,
                                     kwargs,
                                     "$ssOO!O!O!O!sKspKKp",
                                     CORE_NAMES(names),
                                     &r.name,
                                     &r.worker_cls,
                                     &start,
                                     &PyList_Type,
                                     &env,
                                     &PyList_Type,
                                     &preload,
                                     &PyList_Type,
                                     &python,
                                     &PyDict_Type,
                                     &mesh,
                                     &visible,
                                     &memory,
                                     &r.working_dir,
                                     &http_open,
                                     &cpu_milli,
                                     &step_ns,
                                     &detached))
        return NULL;
    if (cpu_milli > UINT32_MAX)
        return PyErr_Format(
            PyExc_ValueError, "num_cpus: at most %u", UINT32_MAX / 1000);
    if (tell(&w, mesh, visible, http_open) < 0 || take_start(&r, &w, start) < 0 ||
        !(w.env = core_strings(env)) || !(w.preload = core_strings(preload)) ||
        !(w.python = core_strings(python)))
        return NULL;
    r.env = borrowed(w.env);
    r.preload = borrowed(w.preload);
    r.python = borrowed(w.python);
    r.told = w.told;
    r.memory = memory;
    r.cpu_milli = (uint32_t)cpu_milli;
    r.step_timeout_ns = step_ns;
    r.detached = detached;
    return build(&r);
}

PyMethodDef core_role_functions[] = {{"role_spec",
                                      (PyCFunction)(void (*)(void))role_spec,
                                      METH_VARARGS | METH_KEYWORDS,
                                      NULL},
                                     {NULL, NULL, 0, NULL}};
