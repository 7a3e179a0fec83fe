/* role_test.c - what a C driver takes from a job's file, and what it refuses */
#include "capi/capi.h"
#include "capi/generate.h"
#include "capi/test_rig.h"

#include <errno.h>

static const char job_text[] =
    "{'file': 'job.yaml', 'roles': {"
    " 'actor': {'worker_cls': './a.so:actor', 'device_mapping': [0, 1, 3, 4],"
    "  'mesh': {'tp': 2}, 'args': [1, 'two'], 'kwargs': {'deep': {'list': []}},"
    "  'env': {'FLAVOUR': 'plum', 'COUNT': 3, 'ON': true, 'RATE': 0.5}, 'timeout': 1.5,"
    "  'preload': 'numpy', 'start': 'exec', 'memory': '2KiB', 'num_cpus': 0.5},"
    " 'packed': {'world_size': 2, 'bundle': {'GPU': 1, 'memory': '1k',"
    "  'resources': {'tape': 2}, 'labels': {'rack': 'in(a,b)'}}},"
    " 'odd': {'world_size': 'two'}, 'odder': 7},"
    " 'generation': {'slots': 16, 'policy': 'fifo', 'history': 'lengths', 'batch': 32,"
    "  'max_staleness': 2, 'silence': 0.5, 'seed': 7, 'failed': 'skip'}}";

static json_t *job;

static int setup(void **state)
{
    char text[sizeof job_text];

    (void)state;
    memcpy(text, job_text, sizeof text);
    for (char *at = text; (at = strchr(at, '\'')); at++)
        *at = '"';
    job = json_loads(text, 0, NULL);
    return job ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    json_decref(job);
    return 0;
}

static struct muster_cluster_options named(const char *name)
{
    struct muster_cluster_options o = MUSTER_CLUSTER_OPTIONS;

    o.name = name;
    return o;
}

static void test_what_is_left_open(void **state)
{
    MS_CLEANUP(ms_capi_role_finish) struct ms_capi_role role = {0};
    struct muster_cluster_options o = named("actor");
    const char *const more[] = {"MORE=yes", "FLAVOUR=plum", NULL};

    (void)state;
    o.env = more;
    o.device_mapping = "0-1,3-4";
    assert_int_equal(ms_capi_role_merge(&role, job, &o, &err), 0);
    assert_string_equal(o.worker_cls, "./a.so:actor");
    assert_string_equal(o.device_mapping, "0-1,3-4");
    assert_int_equal(muster_list_count(o.args), 2);
    assert_int_equal(muster_map_count(o.kwargs), 1);
    assert_int_equal(ms_capi_count(o.env), 5);
    assert_string_equal(o.env[0], "FLAVOUR=plum");
    assert_string_equal(o.env[1], "COUNT=3");
    assert_string_equal(o.env[2], "ON=True");
    assert_string_equal(o.env[3], "RATE=0.5");
    assert_string_equal(o.env[4], "MORE=yes");
    assert_int_equal(o.timeout_ns, 1500000000);
    assert_int_equal(o.memory, 2048);
    assert_true(o.exec && o.num_cpus == 0.5);
    assert_string_equal(o.preload[0], "numpy");
    assert_null(o.preload[1]);
}

static void test_one_error_names_all(void **state)
{
    MS_CLEANUP(ms_capi_role_finish) struct ms_capi_role role = {0};
    struct muster_cluster_options o = named("a2");
    const char *const env[] = {"FLAVOUR=pear", "FLAV=", NULL};
    const char *const preload[] = {"torch", NULL};
    VALUE args = one(1);

    (void)state;
    o.role = "actor";
    o.worker_cls = ".:a.so:actor";
    o.device_mapping = "0-1";
    o.env = env;
    o.preload = preload;
    o.args = args;
    o.num_cpus = 1;
    o.memory = 1;
    o.timeout_ns = 2;
    assert_int_equal(ms_capi_role_merge(&role, job, &o, &err), -EINVAL);
    assert_string_equal(
        err.message,
        "role 'actor' is another one in job.yaml than here: device_mapping is '0-1' "
        "here "
        "and '[0,1,3,4]' there; num_cpus is 1 here and 0.5 there; memory is 1 here and "
        "2048 there; args is [1] here and [1,\"two\"] there; env['FLAVOUR'] is 'pear' "
        "here and 'plum' there; preload is [\"torch\"] here and [\"numpy\"] there; "
        "timeout is 2e-09 here and 1.5 there; worker_cls is .:a.so:actor here and "
        "./a.so:actor there. Leave it out in one of them");
}

static void test_bundle(void **state)
{
    MS_CLEANUP(ms_capi_role_finish) struct ms_capi_role role = {0}, other = {0};
    struct muster_cluster_options o = named("packed");

    (void)state;
    assert_int_equal(ms_capi_role_merge(&role, job, &o, &err), 0);
    assert_true(role.bundle.gpus == 1 && role.bundle.memory == 1000);
    assert_string_equal(role.bundle.resources[0], "tape=2");
    assert_string_equal(role.bundle.labels[0], "rack=in(a,b)");
    o.group = (struct muster_group *)&role; /* only whether there is one */
    assert_int_equal(ms_capi_role_merge(&other, job, &o, &err), -EINVAL);
    assert_non_null(strstr(err.message, "group is given here and a bundle there"));
}

static void test_no_such_role(void **state)
{
    MS_CLEANUP(ms_capi_role_finish) struct ms_capi_role role = {0}, other = {0};
    struct muster_cluster_options o = named("nobody");
    json_t *none = json_object();

    (void)state;
    assert_int_equal(ms_capi_role_merge(&role, job, &o, &err), 0);
    assert_null(role.told);
    o = named(NULL);
    o.role = "actr";
    assert_int_equal(ms_capi_role_merge(&role, job, &o, &err), -ENOENT);
    assert_string_equal(
        err.message, "job.yaml has no role 'actr'; it has actor, packed, odd, odder");
    assert_int_equal(ms_capi_role_merge(&other, none, &o, &err), 0);
    assert_string_equal(o.name, "actr");
    json_decref(none);
}

/* The store may hold anything. */
static void test_what_is_no_role(void **state)
{
    MS_CLEANUP(ms_capi_role_finish) struct ms_capi_role role = {0}, other = {0};
    struct muster_cluster_options o = named("odd");

    (void)state;
    assert_int_equal(ms_capi_role_merge(&role, job, &o, &err), -EINVAL);
    assert_string_equal(err.message, "job.yaml: role 'odd': world_size: no such value");
    assert_int_equal(o.world_size, 0);
    o = named("odder");
    assert_int_equal(ms_capi_role_merge(&other, job, &o, &err), 0);
}

static void test_settings_of_schedulers(void **state)
{
    struct muster_scheduler_options o = MUSTER_SCHEDULER_OPTIONS;

    (void)state;
    o.batch = 8;
    o.policy = "longest";
    ms_capi_generation_take(job, &o);
    assert_int_equal(o.slots, 16);
    assert_string_equal(o.policy, "longest"); /* the driver's */
    assert_string_equal(o.history, "lengths");
    assert_int_equal(o.batch, 8);
    assert_int_equal(o.max_staleness, 2);
    assert_int_equal(o.silence_ns, 500000000);
    assert_int_equal(o.probe_ns, 10 * MS_NS_PER_S); /* nobody's */
    assert_int_equal(o.seed, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_settings_of_schedulers),
        cmocka_unit_test(test_what_is_left_open),
        cmocka_unit_test(test_one_error_names_all),
        cmocka_unit_test(test_bundle),
        cmocka_unit_test(test_no_such_role),
        cmocka_unit_test(test_what_is_no_role),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
