/* json_types.c - what JSON does not have: objects with a "type" */
#include "base/cleanup.h"
#include "base/json.h"
#include "io/base64.h"
#include "worker/native/json.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- memory that the writer borrows ---------------------------------------------- */

struct ms_json_block {
    struct ms_json_block *next;
    uint8_t *data;
};

void ms_json_reader_finish(struct ms_json_reader *r)
{
    while (r->blocks) {
        struct ms_json_block *block = r->blocks;

        r->blocks = block->next;
        free(block->data);
        free(block);
    }
    ms_plain_writer_finish(&r->w);
}

static int no_memory(struct ms_json_reader *r)
{
    return ms_error_set(r->err, -ENOMEM, "out of memory");
}

/* The bytes of an object's "data", the reader's until it is finished. */
static int
read_data(struct ms_json_reader *r, const json_t *object, uint8_t **data, size_t *size)
{
    const json_t *text = json_object_get(object, "data");
    struct ms_json_block *block;
    int rc;

    if (!json_is_string(text))
        return ms_error_set(r->err,
                            -EINVAL,
                            "a %s without data is of no use to a worker in C",
                            json_string_value(json_object_get(object, "type")));
    block = calloc(1, sizeof *block);
    if (!block)
        return no_memory(r);
    rc = ms_base64_decode(
        json_string_value(text), json_string_length(text), &block->data, size);
    if (rc < 0) {
        free(block);
        if (rc == -ENOMEM)
            return no_memory(r);
        return ms_error_set(r->err, rc, "'data' cannot be decoded: it is not base64");
    }
    block->next = r->blocks;
    r->blocks = block;
    *data = block->data;
    return 0;
}

/* ---- types of elements ----------------------------------------------------------- */

/* As numpy writes them, before the size; bfloat16 it does not have. */
static const char letters[] = {[MUSTER_DTYPE_BOOL] = 'b',
                               [MUSTER_INT8] = 'i',
                               [MUSTER_UINT8] = 'u',
                               [MUSTER_INT16] = 'i',
                               [MUSTER_UINT16] = 'u',
                               [MUSTER_INT32] = 'i',
                               [MUSTER_UINT32] = 'u',
                               [MUSTER_INT64] = 'i',
                               [MUSTER_UINT64] = 'u',
                               [MUSTER_FLOAT16] = 'f',
                               [MUSTER_FLOAT32] = 'f',
                               [MUSTER_FLOAT64] = 'f',
                               [MUSTER_COMPLEX64] = 'c',
                               [MUSTER_COMPLEX128] = 'c'};

enum { NUMPY_NAME_MAX = 32 };

/* "<f4", "|u1" */
static void numpy_name(enum muster_dtype dtype, char out[NUMPY_NAME_MAX])
{
    size_t size = muster_dtype_size(dtype);

    snprintf(
        out, NUMPY_NAME_MAX, "%c%c%zu", size == 1 ? '|' : '<', letters[dtype], size);
}

/* "torch.float32", and "<f4" or "float32"; 0: there is none of that name. */
static enum muster_dtype dtype_find(const char *name, bool is_torch)
{
    char numpy[NUMPY_NAME_MAX];

    if (is_torch && strncmp(name, "torch.", 6) == 0)
        name += 6;
    for (size_t i = 1; i < MS_COUNT(letters); i++) {
        enum muster_dtype dtype = (enum muster_dtype)i;

        if (!is_torch && !letters[i])
            continue;
        numpy_name(dtype, numpy);
        if (strcmp(name, muster_dtype_name(dtype)) == 0 ||
            (!is_torch && strcmp(name, numpy) == 0))
            return dtype;
    }
    return (enum muster_dtype)0;
}

/* ---- in -------------------------------------------------------------------------- */

static int
read_shape(const json_t *list, uint64_t shape[MS_PLAIN_DIMS_MAX], struct ms_error *err)
{
    size_t ndim = json_array_size(list);

    if (!json_is_array(list) || ndim > MS_PLAIN_DIMS_MAX)
        return ms_error_set(err,
                            -EINVAL,
                            "'shape' must be a list of at most %u sizes",
                            MS_PLAIN_DIMS_MAX);
    for (size_t i = 0; i < ndim; i++) {
        const json_t *n = json_array_get(list, i);

        if (!json_is_integer(n) || json_integer_value(n) < 0)
            return ms_error_set(err, -EINVAL, "'shape' has something that is no size");
        shape[i] = (uint64_t)json_integer_value(n);
    }
    return 0;
}

static int read_dtype(const json_t *object,
                      bool is_torch,
                      enum muster_dtype *dtype,
                      struct ms_error *err)
{
    const char *name = json_string_value(json_object_get(object, "dtype"));

    *dtype = name ? dtype_find(name, is_torch) : (enum muster_dtype)0;
    if (*dtype)
        return 0;
    return ms_error_set(
        err,
        -EINVAL,
        "'dtype' is '%.64s', of which plain data has no tensors (numbers "
        "of 1 to 16 bytes, little-endian)",
        name ? name : "no string");
}

int ms_json_tensor_read(const json_t *object,
                        bool is_torch,
                        struct ms_json_tensor *out,
                        struct ms_error *err)
{
    const json_t *list = json_object_get(object, "shape");
    enum muster_dtype sent;
    int rc = read_shape(list, out->shape, err);

    if (rc == 0)
        rc = read_dtype(object, is_torch, &out->dtype, err);
    if (rc < 0)
        return rc;
    sent = out->dtype == MUSTER_BFLOAT16 ? MUSTER_FLOAT32 : out->dtype;
    out->ndim = (uint32_t)json_array_size(list);
    if (ms_plain_tensor_size(sent, out->shape, out->ndim, &out->sent_size) < 0)
        return ms_error_set(
            err, -EINVAL, "no tensor has as many bytes as shape and dtype say");
    return 0;
}

static int read_array(struct ms_json_reader *r,
                      enum ms_plain_place place,
                      const json_t *object,
                      bool is_torch)
{
    struct ms_json_tensor t = {0};
    size_t size = 0;
    uint8_t *data = NULL;
    int rc = ms_json_tensor_read(object, is_torch, &t, r->err);

    if (rc == 0)
        rc = read_data(r, object, &data, &size);
    if (rc < 0)
        return rc;
    assert(data);
    if (size != t.sent_size)
        return ms_error_set(r->err,
                            -EINVAL,
                            "'data' has %zu bytes, which is not what shape and dtype "
                            "say",
                            size);
    if (t.dtype == MUSTER_BFLOAT16) {
        ms_bfloat16_narrow(data, size / sizeof(uint32_t), data);
        size /= 2;
    }
    ms_plain_put_tensor(&r->w, place, t.dtype, t.shape, t.ndim, data, size);
    return 0;
}

/* How an object of a type is read. */
enum how {
    TENSOR,  /* as torch names its elements */
    NDARRAY, /* as numpy does */
    BYTES,
    DATA,  /* as what is in "data" */
    VALUE, /* as what is in "value" */
    REFUSED
};

static const struct {
    const char *type;
    const char *needs[4]; /* NULL-terminated */
    enum how how;
} types[] = {
    {"tensor", {"data", "shape", "dtype"}, TENSOR},
    {"ndarray", {"data", "shape", "dtype"}, NDARRAY},
    {"bytes", {"data"}, BYTES},
    {"dataclass", {"class_path", "data"}, DATA},
    {"enum", {"class_path", "value"}, VALUE},
    {"torch_dtype", {"value"}, VALUE},
    {"pil_image", {"data"}, REFUSED},
    {"tokenizer", {"data", "name_or_path"}, REFUSED},
    {"processor", {"data", "name_or_path"}, REFUSED},
    {"ray_object_ref", {"data"}, REFUSED},
};

static int read_as(struct ms_json_reader *r,
                   enum ms_plain_place place,
                   const json_t *object,
                   enum how how,
                   unsigned depth)
{
    const char *inner = how == DATA ? "data" : "value";
    uint8_t *data = NULL;
    size_t size = 0;
    int rc;

    switch (how) {
    case TENSOR:
    case NDARRAY:
        return read_array(r, place, object, how == TENSOR);
    case BYTES:
        rc = read_data(r, object, &data, &size);
        if (rc == 0)
            ms_plain_put_data(&r->w, place, MUSTER_BYTES, data, size);
        return rc;
    case DATA:
    case VALUE:
        return ms_json_read(r, place, json_object_get(object, inner), depth + 1);
    default:
        return ms_error_set(r->err,
                            -EINVAL,
                            "a worker in C does not understand a %s: send bytes, a "
                            "tensor, or a name or path",
                            json_string_value(json_object_get(object, "type")));
    }
}

static bool has_all(const json_t *object, const char *const *names)
{
    for (; *names; names++)
        if (!json_object_get(object, *names))
            return false;
    return true;
}

int ms_json_read_typed(struct ms_json_reader *r,
                       enum ms_plain_place place,
                       const json_t *json,
                       unsigned depth)
{
    const char *type = json_string_value(json_object_get(json, "type"));
    int rc;

    for (size_t i = 0; type && i < MS_COUNT(types); i++)
        if (strcmp(types[i].type, type) == 0 && has_all(json, types[i].needs)) {
            rc = read_as(r, place, json, types[i].how, depth);
            return rc < 0 ? rc : 1;
        }
    return 0;
}

/* ---- out ------------------------------------------------------------------------- */

/* `data` as base64 in `object`, which is given away or let go of. */
static int finish_object(json_t *object, const void *data, size_t size, json_t **json)
{
    MS_CLEANUP(ms_cleanup_free) char *text = NULL;
    size_t len = 0;
    int rc = object ? ms_base64_encode(data, size, &text, &len) : -ENOMEM;

    if (rc == 0 && json_object_set_new(object, "data", json_stringn(text, len)) < 0)
        rc = -ENOMEM;
    if (rc < 0)
        json_decref(object);
    else
        *json = object;
    return rc;
}

int ms_json_of_bytes(const struct muster_value *v, json_t **json)
{
    size_t size = 0;
    const void *data = muster_value_get_bytes(v, &size);

    return finish_object(json_pack("{s:s}", "type", "bytes"), data, size, json);
}

static json_t *shape_of(const struct muster_value *v)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < muster_tensor_ndim(v); i++)
        json_array_append_new(list,
                              json_integer((json_int_t)muster_tensor_shape(v)[i]));
    return list;
}

int ms_json_of_tensor(const struct muster_value *v, json_t **json)
{
    bool is_brain = muster_tensor_dtype(v) == MUSTER_BFLOAT16;
    uint8_t *wide = NULL;
    char numpy[NUMPY_NAME_MAX] = "torch.bfloat16";
    size_t size = 0;
    const void *data = muster_tensor_data(v, &size);
    json_t *object;
    int rc;

    if (is_brain) {
        wide = malloc(2 * size + 1);
        if (!wide)
            return -ENOMEM;
        ms_bfloat16_widen(data, size / sizeof(uint16_t), wide);
        data = wide;
        size *= 2;
    } else {
        numpy_name(muster_tensor_dtype(v), numpy);
    }
    object = MS_JSON({"type", json_string(is_brain ? "tensor" : "ndarray")},
                     {"shape", shape_of(v)},
                     {"dtype", json_string(numpy)});
    rc = finish_object(object, data, size, json);
    free(wide);
    return rc;
}
