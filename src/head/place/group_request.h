/* group_request.h - a PlaceGroup message as the planner takes it */
#ifndef MS_HEAD_PLACE_GROUP_REQUEST_H
#define MS_HEAD_PLACE_GROUP_REQUEST_H

#include "proto/muster.pb-c.h"
#include "resource/place.h"

/* It borrows from the message. */
struct ms_group_request {
    struct ms_place_request request;
    struct ms_scope_request scope;
    struct ms_bundle *bundles;
    struct ms_selector *selectors; /* [specs] */
    struct ms_extra_need **extras; /* [specs] */
    size_t specs;
};

/* 0, or -EINVAL, -E2BIG, -ENOMEM, -ENOTSUP. Finish it in any case. `kinds` knows the kinds of
 * devices by name; NULL: none can be asked for. */
int ms_group_request_read(struct ms_group_request *w,
                          struct ms_stock *kinds,
                          const Muster__PlaceGroup *m,
                          struct ms_error *err);
void ms_group_request_finish(struct ms_group_request *w);

#endif
