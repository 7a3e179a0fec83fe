/* dtype.c - names and sizes of data types */
#include "plain/plain.h"

#include <errno.h>

static const struct {
    const char *name;
    size_t size;
} dtypes[] = {
    [MUSTER_DTYPE_BOOL] = {"bool", 1},
    [MUSTER_INT8] = {"int8", 1},
    [MUSTER_UINT8] = {"uint8", 1},
    [MUSTER_INT16] = {"int16", 2},
    [MUSTER_UINT16] = {"uint16", 2},
    [MUSTER_INT32] = {"int32", 4},
    [MUSTER_UINT32] = {"uint32", 4},
    [MUSTER_INT64] = {"int64", 8},
    [MUSTER_UINT64] = {"uint64", 8},
    [MUSTER_FLOAT16] = {"float16", 2},
    [MUSTER_BFLOAT16] = {"bfloat16", 2},
    [MUSTER_FLOAT32] = {"float32", 4},
    [MUSTER_FLOAT64] = {"float64", 8},
    [MUSTER_COMPLEX64] = {"complex64", 8},
    [MUSTER_COMPLEX128] = {"complex128", 16},
};

enum { DTYPES = sizeof dtypes / sizeof dtypes[0] };

size_t muster_dtype_size(enum muster_dtype dtype)
{
    return (unsigned)dtype < DTYPES ? dtypes[dtype].size : 0;
}

const char *muster_dtype_name(enum muster_dtype dtype)
{
    return muster_dtype_size(dtype) ? dtypes[dtype].name : "unknown";
}

const char *muster_kind_name(enum muster_kind kind)
{
    static const char *const names[] = {
        "null", "bool", "int", "float", "text", "bytes", "list", "map", "tensor"};

    return (unsigned)kind < sizeof names / sizeof *names ? names[kind] : "unknown";
}

int ms_plain_tensor_size(enum muster_dtype dtype,
                         const uint64_t *shape,
                         uint32_t ndim,
                         size_t *size)
{
    uint64_t n = muster_dtype_size(dtype);
    bool empty = false;

    if (n == 0 || ndim > MS_PLAIN_DIMS_MAX || (ndim && !shape))
        return -EINVAL;
    for (uint32_t i = 0; i < ndim; i++) {
        if (shape[i] == 0)
            empty = true;
        else if (shape[i] > MS_MESSAGE_MAX / n)
            return -EINVAL;
        else
            n *= shape[i];
    }
    *size = empty ? 0 : n;
    return 0;
}
