/* view_objects.h - what is in the stores of all nodes, for people and as JSON */
#ifndef MS_HEAD_REST_VIEW_OBJECTS_H
#define MS_HEAD_REST_VIEW_OBJECTS_H

#include "io/json.h"
#include "proto/muster.pb-c.h"

/* One object of one node. */
struct ms_view_object {
    const Muster__StoreStats *at;
    const Muster__StoredStatus *object;
    const char *origin; /* the node that it was made on; "": not known */
    const char *site;   /* which line made it; "": not known */
};

/* All of them, the largest first; freed by the caller, borrows from `all`. NULL: out of
 * memory. */
struct ms_view_object *ms_view_sort_objects(const Muster__Objects *all, size_t *count);

/* "memory", "disk", "copy" (in memory, of another node's), "reference" (no bytes here) or
 * "making". */
const char *ms_view_object_where(const Muster__StoredStatus *o);

/* Objects, and how full each store is, for the row of head/ops/verbs.c. `all` is an Objects. */
json_t *ms_view_all_objects(const ProtobufCMessage *all, int *status);
/* An array, in that order. NULL: out of memory. */
json_t *ms_view_objects(const Muster__Objects *all);

#endif
