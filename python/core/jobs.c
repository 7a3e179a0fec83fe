/* jobs.c - questions to the head that hosts this user's jobs, without a session
 *
 * `ask_jobs(verb, fields, timeout)` asks by the name of a field in DriverToHead and a dict
 * of its fields; a change is made once (session/tool.h). The answer is JSON, as the command line prints it. `jobs_elsewhere()` has the
 * names of those whose head is on other machines.
 */
#include "core.h"
#include "message.h"

#include "head/rest/message_json.h"
#include "session/jobs_elsewhere.h"
#include "session/tool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static PyObject *print(const ProtobufCMessage *m)
{
    json_t *object = ms_message_print(m);
    char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;
    PyObject *out = text ? PyUnicode_FromString(text) : PyErr_NoMemory();

    free(text);
    json_decref(object);
    return out;
}

/* The head of this job; without a name the user's. */
static int ask(const char *job,
               Muster__DriverToHead__BodyCase what,
               const ProtobufCMessage *want,
               int64_t timeout_ns,
               ProtobufCMessage **answer,
               struct ms_error *err)
{
    struct ms_jobs_absent absent = {0};
    struct ms_jobs_head at;
    struct ms_tool tool = {.at = {at.address, at.secret, MS_TLS_AUTO},
                           .is_patient = true};
    int rc = ms_jobs_head_find(job, &at, &absent, err);

    if (rc == 0)
        rc = ms_tool_ask(&tool, what, want, timeout_ns, answer, err);
    ms_tool_leave(&tool);
    explicit_bzero(&at, sizeof at);
    return rc;
}

PyObject *core_ask_jobs(PyObject *self, PyObject *args)
{
    const ProtobufCFieldDescriptor *f;
    struct ms_error err = {0};
    ProtobufCMessage *want, *answer = NULL;
    PyObject *fields, *out, *name;
    const char *verb, *job;
    double timeout;
    int rc;

    (void)self;
    if (!PyArg_ParseTuple(args, "sO!d", &verb, &PyDict_Type, &fields, &timeout))
        return NULL;
    f = protobuf_c_message_descriptor_get_field_by_name(
        &muster__driver_to_head__descriptor, verb);
    if (!f || f->type != PROTOBUF_C_TYPE_MESSAGE) {
        PyErr_Format(PyExc_TypeError, "a head cannot be asked for %s", verb);
        return NULL;
    }
    want = core_message_parse(fields, f->descriptor);
    if (!want)
        return NULL;
    name = PyDict_GetItemString(fields, "name"); /* a text: it was parsed */
    job = name ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
    Py_BEGIN_ALLOW_THREADS;
    rc = ask(job,
             (Muster__DriverToHead__BodyCase)f->id,
             want,
             core_ns(timeout),
             &answer,
             &err);
    Py_END_ALLOW_THREADS;
    if (rc == -EREMOTEIO) /* a refusal is a MusterError, whatever its code */
        err.code = rc;
    protobuf_c_message_free_unpacked(want, NULL);
    out = rc < 0 ? core_raise(&err) : print(answer);
    protobuf_c_message_free_unpacked(answer, NULL);
    return out;
}

PyObject *core_jobs_elsewhere(PyObject *self, PyObject *unused)
{
    struct ms_job_elsewhere *all = NULL;
    struct ms_error err = {0};
    int count = ms_jobs_elsewhere_list(&all, &err);
    PyObject *out = count < 0 ? core_raise(&err) : PyList_New(0);

    (void)self;
    (void)unused;
    for (int i = 0; out && i < count; i++) {
        PyObject *name = PyUnicode_FromString(all[i].job);

        if (!name || PyList_Append(out, name) < 0)
            Py_CLEAR(out);
        Py_XDECREF(name);
    }
    if (all)
        explicit_bzero(all, (size_t)(count > 0 ? count : 0) * sizeof *all);
    free(all);
    return out;
}
