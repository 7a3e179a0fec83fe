/* tensors.h - tensors that a worker keeps for others to fetch by HTTP, under ids
 *
 * What an engine has returned (AReaL's RTensor names it by a shard id) or a client has PUT.
 * Their bytes are objects of the node's store (store.h), in their own dtype; those of small
 * ones, MS_HTTP_TENSORS_OWN_MAX in all, are in this process. A shard ends when it
 * is removed, replaced, or was not asked for during MS_HTTP_TENSOR_LEASE_NS; who holds a reference
 * goes on reading. With the process all end.
 *
 * Any thread.
 */
#ifndef MS_WORKER_HTTP_TENSORS_H
#define MS_WORKER_HTTP_TENSORS_H

#include "base/error.h"
#include "base/list.h"
#include "worker/http/store.h"

#include <pthread.h>

struct ms_http_tensor {
    char *id;
    char *type;   /* "tensor" or "ndarray" */
    char *dtype;  /* "torch.float32", "<f4" */
    char *shape;  /* JSON: "[2,3]" */
    uint64_t len; /* bytes: one of these has them */
    struct ms_http_pieces pieces;
    uint8_t *memory; /* malloc'd */

    /* of tensors.c alone */
    unsigned refs;
    int64_t used_ns;
    struct ms_list link; /* shards->by_use */
};

struct ms_http_tensors {
    pthread_mutex_t lock;
    void *by_id;           /* <search.h>: a tree */
    struct ms_list by_use; /* the longest unused first */
    size_t count;
    uint64_t bytes, own_bytes;
    bool is_watched; /* ms_http_tensors_expire will be called */
};

void ms_http_tensors_init(struct ms_http_tensors *s);
void ms_http_tensors_finish(struct ms_http_tensors *s);

/* Keep a copy of these texts, with `pieces` or `memory`, which is taken over, also on failure. One
 * of the same id is replaced. 0; 1: the first since ms_http_tensors_expire found none, which is to be
 * called again; -EINVAL: the texts are none of these; -ENOSPC, -ENOMEM. */
int ms_http_tensors_add(struct ms_http_tensors *s,
                        const struct ms_http_tensor *with,
                        int64_t now_ns,
                        struct ms_error *err);
/* bfloat16, which travels as float32: numpy has no other name for it. */
bool ms_http_tensor_is_widened(const struct ms_http_tensor *shard);
/* How many bytes more may be outside of the store, if one of this id is replaced. */
uint64_t ms_http_tensors_room(struct ms_http_tensors *s, const char *id);
/* A new reference, and its lease begins anew; NULL: there is none. */
struct ms_http_tensor *
ms_http_tensors_find(struct ms_http_tensors *s, const char *id, int64_t now_ns);
void ms_http_tensor_unref(struct ms_http_tensors *s, struct ms_http_tensor *shard);
/* Whether it was there. */
bool ms_http_tensors_remove(struct ms_http_tensors *s, const char *id);
void ms_http_tensors_stats(struct ms_http_tensors *s, size_t *count, uint64_t *bytes);
/* Those whose lease has ended go. When the next one ends; MS_NEVER: there are none. */
int64_t ms_http_tensors_expire(struct ms_http_tensors *s, int64_t now_ns);

#endif
