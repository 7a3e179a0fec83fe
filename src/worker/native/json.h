/* json.h - JSON as plain data and back, for calls to C that came by HTTP
 *
 * JSON's own values are what they are. What JSON does not have comes as an object with a
 * "type" (doc/http.md): here a tensor and an ndarray become a tensor, bytes bytes; a
 * dataclass becomes the map of its fields and an enum its value, because C has neither; a
 * torch_dtype its name. The others are refused with the reason. An object of such a type
 * that lacks its fields is a map like any other.
 *
 * Limits are those of plain data: MS_PLAIN_DEPTH_MAX, _NODES_MAX, _DIMS_MAX.
 */
#ifndef MS_WORKER_NATIVE_JSON_H
#define MS_WORKER_NATIVE_JSON_H

#include "base/error.h"
#include "muster/value.h"
#include "plain/plain.h"

#include <jansson.h>

/* A read-only value, which is yours. NULL: -EINVAL, -E2BIG or -ENOMEM with the reason. */
struct muster_value *ms_value_from_json(const json_t *json, struct ms_error *err);

/* What a "tensor" or an "ndarray" says of itself beside its data. */
struct ms_json_tensor {
    enum muster_dtype dtype;
    uint64_t shape[MS_PLAIN_DIMS_MAX];
    uint32_t ndim;
    size_t sent_size; /* bytes of its data; bfloat16 comes as float32 */
};
/* 0 or -EINVAL with the reason. `is_torch`: how the elements' type is named. */
int ms_json_tensor_read(const json_t *object,
                        bool is_torch,
                        struct ms_json_tensor *out,
                        struct ms_error *err);

/* Arguments: a list of a list and a map. `args` is an array or NULL, `kwargs` an object or
 * NULL. */
struct muster_value *
ms_arguments_from_json(const json_t *args, const json_t *kwargs, struct ms_error *err);

/* 0 and *json is yours; -EDOM: a number is not finite, and JSON has no such; -E2BIG: beyond
 * a limit; -ENOMEM, also for a list or map that could not take an element. A tensor
 * becomes an ndarray, one of bfloat16 (which numpy does not have) a tensor. */
int ms_value_to_json(const struct muster_value *v, json_t **json);

/* ---- within: json.c, json_types.c -------------------------------------------------- */

/* What is being read; `blocks` own what the writer borrows. */
struct ms_json_reader {
    struct ms_plain_writer w;
    struct ms_json_block *blocks;
    struct ms_error *err;
};

/* All of these: 0 or a negative errno with the reason in r->err. */
int ms_json_read(struct ms_json_reader *r,
                 enum ms_plain_place place,
                 const json_t *json,
                 unsigned depth);
/* 1: it stands for something else, and that was read; 0: it is an object. */
int ms_json_read_typed(struct ms_json_reader *r,
                       enum ms_plain_place place,
                       const json_t *json,
                       unsigned depth);
void ms_json_reader_finish(struct ms_json_reader *r);

int ms_json_of_bytes(const struct muster_value *v, json_t **json);
int ms_json_of_tensor(const struct muster_value *v, json_t **json);

#endif
