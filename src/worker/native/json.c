/* json.c - JSON as plain data, and back */
#include "worker/native/json.h"
#include "plain/value.h"

#include <errno.h>
#include <math.h>
#include <string.h>

/* ---- in -------------------------------------------------------------------------- */

static int read_list(struct ms_json_reader *r,
                     enum ms_plain_place place,
                     const json_t *list,
                     unsigned depth)
{
    struct ms_plain_mark mark = ms_plain_begin(&r->w, place, MUSTER_LIST);
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < json_array_size(list); i++)
        rc = ms_json_read(r, MS_PLAIN_ITEM, json_array_get(list, i), depth + 1);
    ms_plain_end(&r->w, mark);
    return rc;
}

static int
read_entries(struct ms_json_reader *r, bool named, const json_t *object, unsigned depth)
{
    json_t *from = (json_t *)(uintptr_t)object; /* jansson's iterators are not const */
    const char *key;
    json_t *value;

    json_object_foreach(from, key, value)
    {
        struct ms_plain_mark mark =
            ms_plain_begin_entry(&r->w, named, key, strlen(key));
        int rc = ms_json_read(r, MS_PLAIN_ENTRY_VALUE, value, depth);

        if (rc < 0)
            return rc;
        ms_plain_end(&r->w, mark);
    }
    return 0;
}

static int read_object(struct ms_json_reader *r,
                       enum ms_plain_place place,
                       const json_t *object,
                       unsigned depth)
{
    int rc = ms_json_read_typed(r, place, object, depth);
    struct ms_plain_mark mark;

    if (rc != 0)
        return rc < 0 ? rc : 0;
    mark = ms_plain_begin(&r->w, place, MUSTER_MAP);
    rc = read_entries(r, false, object, depth + 1);
    ms_plain_end(&r->w, mark);
    return rc;
}

int ms_json_read(struct ms_json_reader *r,
                 enum ms_plain_place place,
                 const json_t *json,
                 unsigned depth)
{
    if (depth >= MS_PLAIN_DEPTH_MAX && (json_is_array(json) || json_is_object(json)))
        return ms_error_set(
            r->err, -E2BIG, "it is nested more than %u deep", MS_PLAIN_DEPTH_MAX);
    switch (json_typeof(json)) {
    case JSON_OBJECT:
        return read_object(r, place, json, depth);
    case JSON_ARRAY:
        return read_list(r, place, json, depth);
    case JSON_STRING:
        ms_plain_put_data(&r->w,
                          place,
                          MUSTER_TEXT,
                          json_string_value(json),
                          json_string_length(json));
        return 0;
    case JSON_INTEGER:
        ms_plain_put_int(&r->w, place, json_integer_value(json));
        return 0;
    case JSON_REAL:
        ms_plain_put_float(&r->w, place, json_real_value(json));
        return 0;
    case JSON_TRUE:
    case JSON_FALSE:
        ms_plain_put_bool(&r->w, place, json_is_true(json));
        return 0;
    case JSON_NULL:
        break;
    }
    ms_plain_put_null(&r->w, place);
    return 0;
}

typedef struct muster_value *
decode_fn(uint8_t *memory, const uint8_t *body, size_t len, struct ms_error *err);

/* What was read is a message now, and is decoded like one that came over the wire. */
static struct muster_value *
conclude(struct ms_json_reader *r, int rc, decode_fn *decode)
{
    uint8_t *message = NULL;
    size_t len = 0;

    if (rc == 0) {
        rc = ms_plain_flatten(&r->w, &message, &len);
        if (rc == -E2BIG)
            ms_error_set(
                r->err, rc, "it has more values or bytes than a call may have");
        else if (rc < 0)
            ms_error_set(r->err, rc, "out of memory");
    }
    ms_json_reader_finish(r);
    return rc < 0 ? NULL : decode(message, message, len, r->err);
}

struct muster_value *ms_value_from_json(const json_t *json, struct ms_error *err)
{
    struct ms_json_reader r = {.err = err};

    ms_plain_writer_init(&r.w);
    return conclude(&r, ms_json_read(&r, MS_PLAIN_ROOT, json, 0), ms_value_decode);
}

struct muster_value *
ms_arguments_from_json(const json_t *args, const json_t *kwargs, struct ms_error *err)
{
    struct ms_json_reader r = {.err = err};
    int rc = 0;

    ms_plain_writer_init(&r.w);
    for (size_t i = 0; rc == 0 && i < json_array_size(args); i++)
        rc = ms_json_read(&r, MS_PLAIN_ITEM, json_array_get(args, i), 1);
    if (rc == 0)
        rc = read_entries(&r, true, kwargs, 1);
    return conclude(&r, rc, ms_value_decode_arguments);
}

/* ---- out ------------------------------------------------------------------------- */

static int write_value(const struct muster_value *v, unsigned depth, json_t **json);

static int write_items(const struct muster_value *v, unsigned depth, json_t *list)
{
    int rc = list ? 0 : -ENOMEM;

    for (size_t i = 0; rc == 0 && i < v->list.count; i++) {
        json_t *item = NULL;

        rc = write_value(&v->list.items[i], depth, &item);
        if (rc == 0 && json_array_append_new(list, item) < 0)
            rc = -ENOMEM;
    }
    return rc;
}

static int write_entries(const struct muster_value *v, unsigned depth, json_t *object)
{
    int rc = object ? 0 : -ENOMEM;

    for (size_t i = 0; rc == 0 && i < v->map.count; i++) {
        json_t *item = NULL;

        rc = write_value(&v->map.entries[i].value, depth, &item);
        if (rc == 0 && json_object_set_new(object, v->map.entries[i].key, item) < 0)
            rc = -ENOMEM;
    }
    return rc;
}

static int write_container(const struct muster_value *v, unsigned depth, json_t **json)
{
    bool is_list = v->kind == MUSTER_LIST;
    json_t *made;
    int rc;

    if (v->spoiled)
        return v->spoiled;
    if (depth >= MS_PLAIN_DEPTH_MAX)
        return -E2BIG;
    made = is_list ? json_array() : json_object();
    rc = is_list ? write_items(v, depth + 1, made) : write_entries(v, depth + 1, made);
    if (rc < 0)
        json_decref(made);
    else
        *json = made;
    return rc;
}

static int write_value(const struct muster_value *v, unsigned depth, json_t **json)
{
    switch (muster_value_kind(v)) {
    case MUSTER_LIST:
    case MUSTER_MAP:
        return write_container(v, depth, json);
    case MUSTER_BYTES:
        return ms_json_of_bytes(v, json);
    case MUSTER_TENSOR:
        return ms_json_of_tensor(v, json);
    case MUSTER_FLOAT:
        if (!isfinite(v->real))
            return -EDOM;
        *json = json_real(v->real);
        break;
    case MUSTER_INT:
        *json = json_integer(v->integer);
        break;
    case MUSTER_TEXT:
        *json = json_stringn(v->data.at, v->data.len);
        break;
    case MUSTER_BOOL:
        *json = json_boolean(v->truth);
        break;
    case MUSTER_NULL:
        *json = json_null();
        break;
    }
    return *json ? 0 : -ENOMEM;
}

int ms_value_to_json(const struct muster_value *v, json_t **json)
{
    json_t *made = NULL;
    int rc = write_value(v, 0, &made);

    if (rc == 0)
        *json = made;
    return rc;
}
