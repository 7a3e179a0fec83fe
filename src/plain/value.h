/* value.h - values as objects: what is behind muster/value.h
 *
 * A value that was made here owns its parts, each on the heap. A decoded one is a tree in
 * a single block, whose texts, bytes and tensors point into the message's own memory; its
 * root owns both, and its parts are read-only.
 */
#ifndef MS_PLAIN_VALUE_H
#define MS_PLAIN_VALUE_H

#include "base/error.h"
#include "muster/value.h"
#include "plain/plain.h"

struct ms_tensor {
    enum muster_dtype dtype;
    uint32_t ndim;
    uint64_t shape[MS_PLAIN_DIMS_MAX];
    const void *data;
    size_t size;
    bool owned; /* data is ours to free and to change */
};

struct ms_entry;
struct ms_value_block;

struct muster_value {
    uint8_t kind;
    bool frozen;     /* a part of a tree: read-only, nothing of it is freed */
    int16_t spoiled; /* why something could not be put in; 0: nothing was lost */
    uint32_t room;   /* of a list's or a map's array */
    union {
        bool truth;
        int64_t integer;
        double real;
        struct {
            char *at; /* a text has a NUL behind it */
            size_t len;
        } data;
        struct {
            struct muster_value *items;
            size_t count;
        } list;
        struct {
            struct ms_entry *entries;
            size_t count;
        } map;
        struct ms_tensor *tensor;
    };
    union {
        struct ms_value_block *tree; /* of which this is the root; NULL: of none */
        struct muster_value *above;  /* while all of it is freed */
    };
};

struct ms_entry {
    char *key;
    size_t key_len;
    struct muster_value value;
};

/* Decode a Value. Takes over `memory` (malloc'd; `body` points into it), also on failure:
 * the tree points into it and changes it. NULL: -EBADMSG, -E2BIG (beyond a limit) or
 * -ENOMEM, with the reason in err. */
struct muster_value *
ms_value_decode(uint8_t *memory, const uint8_t *body, size_t len, struct ms_error *err);

/* Likewise Arguments: a list of a list and a map. */
struct muster_value *ms_value_decode_arguments(uint8_t *memory,
                                               const uint8_t *body,
                                               size_t len,
                                               struct ms_error *err);

/* A bytes value over a block, without a copy. Takes `memory`, also on failure. NULL: out
 * of memory. */
struct muster_value *
ms_value_over_bytes(uint8_t *memory, const uint8_t *body, size_t len);

/* Its root is of no use then, and in no list. */
void ms_value_block_free(struct ms_value_block *t);

/* Write it. The writer borrows from the value. Failures are the writer's. */
void ms_value_encode(struct ms_plain_writer *w,
                     enum ms_plain_place place,
                     const struct muster_value *v);
/* `args`: a list or NULL; `kwargs`: a map or NULL. Else the writer fails with -EINVAL. */
void ms_value_encode_arguments(struct ms_plain_writer *w,
                               const struct muster_value *args,
                               const struct muster_value *kwargs);

#endif
