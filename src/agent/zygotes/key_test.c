/* key_test.c - tests of key.h: which workers can come from which zygote */
#include "agent/zygotes/key.h"
#include "base/cleanup.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static char python[] = "/usr/bin/python3", other[] = "/opt/python",
            home[] = "HOME=/root", omp1[] = "OMP_NUM_THREADS=1",
            omp4[] = "OMP_NUM_THREADS=4",
            arrow[] = "JE_ARROW_MALLOC_CONF=background_thread:false", torch[] = "torch",
            numpy[] = "numpy", mod[] = "pkg.mod", path_a[] = "/a", path_b[] = "/b",
            folder[] = "/job";
static char *pythons[] = {python}, *others[] = {other}, *paths[] = {path_a, path_b};

/* A driver, what is asked of it, and a worker's environment; all to be changed. */
struct rig {
    Muster__DriverContext context;
    Muster__ZygoteKey asked;
    struct ms_zygote_need need;
};

static void rig_init(struct rig *r, char **env, size_t n_env)
{
    muster__driver_context__init(&r->context);
    muster__zygote_key__init(&r->asked);
    r->context.n_python = 1;
    r->context.python = pythons;
    r->context.n_sys_path = 2;
    r->context.sys_path = paths;
    r->context.working_dir = folder;
    r->need = (struct ms_zygote_need){
        .context = &r->context, .asked = &r->asked, .env = env, .n_env = n_env};
}

static Muster__DriverContext *make(const struct rig *r)
{
    Muster__DriverContext *k = ms_zygote_key_create(&r->need);

    assert_non_null(k);
    return k;
}

/* Whether two environments ask for the same zygote. */
static bool same(char **a, size_t n_a, char **b, size_t n_b)
{
    struct rig ra, rb;
    MS_CLEANUP(ms_zygote_key_cleanup) Muster__DriverContext *ka = NULL;
    MS_CLEANUP(ms_zygote_key_cleanup) Muster__DriverContext *kb = NULL;

    rig_init(&ra, a, n_a);
    rig_init(&rb, b, n_b);
    ka = make(&ra);
    kb = make(&rb);
    return ms_zygote_key_equal(ka, kb);
}

static void test_what_nobody_says(void **state)
{
    char *env[] = {home}, *said[] = {omp1, arrow, home}, *four[] = {home, omp4};
    struct rig r;
    MS_CLEANUP(ms_zygote_key_cleanup) Muster__DriverContext *k = NULL;

    (void)state;
    rig_init(&r, env, 1);
    r.need.asked = NULL;
    k = make(&r);
    assert_string_equal(k->python[0], python);
    assert_string_equal(k->working_dir, folder);
    assert_int_equal(k->n_sys_path, 2);
    assert_int_equal(k->n_preload, 0);
    assert_int_equal(k->n_env, 3);
    assert_true(ms_zygote_key_has_env(k, home));
    assert_true(ms_zygote_key_has_env(k, omp1));
    assert_true(ms_zygote_key_has_env(k, arrow));
    assert_false(ms_zygote_key_has_env(k, omp4));
    assert_true(same(env, 1, said, 3)); /* in any order */
    assert_false(same(env, 1, four, 2));
}

static void test_every_variable_counts(void **state)
{
    char hub[] = "HF_HOME=/models", empty[] = "HF_HOME=", mine[] = "RANK_OF_MINE=1",
         muster[] = "MUSTER_OF_MINE=1";
    char *plain[] = {home}, *with[] = {home, hub}, *without[] = {home, empty},
         *like_rank[] = {home, mine}, *like_ours[] = {home, muster};

    (void)state;
    assert_false(same(plain, 1, with, 2));
    assert_false(same(with, 2, without, 2));
    assert_false(same(plain, 1, without, 2));
    assert_false(same(plain, 1, like_rank, 2));
    assert_false(same(plain, 1, like_ours, 2));
}

/* A worker that makes a cluster asks for what its driver asked for. */
static void test_a_rank_of_a_driver(void **state)
{
    char term[] = "TERM=xterm", pwd[] = "PWD=/home/me", rank[] = "RANK=3",
         size[] = "WORLD_SIZE=4", local[] = "LOCAL_RANK=0", port[] = "MASTER_PORT=1234",
         name[] = "WORKER_NAME=a-3",
         devices[] = "CUDA_VISIBLE_DEVICES=", npu[] = "ASCEND_RT_VISIBLE_DEVICES=2",
         uid[] = "MUSTER_WORKER_UID=00",
         which[] = "MUSTER_DEVICE_VARIABLE=CUDA_VISIBLE_DEVICES",
         where[] = "MUSTER_HOME=/tmp/m";
    char *driver[] = {term, home},
         *worker[] = {
             home, rank, size, local, port, name, devices, npu, uid, which, where, pwd};

    (void)state;
    assert_true(same(driver, 2, worker, 12));
}

static void test_devices_that_no_table_has(void **state)
{
    char set[] = "MY_CHIPS=1", variable[] = "MY_CHIPS";
    Muster__NodeShape shape = MUSTER__NODE_SHAPE__INIT;
    Muster__Device device = MUSTER__DEVICE__INIT, *devices[] = {&device};

    (void)state;
    assert_true(ms_zygote_key_counts(set, NULL));
    device.variable = variable;
    shape.n_devices = 1;
    shape.devices = devices;
    assert_false(ms_zygote_key_counts(set, &shape));
}

static void test_changed_variables(void **state)
{
    char set[] = "A=2", more[] = "B=3", *env[] = {home}, *then[] = {home, more};
    struct rig r;
    MS_CLEANUP(ms_zygote_key_cleanup) Muster__DriverContext *k = NULL;
    MS_CLEANUP(ms_zygote_key_cleanup) Muster__DriverContext *copy = NULL;
    MS_CLEANUP(ms_zygote_key_cleanup) Muster__DriverContext *want = NULL;

    (void)state;
    rig_init(&r, env, 1);
    k = make(&r);
    copy = ms_zygote_key_copy(k);
    assert_non_null(copy);
    assert_true(ms_zygote_key_equal(copy, k));
    assert_int_equal(ms_zygote_key_change_env(copy, "A=1"), 0);
    assert_int_equal(ms_zygote_key_change_env(copy, set), 0);
    assert_true(ms_zygote_key_has_env(copy, set));
    assert_false(ms_zygote_key_has_env(copy, "A=1"));
    assert_int_equal(ms_zygote_key_change_env(copy, more), 0);
    assert_int_equal(ms_zygote_key_change_env(copy, "A"), 0);
    assert_int_equal(ms_zygote_key_change_env(copy, "NOT_THERE"), 0);
    assert_false(ms_zygote_key_has_env(copy, set));
    rig_init(&r, then, 2);
    want = make(&r);
    assert_true(ms_zygote_key_equal(copy, want));
    assert_false(ms_zygote_key_equal(copy, k));
}

static void test_folder_and_path(void **state)
{
    char *env[] = {home};
    struct rig r;
    MS_CLEANUP(ms_zygote_key_cleanup) Muster__DriverContext *a = NULL;
    MS_CLEANUP(ms_zygote_key_cleanup) Muster__DriverContext *b = NULL;
    MS_CLEANUP(ms_zygote_key_cleanup) Muster__DriverContext *c = NULL;

    (void)state;
    rig_init(&r, env, 1);
    a = make(&r);
    r.need.working_dir = "/elsewhere";
    b = make(&r);
    assert_string_equal(b->working_dir, "/elsewhere");
    assert_false(ms_zygote_key_extends(b, a));
    r.need.working_dir = "";
    r.context.n_sys_path = 1;
    c = make(&r);
    assert_false(ms_zygote_key_extends(c, a));
}

static void test_modules(void **state)
{
    char *env[] = {home}, *preload[] = {torch, numpy, mod, torch},
         *turned[] = {mod, torch}, *missing[2];
    struct rig r;
    MS_CLEANUP(ms_zygote_key_cleanup) Muster__DriverContext *base = NULL;
    MS_CLEANUP(ms_zygote_key_cleanup) Muster__DriverContext *more = NULL;
    MS_CLEANUP(ms_zygote_key_cleanup) Muster__DriverContext *again = NULL;

    (void)state;
    rig_init(&r, env, 1);
    r.asked.preload = preload;
    r.asked.n_preload = 1;
    base = make(&r);
    r.asked.n_preload = 4;
    more = make(&r);
    assert_int_equal(more->n_preload, 2);
    assert_string_equal(more->preload[0], torch); /* imported as asked */
    assert_true(ms_zygote_key_extends(more, base));
    assert_false(ms_zygote_key_extends(base, more));
    assert_false(ms_zygote_key_equal(more, base));
    assert_int_equal(ms_zygote_key_missing(more, base, missing), 1);
    assert_string_equal(missing[0], mod);
    r.asked.preload = turned;
    r.asked.n_preload = 2;
    again = make(&r);
    assert_true(ms_zygote_key_equal(again, more));
}

static void test_modules_of_all_workers(void **state)
{
    char *env[] = {home}, *common[] = {torch}, *own[] = {mod, torch};
    struct rig r;
    MS_CLEANUP(ms_zygote_key_cleanup) Muster__DriverContext *with = NULL;
    MS_CLEANUP(ms_zygote_key_cleanup) Muster__DriverContext *elsewhere = NULL;

    (void)state;
    rig_init(&r, env, 1);
    r.context.n_preload = 1;
    r.context.preload = common;
    r.asked.n_preload = 2;
    r.asked.preload = own;
    with = make(&r);
    assert_int_equal(with->n_preload, 2);
    assert_string_equal(with->preload[0], torch);
    r.asked.n_preload = 0;
    r.asked.n_python = 1;
    r.asked.python = others; /* it may not have them */
    elsewhere = make(&r);
    assert_int_equal(elsewhere->n_preload, 0);
    assert_string_equal(elsewhere->python[0], other);
    assert_false(ms_zygote_key_extends(with, elsewhere));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_nobody_says),
        cmocka_unit_test(test_every_variable_counts),
        cmocka_unit_test(test_a_rank_of_a_driver),
        cmocka_unit_test(test_devices_that_no_table_has),
        cmocka_unit_test(test_changed_variables),
        cmocka_unit_test(test_folder_and_path),
        cmocka_unit_test(test_modules),
        cmocka_unit_test(test_modules_of_all_workers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
