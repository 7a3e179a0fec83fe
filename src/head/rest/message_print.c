/* message_print.c - any message as JSON */
#include "head/rest/message_json.h"

#include "base/clock.h"
#include "base/json.h"
#include "io/base64.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXACT_MAX ((int64_t)1 << 53) /* from here on readers round */

/* ---- fields ---------------------------------------------------------------------- */

bool ms_message_field_is_time(const ProtobufCFieldDescriptor *f)
{
    size_t len = strlen(f->name);

    return f->type == PROTOBUF_C_TYPE_UINT64 && len > 3 &&
           strcmp(f->name + len - 3, "_ns") == 0;
}

size_t ms_message_field_name_len(const ProtobufCFieldDescriptor *f)
{
    return strlen(f->name) - (ms_message_field_is_time(f) ? 3 : 0);
}

const ProtobufCFieldDescriptor *
ms_message_field_find(const ProtobufCMessageDescriptor *d, const char *name)
{
    for (unsigned i = 0; i < d->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &d->fields[i];

        if (strlen(name) == ms_message_field_name_len(f) &&
            strncmp(name, f->name, strlen(name)) == 0)
            return f;
    }
    return NULL;
}

size_t ms_message_field_size(const ProtobufCFieldDescriptor *f)
{
    switch (f->type) {
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        return sizeof(uint64_t);
    case PROTOBUF_C_TYPE_DOUBLE:
        return sizeof(double);
    case PROTOBUF_C_TYPE_BOOL:
        return sizeof(protobuf_c_boolean);
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE:
        return sizeof(void *);
    case PROTOBUF_C_TYPE_BYTES:
        return sizeof(ProtobufCBinaryData);
    default:
        return sizeof(uint32_t);
    }
}

/* ---- values ---------------------------------------------------------------------- */

static json_t *print_signed(int64_t n)
{
    char digits[24];

    if (n < EXACT_MAX && n > -EXACT_MAX)
        return json_integer(n);
    snprintf(digits, sizeof digits, "%" PRId64, n);
    return json_string(digits);
}

static json_t *print_unsigned(uint64_t n)
{
    char digits[24];

    if (n < (uint64_t)EXACT_MAX)
        return json_integer((json_int_t)n);
    snprintf(digits, sizeof digits, "%" PRIu64, n);
    return json_string(digits);
}

static json_t *print_bytes(const ProtobufCBinaryData *b)
{
    char *text = NULL;
    size_t len = 0;
    json_t *out;

    if (ms_base64_encode(b->data ? b->data : (const uint8_t *)"", b->len, &text, &len))
        return NULL;
    out = json_stringn(text, len);
    free(text);
    return out;
}

static json_t *print_enum(const ProtobufCEnumDescriptor *d, int n)
{
    const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(d, n);

    return v ? json_string(v->name) : json_integer(n); /* of a newer version */
}

static json_t *print_value(const ProtobufCFieldDescriptor *f, const void *at)
{
    switch (f->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
        return json_integer(*(const int32_t *)at);
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        return json_integer(*(const uint32_t *)at);
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        return print_signed(*(const int64_t *)at);
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        return ms_message_field_is_time(f)
                   ? json_real((double)*(const uint64_t *)at / (double)MS_NS_PER_S)
                   : print_unsigned(*(const uint64_t *)at);
    case PROTOBUF_C_TYPE_FLOAT:
        return json_real((double)*(const float *)at);
    case PROTOBUF_C_TYPE_DOUBLE:
        return json_real(*(const double *)at);
    case PROTOBUF_C_TYPE_BOOL:
        return json_boolean(*(const protobuf_c_boolean *)at);
    case PROTOBUF_C_TYPE_ENUM:
        return print_enum(f->descriptor, *(const int *)at);
    case PROTOBUF_C_TYPE_STRING:
        return ms_json_string(*(const char *const *)at);
    case PROTOBUF_C_TYPE_BYTES:
        return print_bytes(at);
    case PROTOBUF_C_TYPE_MESSAGE:
        return ms_message_print(*(const ProtobufCMessage *const *)at);
    }
    return NULL;
}

static json_t *print_some(const ProtobufCMessage *m, const char **fields);

/* `only`: of a message these fields. */
static json_t *
print_one(const ProtobufCFieldDescriptor *f, const void *at, const char *only)
{
    return only ? print_some(*(const ProtobufCMessage *const *)at, &only)
                : print_value(f, at);
}

static json_t *print_list(const ProtobufCFieldDescriptor *f,
                          const char *at,
                          size_t count,
                          const char *only)
{
    json_t *list = json_array();

    for (size_t i = 0; i < count && list; i++)
        if (json_array_append_new(
                list, print_one(f, at + i * ms_message_field_size(f), only)) < 0) {
            json_decref(list);
            list = NULL;
        }
    return list;
}

/* ---- messages -------------------------------------------------------------------- */

/* One of several that is not there, or a message that is absent. */
static bool
is_absent(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f, const char *at)
{
    const char *base = (const char *)m;

    if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)
        return *(const uint32_t *)(base + f->quantifier_offset) != f->id;
    return f->label != PROTOBUF_C_LABEL_REPEATED &&
           f->type == PROTOBUF_C_TYPE_MESSAGE && !*(const void *const *)at;
}

static json_t *print_field(const ProtobufCMessage *m,
                           const ProtobufCFieldDescriptor *f,
                           const char *only)
{
    const char *base = (const char *)m;

    if (f->label == PROTOBUF_C_LABEL_REPEATED)
        return print_list(f,
                          *(const char *const *)(base + f->offset),
                          *(const size_t *)(base + f->quantifier_offset),
                          only);
    return print_one(f, base + f->offset, only);
}

/* Takes the value. Without memory for it the object is given up. */
static void set(json_t **object, const char *name, json_t *value)
{
    if (json_object_set_new(*object, name, value) == 0)
        return;
    json_decref(*object);
    *object = NULL;
}

json_t *ms_message_print(const ProtobufCMessage *m)
{
    json_t *out = json_object();

    for (unsigned i = 0; out && i < m->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
        char name[128];

        if (is_absent(m, f, (const char *)m + f->offset))
            continue;
        snprintf(name, sizeof name, "%.*s", (int)ms_message_field_name_len(f), f->name);
        set(&out, name, print_field(m, f, NULL));
    }
    return out;
}

/* The field at *at, as "field", "field=name" or "field(its fields)"; *at moves behind it. */
static void print_named(json_t **out, const ProtobufCMessage *m, const char **at)
{
    size_t len = strcspn(*at, "= ()"), alias;
    char field[64], name[64];
    const char *only = NULL;
    const ProtobufCFieldDescriptor *f;

    snprintf(field, sizeof field, "%.*s", (int)len, *at);
    *at += len;
    alias = **at == '=' ? strcspn(++*at, " ()") : 0;
    snprintf(name, sizeof name, "%.*s", (int)alias, *at);
    *at += alias;
    if (**at == '(') {
        only = *at + 1;
        *at = strchr(only, ')') + 1;
    }
    f = protobuf_c_message_descriptor_get_field_by_name(m->descriptor, field);
    assert(f);
    set(out, alias ? name : field, print_field(m, f, only));
}

/* Up to the end, or a closing parenthesis. */
static json_t *print_some(const ProtobufCMessage *m, const char **fields)
{
    json_t *out = m ? json_object() : json_null();

    for (; m && out && **fields && **fields != ')'; *fields += strspn(*fields, " "))
        print_named(&out, m, fields);
    return out;
}

json_t *ms_message_print_fields(const ProtobufCMessage *m, const char *fields)
{
    return print_some(m, &fields);
}
