/* view_kv.h - the key-value store as JSON; for rows of head/ops/verbs.c */
#ifndef MS_HEAD_REST_VIEW_KV_H
#define MS_HEAD_REST_VIEW_KV_H

#include "proto/muster.pb-c.h"

#include <jansson.h>

/* A KvEntry; *status is 404 if there is none. */
json_t *ms_view_kv_entry(const ProtobufCMessage *entry, int *status);
/* The keys of a KvEvents, without their values. */
json_t *ms_view_kv_keys(const ProtobufCMessage *events, int *status);

#endif
