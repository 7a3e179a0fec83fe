/* run_nodes.h - the nodes that a job runs on, and all of them as pieces
 *
 * Those of the job's file, with what it leaves open looked for here; or this machine.
 */
#ifndef MS_CLI_RUN_NODES_H
#define MS_CLI_RUN_NODES_H

#include "job/file.h"
#include "resource/place.h"

struct ms_run_nodes {
    Muster__NodeShape **shapes;
    size_t count;
    struct ms_stock stock;          /* the same nodes */
    struct ms_place_request pieces; /* each is the whole of one of them */
    struct ms_bundle *bundles;
};

/* 0, or -EINVAL, -E2BIG, -ENOMEM with the reason. Finish it in any case. `key` is
 * borrowed. */
int ms_run_nodes_init(struct ms_run_nodes *n,
                      const struct ms_job *job,
                      const char *key,
                      struct ms_error *err);
void ms_run_nodes_finish(struct ms_run_nodes *n);

/* Another stock of these nodes. */
int ms_run_nodes_stock(const struct ms_run_nodes *n,
                       struct ms_stock *out,
                       struct ms_error *err);

#endif
