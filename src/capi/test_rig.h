/* test_rig.h - a session with a cluster of C workers, for the tests of the C interface
 *
 * All static: each test program has its own.
 */
#ifndef MS_CAPI_TEST_RIG_H
#define MS_CAPI_TEST_RIG_H

#include "base/cleanup.h"
#include "base/clock.h"
#include "muster/muster.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { WORKERS = 3 };

static struct muster_session *session;
static struct muster_cluster *cluster;
static struct muster_error err;

static inline struct muster_cluster_options options_of(const char *name,
                                                       uint32_t world_size)
{
    struct muster_cluster_options o = MUSTER_CLUSTER_OPTIONS;

    o.name = name;
    o.world_size = world_size;
    o.worker_cls = getenv("MUSTER_TEST_WORKER");
    return o;
}

static inline int rig_start(void (*on_log)(void *arg, const struct muster_log_line *))
{
    struct muster_session_options o = MUSTER_SESSION_OPTIONS;
    struct muster_cluster_options co = options_of("three", WORKERS);

    o.muster_path = getenv("MUSTER_CLI");
    o.num_gpus = 4;
    o.on_log = on_log;
    session = muster_init(&o, &err);
    if (!session) {
        print_error("%s\n", err.message);
        return -1;
    }
    cluster = muster_cluster_create(session, &co, &err);
    if (!cluster)
        print_error("%s\n", err.message);
    return cluster ? 0 : -1;
}

static inline int group_teardown(void **state)
{
    (void)state;
    muster_cluster_destroy(cluster, MS_NS_PER_S);
    muster_shutdown(session, MS_NS_PER_S);
    return 0;
}

static inline void destroy(struct muster_value **v)
{
    muster_value_destroy(*v);
}

static inline void future_destroy(struct muster_future **f)
{
    muster_future_destroy(*f);
}

#define VALUE  MS_CLEANUP(destroy) struct muster_value *
#define FUTURE MS_CLEANUP(future_destroy) struct muster_future *

/* A list of one integer (or of none). */
static inline struct muster_value *one(int64_t n)
{
    struct muster_value *list = muster_value_list();

    muster_list_append(list, muster_value_int(n));
    return list;
}

static inline int64_t integer(const struct muster_value *v)
{
    int64_t n = INT64_MIN;

    assert_int_equal(muster_value_get_int(v, &n), 0);
    return n;
}

#endif
