/* driver.c - a driver in C: starts workers, calls them, sees one die
 *
 * cc -o driver driver.c $(pkg-config --cflags --libs muster)
 * ./driver ./libreward.so:reward
 */
#include <muster/driver.h>

#include <stdio.h>

enum { WORKERS = 3 };

static const int64_t second_ns = 1000000000;

static int fail(const char *what, const struct muster_error *err)
{
    fprintf(
        stderr, "%s: %s: %s\n", what, muster_error_kind_name(err->kind), err->message);
    return 1;
}

static struct muster_value *texts(void)
{
    struct muster_value *args = muster_value_list(), *list = muster_value_list();

    muster_list_append(list, muster_value_text("abracadabra"));
    muster_list_append(list, muster_value_text("the quick brown fox"));
    muster_list_append(args, list);
    return args;
}

/* All workers score the same texts. */
static int score(struct muster_cluster *c)
{
    struct muster_value *args = texts(), *results[WORKERS];
    struct muster_error err;
    int rc = muster_cluster_call_all_sync(c, "score", args, NULL, results, &err);

    muster_value_destroy(args);
    if (rc < 0)
        return fail("score", &err);
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        printf("worker %u:", rank);
        for (size_t i = 0; i < muster_list_count(results[rank]); i++) {
            double reward = 0;

            muster_value_get_float(muster_list_at(results[rank], i), &reward);
            printf(" %.3f", reward);
        }
        printf("\n");
        muster_value_destroy(results[rank]);
    }
    return 0;
}

/* A tensor to one worker, without waiting at once. */
static int sum(struct muster_cluster *c)
{
    static const float numbers[] = {1, 2, 3, 4, 5, 6};
    const uint64_t shape[] = {2, 3};
    struct muster_value *args = muster_value_list(), *result = NULL;
    struct muster_future *future;
    struct muster_error err;
    double total = 0;
    int rc = -1;

    muster_list_append(args,
                       muster_value_tensor_view(MUSTER_FLOAT32, shape, 2, numbers));
    future = muster_cluster_call(c, 1, "sum", args, NULL, &err);
    muster_value_destroy(args);
    if (future)
        rc = muster_future_result(future, &result, &err);
    muster_future_destroy(future);
    if (rc < 0)
        return fail("sum", &err);
    muster_value_get_float(result, &total);
    printf("sum: %g\n", total);
    muster_value_destroy(result);
    return 0;
}

/* One worker dies; the others go on. */
static int death(struct muster_cluster *c)
{
    struct muster_error err;

    if (muster_cluster_call_sync(c, 0, "crash", NULL, NULL, NULL, &err) == 0 ||
        err.kind != MUSTER_ERROR_WORKER_DIED)
        return fail("crash", &err);
    printf("worker 0 died of signal %d; its last words: %s\n",
           err.exit.signal,
           err.exit.last_lines);
    if (muster_cluster_call_sync(c, 1, "count", NULL, NULL, NULL, &err) == 0 ||
        err.kind != MUSTER_ERROR_RAISED)
        return fail("count", &err);
    printf("worker 1 lives, and complains: %s\n", err.type);
    return 0;
}

int main(int argc, char **argv)
{
    struct muster_session_options session_options = MUSTER_SESSION_OPTIONS;
    struct muster_cluster_options options = MUSTER_CLUSTER_OPTIONS;
    struct muster_session *session;
    struct muster_cluster *cluster;
    struct muster_error err;
    int rc;

    session_options.quiet = true;
    session = muster_init(&session_options, &err);
    if (!session)
        return fail("init", &err);
    options.name = "reward";
    options.worker_cls = argc > 1 ? argv[1] : "./libreward.so:reward";
    options.world_size = WORKERS;
    cluster = muster_cluster_create(session, &options, &err);
    if (!cluster) {
        muster_shutdown(session, 0);
        return fail("create", &err);
    }
    rc = score(cluster) || sum(cluster) || death(cluster);
    muster_cluster_destroy(cluster, second_ns);
    muster_shutdown(session, second_ns);
    return rc;
}
