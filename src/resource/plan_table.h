/* plan_table.h - the reason why a plan failed, as a table; private to resource/ */
#ifndef MS_RESOURCE_PLAN_TABLE_H
#define MS_RESOURCE_PLAN_TABLE_H

#include "resource/plan.h"

#include <stdbool.h>

/* What a request wants of one node, and whether that fits. */
struct ms_plan_need {
    uint32_t workers;
    uint64_t cpu_milli, memory;
    uint32_t room; /* workers that would fit; UINT32_MAX: any number */
    bool misfit;   /* this line is a reason for the failure */
};

/* Append the table; needs[] has one entry a node, or is NULL when the request failed
 * before any node was looked at. */
int ms_plan_explain(const struct ms_plan_node *nodes,
                    size_t node_count,
                    const struct ms_plan_request *request,
                    const struct ms_plan_need *needs,
                    struct ms_buf *table);

#endif
