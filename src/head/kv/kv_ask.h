/* kv_ask.h - the key-value store of the head, as it is asked for
 *
 * kv.h is the store itself, pure. Here are the requests, those who wait for a change of it,
 * and what goes with a driver or a worker that ends. Every change is kept (state/persist.h).
 * The head's thread.
 */
#ifndef MS_HEAD_KV_KV_ASK_H
#define MS_HEAD_KV_KV_ASK_H

#include "base/list.h"
#include "head/kv/kv.h"

#include <stdint.h>

struct ms_head;
struct ms_head_op;

struct ms_head_kv {
    struct ms_kv store;
    struct ms_list waiting; /* operations that wait for a change of the store */
};

/* What belongs to it goes. */
void ms_head_kv_driver_gone(struct ms_head *h, uint64_t driver);
void ms_head_kv_worker_gone(struct ms_head *h, uint64_t uid);
/* The store has changed: who waits for that is told. */
void ms_head_kv_changed(struct ms_head *h);

#endif
