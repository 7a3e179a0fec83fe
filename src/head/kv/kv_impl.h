/* kv_impl.h - what kv_ask.c (one entry) and kv_watch.c (many) share */
#ifndef MS_HEAD_KV_KV_IMPL_H
#define MS_HEAD_KV_KV_IMPL_H

#include "head/kv/kv_ask.h"
#include "proto/muster.pb-c.h"

#include <stdbool.h>

/* Answer a get or a watch now, or when the store changes, or after wait_ns. */
void ms_head_kv_wait(struct ms_head_op *op, uint64_t wait_ns);
/* True if it was answered, which it is when this is the last chance. */
bool ms_head_kv_try_watch(struct ms_head_op *op, bool is_last);
/* Borrows from the entry; NULL: that there is none. */
void ms_kv_entry_message(Muster__KvEntry *m, const struct ms_kv_entry *e);

#endif
