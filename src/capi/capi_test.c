/* The driver's C interface over real processes. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "muster/muster.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { WORKERS = 3 };

static struct muster_session *session;
static struct muster_cluster *cluster;
static struct muster_error err;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t told;
    const char *wanted;
    bool heard;
} log_ear = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, false};

static void on_log(void *arg, const struct muster_log_line *line)
{
    (void)arg;
    pthread_mutex_lock(&log_ear.lock);
    if (log_ear.wanted && strlen(log_ear.wanted) == line->len &&
        memcmp(log_ear.wanted, line->text, line->len) == 0) {
        log_ear.heard = true;
        pthread_cond_signal(&log_ear.told);
    }
    pthread_mutex_unlock(&log_ear.lock);
}

static struct muster_cluster_options options_of(const char *name, uint32_t world_size)
{
    struct muster_cluster_options o = MUSTER_CLUSTER_OPTIONS;

    o.name = name;
    o.world_size = world_size;
    o.worker_cls = getenv("MUSTER_TEST_WORKER");
    return o;
}

static int group_setup(void **state)
{
    struct muster_session_options o = MUSTER_SESSION_OPTIONS;
    struct muster_cluster_options co = options_of("three", WORKERS);

    (void)state;
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

static int group_teardown(void **state)
{
    (void)state;
    muster_cluster_destroy(cluster, MS_NS_PER_S);
    muster_shutdown(session, MS_NS_PER_S);
    return 0;
}

static void destroy(struct muster_value **v)
{
    muster_value_destroy(*v);
}

static void future_destroy(struct muster_future **f)
{
    muster_future_destroy(*f);
}

#define VALUE  MS_CLEANUP(destroy) struct muster_value *
#define FUTURE MS_CLEANUP(future_destroy) struct muster_future *

/* A list of one integer (or of none). */
static struct muster_value *one(int64_t n)
{
    struct muster_value *list = muster_value_list();

    muster_list_append(list, muster_value_int(n));
    return list;
}

static int64_t integer(const struct muster_value *v)
{
    int64_t n = INT64_MIN;

    assert_int_equal(muster_value_get_int(v, &n), 0);
    return n;
}

static void test_arguments(void **state)
{
    VALUE args = one(7);
    VALUE kwargs = muster_value_map();
    VALUE result = NULL;
    struct muster_call_options o = MUSTER_CALL_OPTIONS;

    (void)state;
    muster_map_set(kwargs, "key", muster_value_text("value"));
    o.kwargs = kwargs;
    assert_int_equal(
        muster_cluster_call_sync(cluster, 2, "echo", args, &o, &result, &err), 0);
    assert_int_equal(integer(muster_list_at(muster_list_at(result, 0), 0)), 7);
    assert_string_equal(
        muster_value_get_text(muster_map_find(muster_list_at(result, 1), "key"), NULL),
        "value");
}

static void test_all(void **state)
{
    struct muster_value *results[WORKERS] = {NULL};

    (void)state;
    assert_int_equal(
        muster_cluster_call_all_sync(cluster, "rank", NULL, NULL, results, &err), 0);
    for (int i = 0; i < WORKERS; i++) {
        assert_int_equal(integer(results[i]), i);
        muster_value_destroy(results[i]);
    }
    assert_int_equal(
        muster_cluster_call_all_sync(cluster, "rank", NULL, NULL, NULL, &err), 0);
}

static void test_some(void **state)
{
    uint32_t ranks[] = {2, 0};
    struct muster_future *futures[2];

    (void)state;
    assert_int_equal(
        muster_cluster_call_some(cluster, ranks, 2, "rank", NULL, NULL, futures, &err),
        0);
    for (int i = 0; i < 2; i++) {
        VALUE v = NULL;

        assert_int_equal(muster_future_result(futures[i], &v, &err), 0);
        assert_int_equal(integer(v), ranks[i]);
        assert_int_equal(muster_future_result(futures[i], &v, &err), -EALREADY);
        muster_future_destroy(futures[i]);
    }
    ranks[1] = WORKERS;
    assert_int_equal(
        muster_cluster_call_some(cluster, ranks, 2, "rank", NULL, NULL, futures, &err),
        -ERANGE);
    assert_null(futures[0]);
}

static void test_failures(void **state)
{
    VALUE args = one(1);
    VALUE text = muster_value_text("not a list");
    VALUE result = NULL;
    struct muster_value *results[WORKERS] = {NULL};

    (void)state;
    assert_int_equal(
        muster_cluster_call_sync(cluster, 1, "fail_on", args, NULL, &result, &err),
        -EREMOTEIO);
    assert_int_equal(err.kind, MUSTER_ERROR_RAISED);
    assert_string_equal(err.type, "Chosen");
    assert_non_null(strstr(err.message, "it is rank 1"));
    assert_non_null(strstr(err.where, "three/1@"));
    assert_null(result);
    assert_int_equal(
        muster_cluster_call_sync(cluster, 0, "fly", NULL, NULL, NULL, &err), -ENOSYS);
    assert_int_equal(err.kind, MUSTER_ERROR_NO_METHOD);
    assert_int_equal(
        muster_cluster_call_sync(cluster, 0, "echo", text, NULL, NULL, &err), -EINVAL);
    assert_int_equal(err.kind, MUSTER_ERROR_BAD_ARGUMENT);
    assert_int_equal(
        muster_cluster_call_sync(cluster, WORKERS, "echo", NULL, NULL, NULL, NULL),
        -ERANGE);
    /* the others hang until nobody waits for them: the failure comes at once */
    muster_list_append(args, muster_value_bool(true));
    assert_int_equal(
        muster_cluster_call_all_sync(cluster, "fail_on", args, NULL, results, &err),
        -EREMOTEIO);
    assert_null(results[0]);
}

static void test_engine(void **state)
{
    struct muster_call_options o = MUSTER_CALL_OPTIONS;

    (void)state;
    o.engine = "other";
    assert_int_equal(muster_cluster_call_sync(cluster, 0, "rank", NULL, &o, NULL, &err),
                     -ENOENT);
    assert_int_equal(err.kind, MUSTER_ERROR_NO_ENGINE);
}

static void test_deadline(void **state)
{
    struct muster_call_options o = MUSTER_CALL_OPTIONS;

    (void)state;
    o.timeout_ns = 50 * MS_NS_PER_MS;
    assert_int_equal(muster_cluster_call_sync(cluster, 0, "hang", NULL, &o, NULL, &err),
                     -ETIMEDOUT);
    assert_int_equal(err.kind, MUSTER_ERROR_DEADLINE);
}

static void test_cancel_and_wait(void **state)
{
    FUTURE hanging = muster_cluster_call(cluster, 0, "hang", NULL, NULL, &err);
    FUTURE quick = muster_cluster_call(cluster, 1, "rank", NULL, NULL, &err);
    struct muster_future *both[] = {hanging, quick};

    (void)state;
    assert_int_equal(muster_future_wait_any(both, 2, 20 * MS_NS_PER_S), 1);
    assert_int_equal(muster_future_wait_any(both, 1, MS_NS_PER_MS), -ETIMEDOUT);
    assert_int_equal(muster_future_wait(hanging, MS_NS_PER_MS), -ETIMEDOUT);
    assert_false(muster_future_is_done(hanging));
    muster_future_cancel(hanging);
    assert_int_equal(muster_future_result(hanging, NULL, &err), -ECANCELED);
    assert_int_equal(err.kind, MUSTER_ERROR_CANCELLED);
}

static void test_stream(void **state)
{
    VALUE args = one(700);
    FUTURE f = muster_cluster_call(cluster, 0, "count", args, NULL, &err);
    struct muster_value *item = NULL;
    int64_t seen = 0;
    int rc;

    (void)state;
    while ((rc = muster_future_next(f, 20 * MS_NS_PER_S, &item, &err)) == 1) {
        assert_int_equal(integer(item), seen++);
        muster_value_destroy(item);
    }
    assert_int_equal(rc, 0);
    assert_int_equal(seen, 700);
    assert_int_equal(muster_future_result(f, NULL, &err), 0);
}

static void test_stream_that_fails(void **state)
{
    VALUE args = one(2);
    FUTURE f = NULL;
    struct muster_value *item = NULL;

    (void)state;
    muster_list_append(args, muster_value_bool(true));
    f = muster_cluster_call(cluster, 0, "count", args, NULL, &err);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(muster_future_next(f, 20 * MS_NS_PER_S, &item, &err), 1);
        muster_value_destroy(item);
    }
    assert_int_equal(muster_future_next(f, 20 * MS_NS_PER_S, &item, &err), -EREMOTEIO);
    assert_string_equal(err.type, "Tired");
}

static void test_bytes(void **state)
{
    FUTURE f = muster_cluster_call_bytes(cluster, 1, "reverse", "abc", 3, NULL, &err);
    VALUE result = NULL;
    size_t len = 0;

    (void)state;
    assert_int_equal(muster_future_result(f, &result, &err), 0);
    assert_memory_equal(muster_value_get_bytes(result, &len), "cba", 3);
    assert_int_equal(len, 3);
}

static void test_big_tensor(void **state)
{
    enum { SIZE = 4 << 20 };
    MS_CLEANUP(ms_cleanup_free) uint8_t *data = malloc(SIZE);
    uint64_t shape[] = {4, SIZE / 4};
    VALUE args = muster_value_list();
    VALUE result = NULL;
    const struct muster_value *back;

    (void)state;
    for (size_t i = 0; i < SIZE; i++)
        data[i] = (uint8_t)(i >> 3);
    muster_list_append(args, muster_value_tensor_view(MUSTER_UINT8, shape, 2, data));
    assert_int_equal(
        muster_cluster_call_sync(cluster, 0, "echo", args, NULL, &result, &err), 0);
    back = muster_list_at(muster_list_at(result, 0), 0);
    assert_int_equal(muster_tensor_shape(back)[1], SIZE / 4);
    assert_memory_equal(muster_tensor_data(back, NULL), data, SIZE);
}

static void test_handle(void **state)
{
    struct muster_cluster *c = muster_cluster_open(session, "three", &err);
    VALUE result = NULL;

    (void)state;
    assert_non_null(c);
    assert_int_equal(muster_cluster_world_size(c), WORKERS);
    assert_int_equal(muster_cluster_pid(c, 1), muster_cluster_pid(cluster, 1));
    assert_int_equal(muster_cluster_call_sync(c, 1, "rank", NULL, NULL, &result, &err),
                     0);
    assert_int_equal(integer(result), 1);
    muster_cluster_close(c);
    assert_null(muster_cluster_open(session, "four", &err));
    assert_int_equal(err.code, -ENOENT);
    assert_int_equal(
        muster_cluster_call_sync(cluster, 1, "rank", NULL, NULL, NULL, &err), 0);
}

static void test_a_newer_one_of_that_name_is_left_alone(void **state)
{
    struct muster_cluster_options o = options_of("twin", 1);
    struct muster_cluster *old = muster_cluster_create(session, &o, &err), *new;

    (void)state;
    assert_non_null(old);
    muster_cluster_destroy(muster_cluster_open(session, "twin", &err), 0);
    new = muster_cluster_create(session, &o, &err);
    assert_non_null(new);
    muster_cluster_destroy(old, 0);
    assert_int_equal(muster_cluster_call_sync(new, 0, "rank", NULL, NULL, NULL, &err),
                     0);
    muster_cluster_destroy(new, 0);
    assert_null(muster_cluster_open(session, "twin", &err));
}

static void test_death(void **state)
{
    struct muster_cluster_options o = options_of("mortal", 2);
    struct muster_cluster *c = muster_cluster_create(session, &o, &err);

    (void)state;
    assert_non_null(c);
    assert_int_equal(muster_cluster_call_sync(c, 0, "leave", NULL, NULL, NULL, &err),
                     -EPIPE);
    assert_int_equal(err.kind, MUSTER_ERROR_WORKER_DIED);
    assert_int_equal(err.exit.pid, muster_cluster_pid(c, 0));
    assert_int_equal(err.exit.exit_code, 7);
    assert_int_equal(err.exit.signal, 0);
    assert_non_null(strstr(err.exit.last_lines, "leaving"));
    assert_string_equal(err.exit.log_path, muster_cluster_log_path(c, 0));
    assert_non_null(strstr(err.message, "exited with code 7"));
    kill(muster_cluster_pid(c, 1), SIGKILL);
    assert_int_equal(muster_cluster_call_sync(c, 1, "rank", NULL, NULL, NULL, &err),
                     -EPIPE);
    assert_int_equal(err.exit.signal, SIGKILL);
    assert_null(muster_cluster_log_path(c, 2));
    muster_cluster_destroy(c, 0);
}

static void test_all_or_none(void **state)
{
    struct muster_cluster_options o = options_of("unlucky", 2);
    VALUE args = one(1);
    struct muster_cluster *c;

    (void)state;
    o.args = args;
    assert_null(muster_cluster_create(session, &o, &err));
    assert_int_equal(err.kind, MUSTER_ERROR_RAISED);
    assert_string_equal(err.type, "Unlucky");
    o.args = NULL;
    c = muster_cluster_create(session, &o, &err); /* the name is free again */
    assert_non_null(c);
    muster_cluster_destroy(c, 0);
}

static void test_refusals(void **state)
{
    struct muster_cluster_options o = options_of("three", 1);

    (void)state;
    assert_null(muster_cluster_create(session, &o, &err));
    assert_int_equal(err.code, -EEXIST);
    assert_int_equal(
        muster_cluster_call_sync(cluster, 0, "rank", NULL, NULL, NULL, &err), 0);
    o.name = "../up";
    assert_null(muster_cluster_create(session, &o, &err));
    assert_int_equal(err.code, -EINVAL);
    o.name = "nowhere";
    o.worker_cls = "./libnothing.so:test";
    assert_null(muster_cluster_create(session, &o, &err));
    assert_int_equal(err.kind, MUSTER_ERROR_REFUSED);
    assert_non_null(strstr(err.message, "libnothing.so"));
    o.worker_cls = "nothing";
    assert_null(muster_cluster_create(session, &o, &err));
    assert_int_equal(err.code, -EINVAL);
}

/* What is needed and not given is an error, and not a crash. */
static void test_null(void **state)
{
    struct muster_group_options go = MUSTER_GROUP_OPTIONS;
    struct muster_cluster_options o = options_of("null", 1);
    struct muster_future *f = NULL;

    (void)state;
    assert_null(muster_cluster_create(session, NULL, &err));
    assert_int_equal(err.code, -EINVAL);
    assert_int_equal(err.kind, MUSTER_ERROR_BAD_ARGUMENT);
    assert_null(muster_cluster_create(NULL, &o, &err));
    assert_null(muster_cluster_create(NULL, NULL, NULL));
    assert_null(muster_cluster_open(session, NULL, &err));
    assert_null(muster_cluster_open(NULL, "three", &err));
    assert_int_equal(muster_cluster_world_size(NULL), 0);
    assert_null(muster_cluster_name(NULL));
    assert_null(muster_cluster_node(NULL, 0));
    assert_null(muster_session_name(NULL));

    assert_int_equal(muster_cluster_call_sync(NULL, 0, "rank", NULL, NULL, NULL, &err),
                     -EINVAL);
    assert_non_null(strstr(err.message, "a cluster"));
    assert_int_equal(muster_cluster_call_sync(cluster, 0, NULL, NULL, NULL, NULL, &err),
                     -EINVAL);
    assert_non_null(strstr(err.message, "a method"));
    assert_null(muster_cluster_call(cluster, 0, NULL, NULL, NULL, &err));
    assert_null(muster_cluster_call_bytes(NULL, 0, "echo", "x", 1, NULL, &err));
    assert_null(muster_cluster_call_bytes(cluster, 0, "echo", NULL, 1, NULL, &err));
    assert_int_equal(muster_cluster_call_all_sync(NULL, "rank", NULL, NULL, NULL, &err),
                     -EINVAL);
    assert_int_equal(
        muster_cluster_call_some(cluster, NULL, 1, "rank", NULL, NULL, NULL, &err),
        -EINVAL);

    assert_int_equal(muster_future_wait(NULL, 0), -EINVAL);
    assert_int_equal(muster_future_wait_any(&f, 1, 0), -EINVAL);
    assert_int_equal(muster_future_result(NULL, NULL, &err), -EINVAL);
    muster_future_cancel(NULL);

    assert_null(muster_resources_create(NULL, -1, 0, &err));
    assert_null(muster_group_create(session, NULL, &err));
    go.count = 2;
    assert_null(muster_group_create(session, &go, &err));
    assert_int_equal(err.code, -EINVAL);
    assert_null(muster_group_open(session, NULL, &err));
    assert_int_equal(muster_group_wait(NULL, 0, &err), -EINVAL);
    assert_int_equal(muster_group_remove(NULL, &err), -EINVAL);
}

static void test_placement(void **state)
{
    struct muster_cluster_options o = options_of("placed", 0);
    struct muster_resources *r = muster_resources_create(session, 2, 1, &err);
    struct muster_cluster *c;

    (void)state;
    assert_non_null(r);
    assert_int_equal(muster_resources_nodes(r), 1);
    assert_int_equal(muster_resources_gpus_per_node(r), 2);
    assert_non_null(muster_resources_node_name(r, 0));
    o.resources = r;
    o.device_mapping = "0-3";
    assert_null(muster_cluster_create(session, &o, &err));
    assert_int_equal(err.kind, MUSTER_ERROR_PLACEMENT);
    o.device_mapping = "0-1";
    c = muster_cluster_create(session, &o, &err);
    muster_resources_destroy(r);
    assert_non_null(c);
    assert_int_equal(muster_cluster_world_size(c), 2);
    assert_string_equal(muster_cluster_name(c), "placed");
    muster_cluster_destroy(c, 0);
    assert_null(muster_resources_create(session, 64, 0, &err));
    assert_int_equal(err.kind, MUSTER_ERROR_PLACEMENT);
}

static void test_groups(void **state)
{
    static const char *const nowhere[] = {"rack=r9", NULL};
    struct muster_bundle one = {.gpus = 1}, whole = {.gpus = 4};
    struct muster_group_options o = MUSTER_GROUP_OPTIONS;
    struct muster_cluster_options c = options_of("seated", 0);
    struct muster_group *group, *same, *late;
    struct muster_cluster *seated;
    const uint32_t *devices;
    size_t count;

    (void)state;
    one.count = 2;
    o.name = "g";
    o.bundles = &one;
    o.count = 1;
    group = muster_group_create(session, &o, &err);
    assert_non_null(group);
    assert_int_equal(muster_group_bundles(group), 2);
    assert_non_null(muster_group_node(group, 1));
    assert_null(muster_group_node(group, 2));
    devices = muster_group_devices(group, 1, &count);
    assert_true(count == 1 && devices[0] == 1);
    c.group = group;
    c.first_bundle = 1;
    seated = muster_cluster_create(session, &c, &err);
    assert_non_null(seated);
    assert_int_equal(muster_cluster_world_size(seated), 1);
    assert_int_equal(muster_group_remove(group, &err), -EBUSY);
    assert_non_null(strstr(err.message, "cluster 'seated' stands in it"));
    muster_cluster_destroy(seated, 0);

    o.name = "h";
    o.bundles = &whole;
    assert_null(muster_group_create(session, &o, &err)); /* now or never */
    assert_int_equal(err.kind, MUSTER_ERROR_PLACEMENT);
    assert_non_null(strstr(err.message, "0-1 g"));
    o.timeout_ns = 20 * INT64_C(1000000000);
    o.no_wait = true;
    late = muster_group_create(session, &o, &err);
    assert_non_null(late);
    assert_int_equal(muster_group_state(late), MUSTER_GROUP_WAITING);
    same = muster_group_open(session, "g", &err);
    assert_non_null(same);
    assert_int_equal(muster_group_remove(group, &err), 0);
    assert_int_equal(muster_group_state(same), MUSTER_GROUP_REMOVED);
    muster_group_close(same);
    assert_int_equal(muster_group_wait(late, o.timeout_ns, &err), 0);
    assert_string_equal(muster_group_name(late), "h");
    assert_int_equal(muster_group_remove(late, &err), 0);
    whole.labels = nowhere;
    assert_null(muster_group_create(session, &o, &err)); /* at once */
    assert_int_equal(err.kind, MUSTER_ERROR_PLACEMENT);
    whole.gpus = -1;
    assert_null(muster_group_create(session, &o, &err));
    assert_int_equal(err.code, -EINVAL);
    assert_null(muster_group_open(session, "none", &err));
    assert_int_equal(err.code, -ENOENT);
}

static void test_cpus_are_counted(void **state)
{
    struct muster_cluster_options o = options_of("greedy", 1);

    (void)state;
    o.num_cpus = 100000;
    assert_null(muster_cluster_create(session, &o, &err));
    assert_int_equal(err.kind, MUSTER_ERROR_PLACEMENT);
    assert_non_null(strstr(err.message, "greedy"));
}

static void test_logs(void **state)
{
    VALUE args = muster_value_list();

    (void)state;
    muster_list_append(args, muster_value_text("a line to be heard"));
    log_ear.wanted = "a line to be heard";
    assert_int_equal(
        muster_cluster_call_sync(cluster, 0, "say", args, NULL, NULL, &err), 0);
    pthread_mutex_lock(&log_ear.lock);
    while (!log_ear.heard)
        pthread_cond_wait(&log_ear.told, &log_ear.lock);
    pthread_mutex_unlock(&log_ear.lock);
}

/* A child may leave as it likes: nothing of its parent's ends. */
static void test_fork(void **state)
{
    pid_t pid = fork();
    int status = 0;

    (void)state;
    if (pid == 0) {
        bool failed =
            muster_cluster_call_sync(cluster, 0, "rank", NULL, NULL, NULL, &err) < 0;

        muster_shutdown(session, 0);
        _exit(failed ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(
        muster_cluster_call_sync(cluster, 0, "rank", NULL, NULL, NULL, &err), 0);
}

static void test_order_of_ends(void **state)
{
    struct muster_session_options so = MUSTER_SESSION_OPTIONS;
    struct muster_cluster_options o = options_of("late", 1);
    struct muster_session *s;
    struct muster_cluster *c;
    struct muster_future *f;

    (void)state;
    so.muster_path = getenv("MUSTER_CLI");
    so.quiet = true;
    s = muster_init(&so, &err);
    assert_non_null(s);
    c = muster_cluster_create(s, &o, &err);
    assert_non_null(c);
    f = muster_cluster_call(c, 0, "hang", NULL, NULL, &err);
    muster_shutdown(s, 0);
    assert_true(muster_future_result(f, NULL, &err) < 0);
    assert_int_equal(err.kind, MUSTER_ERROR_SHUTTING_DOWN);
    muster_future_destroy(f);
    muster_cluster_destroy(c, 0);
}

static void test_no_program(void **state)
{
    struct muster_session_options so = MUSTER_SESSION_OPTIONS;

    (void)state;
    so.muster_path = "/nonexistent/muster";
    assert_null(muster_init(&so, &err));
    assert_int_equal(err.code, -ENOENT);
    assert_non_null(strstr(err.message, "/nonexistent/muster"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_all),
        cmocka_unit_test(test_some),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_engine),
        cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_cancel_and_wait),
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_stream_that_fails),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_big_tensor),
        cmocka_unit_test(test_handle),
        cmocka_unit_test(test_a_newer_one_of_that_name_is_left_alone),
        cmocka_unit_test(test_death),
        cmocka_unit_test(test_all_or_none),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_null),
        cmocka_unit_test(test_placement),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_cpus_are_counted),
        cmocka_unit_test(test_logs),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_order_of_ends),
        cmocka_unit_test(test_no_program),
    };

    return cmocka_run_group_tests_name("capi", tests, group_setup, group_teardown);
}
