/* registry_impl.h - what registry.c and adopt.c share */
#ifndef MS_CLUSTER_REGISTRY_IMPL_H
#define MS_CLUSTER_REGISTRY_IMPL_H

#include "cluster/registry.h"

/* In no registry yet; all slots are UNKNOWN. NULL: out of memory. */
struct ms_cluster *ms_cluster_create(const char *name, size_t count);

/* STARTING, in the first incarnation. 0 or -ENOMEM. */
int ms_slot_init(struct ms_slot *s, const struct ms_slot_spec *spec);

#endif
