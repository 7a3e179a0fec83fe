/* constants.c - numbers that C decides, as constants of the module */
#include "base/limits.h"
#include "core.h"
#include "generate/sessions.h"
#include "muster/value.h"
#include "proto/muster.pb-c.h"
#include "store/payload.h"
#include "wire/frame.h"

static const struct {
    const char *name;
    long value;
} numbers[] = {
    {"OP_CONFIGURE", MS_OP_CONFIGURE},
    {"OP_SET_ENV", MS_OP_SET_ENV},
    {"OP_CREATE_ENGINE", MS_OP_CREATE_ENGINE},
    {"OP_DESTROY_ENGINE", MS_OP_DESTROY_ENGINE},
    {"OP_LOOK", MS_OP_LOOK},
    {"OP_FINISH", MS_OP_FINISH},
    {"OP_HTTP_CONFIGURE", MS_OP_HTTP_CONFIGURE},
    {"OP_HTTP_SET_ENV", MS_OP_HTTP_SET_ENV},
    {"OP_HTTP_CREATE_ENGINE", MS_OP_HTTP_CREATE_ENGINE},
    {"OP_HTTP_CALL", MS_OP_HTTP_CALL},
    {"CODEC_BYTES", MS_CODEC_BYTES},
    {"CODEC_PICKLE", MS_CODEC_PICKLE},
    {"CODEC_PLAIN", MS_CODEC_PLAIN},
    {"RAISED", MUSTER__FAILURE__KIND__RAISED},
    {"NO_ENGINE", MUSTER__FAILURE__KIND__NO_ENGINE},
    {"NO_METHOD", MUSTER__FAILURE__KIND__NO_METHOD},
    {"CANCELLED", MUSTER__FAILURE__KIND__CANCELLED},
    {"BAD_ARGUMENT", MUSTER__FAILURE__KIND__BAD_ARGUMENT},
    {"BAD_RESULT", MUSTER__FAILURE__KIND__BAD_RESULT},
    {"META_MAX", (long)MS_META_MAX},
    {"NAME_MAX", (long)MS_NAME_MAX},
    {"KV_VALUE_MAX", (long)MS_KV_VALUE_MAX},
    {"PAYLOAD_BUFFER_MIN", (long)MS_PAYLOAD_BUFFER_MIN},
    {"PAYLOAD_ARRAY_MIN", (long)MS_PAYLOAD_ARRAY_MIN},
    {"PAYLOAD_MATES_MAX", (long)MS_PAYLOAD_MATES_MAX},
};

static const struct {
    const char *name;
    int64_t ns;
} times[] = {
    {"ANSWER_S", MS_ANSWER_NS},
    {"HEAD_ANSWER_S", MS_LINK_GRACE_NS},
    {"STOP_GRACE_S", MS_STOP_GRACE_NS},
    {"HOLD_MAX_S", MS_HOLD_MAX_NS},
    {"WAIT_S", MS_CALL_TIMEOUT_NS},
    {"SESSION_TTL_S", MS_GEN_SESSION_TTL_NS},
};

/* The names of the types of tensors, by their codes in plain data. */
static PyObject *dtypes(void)
{
    PyObject *names = PyList_New(0);

    for (int code = 0; names && code <= MUSTER_COMPLEX128; code++)
        if (!core_append(names, core_text(code ? muster_dtype_name(code) : "")))
            Py_CLEAR(names);
    return names;
}

int core_constants_setup(PyObject *module)
{
    int rc = PyModule_AddObject(module, "DTYPES", dtypes());

    for (size_t i = 0; rc == 0 && i < sizeof numbers / sizeof *numbers; i++)
        rc = PyModule_AddIntConstant(module, numbers[i].name, numbers[i].value);
    for (size_t i = 0; rc == 0 && i < sizeof times / sizeof *times; i++)
        rc = PyModule_AddObject(
            module, times[i].name, PyFloat_FromDouble((double)times[i].ns / 1e9));
    return rc;
}
