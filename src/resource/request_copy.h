/* request_copy.h - a request that owns what it points to; private to resource/ */
#ifndef MS_RESOURCE_REQUEST_COPY_H
#define MS_RESOURCE_REQUEST_COPY_H

#include "resource/place.h"

/* A deep copy; equal bundles that stand side by side share their parts. 0, -ENOMEM. */
int ms_request_copy(struct ms_place_request *to, const struct ms_place_request *from);
/* Free a copy. */
void ms_request_finish(struct ms_place_request *r);

#endif
