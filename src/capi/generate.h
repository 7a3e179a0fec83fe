/* generate.h - samples of a rollout as what include/muster/generate.h hands out */
#ifndef MS_CAPI_GENERATE_H
#define MS_CAPI_GENERATE_H

#include "muster/generate.h"
#include "rollout/rollout.h"

/* Takes the group, also on failure. NULL: out of memory. */
struct muster_samples *ms_capi_samples(struct ms_rollout_group *g);

/* Why a group failed, into err. */
void ms_capi_samples_error(const struct ms_rollout_group *g, struct muster_error *err);

#endif
