/* message_parse.c - a message from JSON, or from the texts of a path or query */
#include "base/clock.h"
#include "base/limits.h"
#include "head/rest/message_json.h"
#include "io/base64.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Whole numbers that a double has exactly. */
#define MS_JSON_WHOLE_MAX 9007199254740992.0

static int
bad(const ProtobufCFieldDescriptor *f, const char *want, struct ms_error *err)
{
    return ms_error_set(err,
                        -EINVAL,
                        "'%.*s' is not %s",
                        (int)ms_message_field_name_len(f),
                        f->name,
                        want);
}

static int out_of_memory(struct ms_error *err)
{
    return ms_error_set(err, -ENOMEM, "out of memory");
}

/* ---- numbers --------------------------------------------------------------------- */

/* A number, or a text that is one and no more. NULL: neither. New. */
static json_t *number_of(const json_t *v)
{
    json_t *n = NULL;

    if (json_is_number(v))
        return json_deep_copy(v);
    if (json_is_string(v))
        n = json_loads(json_string_value(v), JSON_DECODE_ANY, NULL);
    if (!json_is_number(n)) {
        json_decref(n);
        n = NULL;
    }
    return n;
}

static bool read_signed(const json_t *v, int64_t least, int64_t most, int64_t *out)
{
    json_t *n = number_of(v);
    double real = json_real_value(n);
    bool is_good = json_is_integer(n);

    if (is_good)
        *out = json_integer_value(n);
    else if (json_is_real(n) && fabs(real) <= MS_JSON_WHOLE_MAX &&
             real == (double)(int64_t)real) {
        *out = (int64_t)real; /* 2.0 is a whole number too */
        is_good = true;
    }
    json_decref(n);
    return is_good && *out >= least && *out <= most;
}

/* Digits alone may be more than JSON's readers know. */
static bool read_unsigned(const json_t *v, uint64_t most, uint64_t *out)
{
    const char *text = json_string_value(v);
    int64_t n;
    char *end;

    if (text && *text && strspn(text, "0123456789") == strlen(text)) {
        errno = 0;
        *out = strtoull(text, &end, 10);
        return errno == 0 && *out <= most;
    }
    if (!read_signed(v, 0, INT64_MAX, &n) || (uint64_t)n > most)
        return false;
    *out = (uint64_t)n;
    return true;
}

static bool read_real(const json_t *v, double *out)
{
    json_t *n = number_of(v);
    bool is_good = n;

    if (is_good)
        *out = json_number_value(n);
    json_decref(n);
    return is_good;
}

static int set_time(const ProtobufCFieldDescriptor *f,
                    uint64_t *at,
                    const json_t *v,
                    struct ms_error *err)
{
    double seconds;

    if (!read_real(v, &seconds) || !(seconds >= 0 && seconds <= MS_HTTP_SECONDS_MAX))
        return ms_error_set(err,
                            -EINVAL,
                            "'%.*s' is not a time from 0 to %d seconds",
                            (int)ms_message_field_name_len(f),
                            f->name,
                            MS_HTTP_SECONDS_MAX);
    *at = (uint64_t)(seconds * (double)MS_NS_PER_S + 0.5);
    return 0;
}

/* ---- values ---------------------------------------------------------------------- */

static int set_integer(const ProtobufCFieldDescriptor *f,
                       void *at,
                       const json_t *v,
                       struct ms_error *err)
{
    bool is_wide = ms_message_field_size(f) == sizeof(uint64_t);
    bool is_unsigned =
        f->type == PROTOBUF_C_TYPE_UINT32 || f->type == PROTOBUF_C_TYPE_FIXED32 ||
        f->type == PROTOBUF_C_TYPE_UINT64 || f->type == PROTOBUF_C_TYPE_FIXED64;
    uint64_t u = 0;
    int64_t i = 0;

    if (is_unsigned && !read_unsigned(v, is_wide ? UINT64_MAX : UINT32_MAX, &u))
        return bad(f, "a number from 0 on", err);
    if (!is_unsigned &&
        !read_signed(
            v, is_wide ? INT64_MIN : INT32_MIN, is_wide ? INT64_MAX : INT32_MAX, &i))
        return bad(f, "a whole number", err);
    if (!is_unsigned)
        u = (uint64_t)i;
    if (is_wide)
        *(uint64_t *)at = u;
    else
        *(uint32_t *)at = (uint32_t)u;
    return 0;
}

static int set_real(const ProtobufCFieldDescriptor *f,
                    void *at,
                    const json_t *v,
                    struct ms_error *err)
{
    double n;

    if (!read_real(v, &n))
        return bad(f, "a number", err);
    if (f->type == PROTOBUF_C_TYPE_FLOAT)
        *(float *)at = (float)n;
    else
        *(double *)at = n;
    return 0;
}

static int set_enum(const ProtobufCFieldDescriptor *f,
                    int *at,
                    const json_t *v,
                    struct ms_error *err)
{
    const char *name = json_string_value(v);
    const ProtobufCEnumValue *found =
        name ? protobuf_c_enum_descriptor_get_value_by_name(f->descriptor, name) : NULL;

    if (!found)
        return bad(f, "one of its names", err);
    *at = found->value;
    return 0;
}

static int set_string(const ProtobufCFieldDescriptor *f,
                      char **at,
                      const json_t *v,
                      struct ms_error *err)
{
    char *copy;

    if (!json_is_string(v))
        return bad(f, "a text", err);
    copy = strdup(json_string_value(v));
    if (!copy)
        return out_of_memory(err);
    if (*at != f->default_value)
        free(*at);
    *at = copy;
    return 0;
}

static int set_bytes(const ProtobufCFieldDescriptor *f,
                     ProtobufCBinaryData *at,
                     const json_t *v,
                     struct ms_error *err)
{
    uint8_t *data = NULL;
    size_t size = 0;
    int rc = json_is_string(v)
                 ? ms_base64_decode(
                       json_string_value(v), json_string_length(v), &data, &size)
                 : -EINVAL;

    if (rc == -ENOMEM)
        return out_of_memory(err);
    if (rc < 0)
        return bad(f, "base64", err);
    free(at->data);
    *at = (ProtobufCBinaryData){size, data};
    return 0;
}

static int set_message(const ProtobufCFieldDescriptor *f,
                       ProtobufCMessage **at,
                       const json_t *v,
                       struct ms_error *err)
{
    if (!json_is_object(v))
        return bad(f, "an object", err);
    if (!*at)
        *at = ms_proto_create(f->descriptor);
    return *at ? ms_message_parse(*at, v, err) : out_of_memory(err);
}

static int set_value(const ProtobufCFieldDescriptor *f,
                     void *at,
                     const json_t *v,
                     struct ms_error *err)
{
    if (ms_message_field_is_time(f))
        return set_time(f, at, v, err);
    switch (f->type) {
    case PROTOBUF_C_TYPE_BOOL:
        if (!json_is_boolean(v))
            return bad(f, "true or false", err);
        *(protobuf_c_boolean *)at = json_is_true(v);
        return 0;
    case PROTOBUF_C_TYPE_FLOAT:
    case PROTOBUF_C_TYPE_DOUBLE:
        return set_real(f, at, v, err);
    case PROTOBUF_C_TYPE_ENUM:
        return set_enum(f, at, v, err);
    case PROTOBUF_C_TYPE_STRING:
        return set_string(f, at, v, err);
    case PROTOBUF_C_TYPE_BYTES:
        return set_bytes(f, at, v, err);
    case PROTOBUF_C_TYPE_MESSAGE:
        return set_message(f, at, v, err);
    default:
        return set_integer(f, at, v, err);
    }
}

/* ---- messages -------------------------------------------------------------------- */

/* The count grows with what is there, so that a failure leaves what can be freed. */
static int set_list(ProtobufCMessage *m,
                    const ProtobufCFieldDescriptor *f,
                    const json_t *v,
                    struct ms_error *err)
{
    char *base = (char *)m, **list = (char **)(base + f->offset);
    size_t *count = (size_t *)(base + f->quantifier_offset);
    size_t size = ms_message_field_size(f);
    int rc = 0;

    if (!json_is_array(v))
        return bad(f, "a list", err);
    if (*list)
        return bad(f, "given once", err);
    *list = calloc(json_array_size(v) + 1, size);
    if (!*list)
        return out_of_memory(err);
    for (size_t i = 0; i < json_array_size(v) && rc == 0; i++) {
        char *at = *list + i * size;

        rc = set_value(f, at, json_array_get(v, i), err);
        if (rc == 0 || (f->type == PROTOBUF_C_TYPE_MESSAGE && *(void **)at))
            (*count)++;
    }
    return rc;
}

static int set_field(ProtobufCMessage *m,
                     const ProtobufCFieldDescriptor *f,
                     const json_t *v,
                     struct ms_error *err)
{
    char *base = (char *)m;
    uint32_t *which = (uint32_t *)(base + f->quantifier_offset);

    if (f->label == PROTOBUF_C_LABEL_REPEATED)
        return set_list(m, f, v, err);
    if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) {
        if (*which)
            return bad(f, "the only one of its kind", err);
        *which = f->id;
    }
    return set_value(f, base + f->offset, v, err);
}

static int
set_named(ProtobufCMessage *m, const char *name, const json_t *v, struct ms_error *err)
{
    const ProtobufCFieldDescriptor *f = ms_message_field_find(m->descriptor, name);

    if (!f)
        return ms_error_set(err, -EINVAL, "there is no '%.64s' here", name);
    return set_field(m, f, v, err);
}

int ms_message_parse(ProtobufCMessage *m, const json_t *object, struct ms_error *err)
{
    const char *name;
    json_t *v;
    int rc;

    /* it is only read */
    json_object_foreach((json_t *)(uintptr_t)object, name, v)
    {
        rc = set_named(m, name, v, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int ms_message_parse_text(ProtobufCMessage *m,
                          const char *name,
                          const char *text,
                          struct ms_error *err)
{
    const ProtobufCFieldDescriptor *f = ms_message_field_find(m->descriptor, name);
    json_t *v = NULL;
    int rc;

    if (f && f->type == PROTOBUF_C_TYPE_BOOL)
        v = strcmp(text, "true") == 0    ? json_true()
            : strcmp(text, "false") == 0 ? json_false()
                                         : json_null();
    else
        v = json_string(text);
    rc = v ? set_named(m, name, v, err)
           : ms_error_set(err, -EINVAL, "'%.64s' is not UTF-8", name);
    json_decref(v);
    return rc;
}
