/* capi_test.c - the driver's C interface over real processes */
#include "capi/test_rig.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

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

static int group_setup(void **state)
{
    (void)state;
    return rig_start(on_log);
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
