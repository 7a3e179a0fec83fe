/* driver.c - empty calls to a worker, one after the other
 *
 * driver WORKER_CLS [ROUNDS]
 */
#include "times.h"

#include <muster/driver.h>

enum { WARM = 2000 };

static int call(struct muster_cluster *c, int64_t *times, size_t count)
{
    struct muster_error err;

    for (size_t i = 0; i < WARM + count; i++) {
        int64_t begin = now_ns();

        if (muster_cluster_call_sync(c, 0, "nothing", NULL, NULL, NULL, &err) < 0) {
            fprintf(stderr, "%s\n", err.message);
            return -1;
        }
        if (i >= WARM)
            times[i - WARM] = now_ns() - begin;
    }
    return 0;
}

int main(int argc, char **argv)
{
    size_t count = argc > 2 ? strtoul(argv[2], NULL, 10) : 20000;
    int64_t *times = calloc(count, sizeof *times);
    struct muster_cluster_options options = MUSTER_CLUSTER_OPTIONS;
    struct muster_session *session;
    struct muster_cluster *cluster;
    struct muster_error err;
    int rc;

    if (!times || argc < 2)
        return 2;
    session = muster_init(NULL, &err);
    options.name = "bench";
    options.worker_cls = argv[1];
    cluster = session ? muster_cluster_create(session, &options, &err) : NULL;
    if (!cluster) {
        fprintf(stderr, "%s\n", err.message);
        muster_shutdown(session, 0);
        return 1;
    }
    rc = call(cluster, times, count);
    if (rc == 0)
        print_times(times, count);
    muster_cluster_destroy(cluster, 0);
    muster_shutdown(session, 0);
    free(times);
    return rc < 0;
}
