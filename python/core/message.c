/* message.c - control messages as dicts, and back
 *
 * Walks the descriptors of proto/muster.proto, so that a new message needs nothing here. A
 * dict has the fields by their names; what it leaves out has its default, what is no field is
 * a TypeError. A value of an enumeration is its name in lower case, without the prefix that all
 * of them have: "waiting" for GROUP_WAITING. Of a oneof only messages are known.
 */
#include "core.h"

#include "base/cleanup.h"
#include "head/rest/message_json.h"
#include "message.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

/* ---- enumerations ---------------------------------------------------------------- */

/* How much of each name is the prefix: of "GROUP_WAITING" and its like "GROUP_". */
static size_t prefix_len(const ProtobufCEnumDescriptor *e)
{
    const char *first = e->values[0].name, *end = strchr(first, '_');
    size_t len = end ? (size_t)(end - first) + 1 : 0;

    for (unsigned i = 1; i < e->n_values; i++)
        if (strncmp(e->values[i].name, first, len) != 0)
            return 0;
    return len;
}

static PyObject *enum_name(const ProtobufCEnumDescriptor *e, int number)
{
    const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(e, number);
    char name[64];
    size_t len = 0;

    if (!v) /* of a newer peer */
        return PyUnicode_FromFormat("%d", number);
    for (const char *at = v->name + prefix_len(e); *at && len < sizeof name; at++)
        name[len++] = (char)tolower((unsigned char)*at);
    return PyUnicode_FromStringAndSize(name, (Py_ssize_t)len);
}

static PyObject *enum_names(const ProtobufCEnumDescriptor *e)
{
    MS_CLEANUP(core_unref) PyObject *names = PyList_New(0);
    MS_CLEANUP(core_unref) PyObject *comma = PyUnicode_FromString(", ");

    for (unsigned i = 0; names && i < e->n_values; i++)
        if (!core_append(names, enum_name(e, e->values[i].value)))
            return NULL;
    return names && comma ? PyUnicode_Join(comma, names) : NULL;
}

static int set_enum(const ProtobufCFieldDescriptor *f, PyObject *value, void *at)
{
    const ProtobufCEnumDescriptor *e = f->descriptor;
    const char *name = PyUnicode_AsUTF8AndSize(value, NULL);
    MS_CLEANUP(core_unref) PyObject *names = NULL;

    for (unsigned i = 0; name && i < e->n_values; i++)
        if (strcasecmp(e->values[i].name + prefix_len(e), name) == 0) {
            *(int32_t *)at = e->values[i].value;
            return 0;
        }
    names = name ? enum_names(e) : NULL;
    if (names)
        PyErr_Format(
            PyExc_ValueError, "%s: must be one of %U: %R", f->name, names, value);
    return -1;
}

/* ---- from Python ----------------------------------------------------------------- */

static int set_text(PyObject *value, void *at)
{
    Py_ssize_t len;
    const char *text = PyUnicode_AsUTF8AndSize(value, &len);
    char *copy;

    if (!text)
        return -1;
    if (strlen(text) != (size_t)len)
        return core_fail(PyExc_ValueError, "a text with a NUL in it");
    if (len == 0 && *(char **)at)
        return 0; /* it has protobuf's empty one */
    copy = strdup(text);
    if (!copy)
        return core_no_memory();
    *(char **)at = copy;
    return 0;
}

static int set_bytes(PyObject *value, void *at)
{
    MS_CLEANUP(PyBuffer_Release) Py_buffer view = {0};
    ProtobufCBinaryData *out = at;

    if (PyObject_GetBuffer(value, &view, PyBUF_SIMPLE) < 0)
        return -1;
    out->data = ms_bytes_copy(view.buf, (size_t)view.len);
    out->len = (size_t)view.len;
    return out->data ? 0 : core_no_memory();
}

static int set_number(const ProtobufCFieldDescriptor *f, PyObject *value, void *at)
{
    switch (f->type) {
    case PROTOBUF_C_TYPE_BOOL:
        *(protobuf_c_boolean *)at = PyObject_IsTrue(value) == 1;
        break;
    case PROTOBUF_C_TYPE_ENUM:
        return set_enum(f, value, at);
    case PROTOBUF_C_TYPE_INT32:
        *(int32_t *)at = (int32_t)PyLong_AsLong(value);
        break;
    case PROTOBUF_C_TYPE_UINT32:
        *(uint32_t *)at = (uint32_t)PyLong_AsUnsignedLong(value);
        break;
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_INT64:
        *(int64_t *)at = PyLong_AsLongLong(value);
        break;
    case PROTOBUF_C_TYPE_UINT64:
        *(uint64_t *)at = PyLong_AsUnsignedLongLong(value);
        break;
    default:
        PyErr_Format(PyExc_TypeError, "%s: a field of another kind", f->name);
    }
    return PyErr_Occurred() ? -1 : 0;
}

static int set_value(const ProtobufCFieldDescriptor *f, PyObject *value, void *at)
{
    if (f->type == PROTOBUF_C_TYPE_STRING)
        return set_text(value, at);
    if (f->type == PROTOBUF_C_TYPE_BYTES)
        return set_bytes(value, at);
    if (f->type != PROTOBUF_C_TYPE_MESSAGE)
        return set_number(f, value, at);
    *(ProtobufCMessage **)at = core_message_parse(value, f->descriptor);
    return *(ProtobufCMessage **)at ? 0 : -1;
}

static int
set_repeated(const ProtobufCFieldDescriptor *f, PyObject *list, uint8_t *message)
{
    size_t *count = (size_t *)(void *)(message + f->quantifier_offset);
    uint8_t **at = (uint8_t **)(void *)(message + f->offset);
    Py_ssize_t n = PySequence_Size(list);

    if (n < 0)
        return -1;
    *at = calloc((size_t)n + 1, ms_message_field_size(f));
    if (!*at)
        return core_no_memory();
    for (Py_ssize_t i = 0; i < n; i++) {
        MS_CLEANUP(core_unref) PyObject *item = PySequence_GetItem(list, i);

        if (!item || set_value(f, item, *at + (size_t)i * ms_message_field_size(f)) < 0)
            return -1;
        (*count)++;
    }
    return 0;
}

static int
set_field(const ProtobufCFieldDescriptor *f, PyObject *value, uint8_t *message)
{
    if (value == Py_None)
        return 0;
    if (f->label == PROTOBUF_C_LABEL_REPEATED)
        return set_repeated(f, value, message);
    if (set_value(f, value, message + f->offset) < 0)
        return -1;
    if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)
        *(uint32_t *)(void *)(message + f->quantifier_offset) = f->id;
    return 0;
}

static int set_named(PyObject *key, PyObject *value, ProtobufCMessage *m)
{
    const char *name = PyUnicode_AsUTF8AndSize(key, NULL);
    const ProtobufCFieldDescriptor *f =
        name ? protobuf_c_message_descriptor_get_field_by_name(m->descriptor, name)
             : NULL;

    if (name && !f)
        PyErr_Format(PyExc_TypeError, "%s has no field %s", m->descriptor->name, name);
    return f ? set_field(f, value, (uint8_t *)m) : -1;
}

ProtobufCMessage *core_message_parse(PyObject *dict,
                                     const ProtobufCMessageDescriptor *d)
{
    ProtobufCMessage *m;
    PyObject *key, *value;
    Py_ssize_t at = 0;

    if (!PyDict_Check(dict)) {
        PyErr_Format(PyExc_TypeError, "%s is made of a dict", d->name);
        return NULL;
    }
    m = ms_proto_create(d);
    if (!m)
        PyErr_NoMemory();
    while (m && PyDict_Next(dict, &at, &key, &value))
        if (set_named(key, value, m) < 0) {
            protobuf_c_message_free_unpacked(m, NULL);
            return NULL;
        }
    return m;
}

/* ---- to Python ------------------------------------------------------------------- */

static PyObject *get_value(const ProtobufCFieldDescriptor *f, const void *at)
{
    const ProtobufCBinaryData *bytes = at;

    switch (f->type) {
    case PROTOBUF_C_TYPE_STRING:
        return core_text(*(const char *const *)at);
    case PROTOBUF_C_TYPE_BYTES:
        return PyBytes_FromStringAndSize((const char *)bytes->data,
                                         (Py_ssize_t)bytes->len);
    case PROTOBUF_C_TYPE_MESSAGE:
        return *(ProtobufCMessage *const *)at
                   ? core_message_dict(*(ProtobufCMessage *const *)at)
                   : Py_NewRef(Py_None);
    case PROTOBUF_C_TYPE_BOOL:
        return PyBool_FromLong(*(const protobuf_c_boolean *)at);
    case PROTOBUF_C_TYPE_ENUM:
        return enum_name(f->descriptor, *(const int32_t *)at);
    case PROTOBUF_C_TYPE_INT32:
        return PyLong_FromLong(*(const int32_t *)at);
    case PROTOBUF_C_TYPE_UINT32:
        return PyLong_FromUnsignedLong(*(const uint32_t *)at);
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_INT64:
        return PyLong_FromLongLong(*(const int64_t *)at);
    case PROTOBUF_C_TYPE_UINT64:
        return PyLong_FromUnsignedLongLong(*(const uint64_t *)at);
    default:
        return PyErr_Format(PyExc_TypeError, "%s: a field of another kind", f->name);
    }
}

static PyObject *get_repeated(const ProtobufCFieldDescriptor *f, const uint8_t *message)
{
    size_t count = *(const size_t *)(const void *)(message + f->quantifier_offset);
    const uint8_t *at = *(uint8_t *const *)(const void *)(message + f->offset);
    PyObject *list = PyList_New(0);

    for (size_t i = 0; list && i < count; i++)
        if (!core_append(list, get_value(f, at + i * ms_message_field_size(f))))
            Py_CLEAR(list);
    return list;
}

static PyObject *get_field(const ProtobufCFieldDescriptor *f, const uint8_t *message)
{
    if (f->label == PROTOBUF_C_LABEL_REPEATED)
        return get_repeated(f, message);
    if ((f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) &&
        *(const uint32_t *)(const void *)(message + f->quantifier_offset) != f->id)
        return Py_NewRef(Py_None);
    return get_value(f, message + f->offset);
}

/* The names of a message's fields as str, made once; NULL with an exception set. */
static PyObject **names_of(const ProtobufCMessageDescriptor *d)
{
    static struct {
        const ProtobufCMessageDescriptor *of;
        PyObject **names;
    } known[256]; /* more than there are messages */
    size_t at = (uintptr_t)d / sizeof *d % MS_COUNT(known);

    while (known[at].of && known[at].of != d)
        at = (at + 1) % MS_COUNT(known);
    if (known[at].of)
        return known[at].names;
    known[at].names = calloc(d->n_fields + (size_t)1, sizeof(PyObject *));
    if (!known[at].names)
        return (PyObject **)PyErr_NoMemory();
    for (unsigned i = 0; i < d->n_fields; i++)
        known[at].names[i] = PyUnicode_InternFromString(d->fields[i].name);
    known[at].of = d;
    return known[at].names;
}

PyObject *core_message_dict(const ProtobufCMessage *m)
{
    PyObject **names = names_of(m->descriptor);
    PyObject *dict = names ? PyDict_New() : NULL;

    for (unsigned i = 0; dict && i < m->descriptor->n_fields; i++) {
        MS_CLEANUP(core_unref)
        PyObject *value = get_field(&m->descriptor->fields[i], (const uint8_t *)m);

        if (!value || PyDict_SetItem(dict, names[i], value) < 0)
            Py_CLEAR(dict);
    }
    return dict;
}

PyObject *core_message_field(const ProtobufCMessage *m, const char *name)
{
    return get_field(
        protobuf_c_message_descriptor_get_field_by_name(m->descriptor, name),
        (const uint8_t *)m);
}
