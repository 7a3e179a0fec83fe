/* spec_test.c - tests of spec.h: a cluster as a value */
#include "base/cleanup.h"
#include "base/limits.h"
#include "base/proto.h"
#include "base/test_random.h"
#include "cluster/spec.h"
#include "wire/frame.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static Muster__ClusterSpec *spec_create(void)
{
    static char name[] = "actor";
    Muster__ClusterSpec spec = MUSTER__CLUSTER_SPEC__INIT;
    Muster__WorkerSpec worker = MUSTER__WORKER_SPEC__INIT;
    Muster__PlaceCluster place = MUSTER__PLACE_CLUSTER__INIT;

    spec.name = name;
    spec.worker = &worker;
    spec.place = &place;
    return (Muster__ClusterSpec *)ms_proto_copy(&spec.base);
}

static void spec_free(Muster__ClusterSpec **spec)
{
    muster__cluster_spec__free_unpacked(*spec, NULL);
}

/* What is added is copied: a step on the stack will do. */
static int
add(Muster__ClusterSpec *spec, uint32_t op, char *engine, const char *argument)
{
    Muster__Step step = MUSTER__STEP__INIT;
    ProtobufCBinaryData body = {strlen(argument), (uint8_t *)(uintptr_t)argument};

    step.op = op;
    step.engine = engine;
    step.arguments = &body;
    step.n_arguments = 1;
    return ms_cluster_spec_add(spec, &step, NULL, NULL);
}

static const char *argument_of(const Muster__ClusterSpec *spec, size_t i)
{
    static char text[64];
    const ProtobufCBinaryData *a = &spec->steps[i]->arguments[0];

    snprintf(text, sizeof text, "%.*s", (int)a->len, (const char *)a->data);
    return text;
}

static int refused(char *entry, struct ms_error *err)
{
    char *env[] = {entry};

    return ms_role_env_check(env, 1, err);
}

static void test_variables(void **state)
{
    char no_value[] = "A", no_name[] = "=a", rank[] = "RANK=1",
         secret[] = "MUSTER_SECRET=00", host[] = "MASTER_ADDR=h",
         port[] = "MASTER_PORT=1", like[] = "RANKING=1";
    char *both[] = {host, port};
    struct ms_error err = {0};

    (void)state;
    assert_int_equal(refused(no_value, &err), -EINVAL);
    assert_int_equal(refused(no_name, &err), -EINVAL);
    assert_int_equal(refused(rank, &err), -EINVAL);
    assert_non_null(strstr(err.text, "RANK comes from Muster"));
    assert_int_equal(refused(secret, &err), -EINVAL);
    assert_int_equal(refused(host, &err), -EINVAL);
    assert_non_null(strstr(err.text, "go together"));
    assert_int_equal(refused(like, &err), 0);
    assert_int_equal(ms_role_env_check(both, 2, &err), 0);
}

static void test_what_is_no_spec(void **state)
{
    MS_CLEANUP(spec_free) Muster__ClusterSpec *spec = spec_create();
    struct ms_error err = {0};

    (void)state;
    assert_int_equal(ms_cluster_spec_check(spec, &err), 0);
    spec->beside = strdup("other");
    assert_int_equal(ms_cluster_spec_check(spec, &err), -EINVAL);
    assert_non_null(strstr(err.text, "either placed or beside"));
    muster__place_cluster__free_unpacked(MS_TAKE(spec->place), NULL);
    assert_int_equal(ms_cluster_spec_check(spec, &err), 0);
    muster__worker_spec__free_unpacked(MS_TAKE(spec->worker), NULL);
    assert_int_equal(ms_cluster_spec_check(spec, &err), -EINVAL);
}

static void test_steps_that_are_none(void **state)
{
    char engine[] = "default", none[] = "";
    MS_CLEANUP(spec_free) Muster__ClusterSpec *spec = spec_create();
    MS_CLEANUP(ms_cleanup_free) char *big = malloc(MS_STEP_MAX + 2);

    (void)state;
    memset(big, 'x', MS_STEP_MAX + 1);
    big[MS_STEP_MAX + 1] = 0;
    assert_int_equal(add(spec, MS_OP_LOOK, engine, "a"), -EINVAL);
    assert_int_equal(add(spec, MS_OP_NONE, none, "a"), -EINVAL);
    assert_int_equal(add(spec, MS_OP_SET_ENV, none, big), -E2BIG);
    assert_int_equal(spec->n_steps, 0);
}

static void test_the_last_configuration_counts(void **state)
{
    char engine[] = "default", none[] = "";
    MS_CLEANUP(spec_free) Muster__ClusterSpec *spec = spec_create();

    (void)state;
    assert_int_equal(add(spec, MS_OP_CREATE_ENGINE, engine, "e"), 0);
    assert_int_equal(add(spec, MS_OP_CONFIGURE, none, "1"), 0);
    assert_int_equal(add(spec, MS_OP_SET_ENV, none, "a"), 0);
    assert_int_equal(add(spec, MS_OP_CONFIGURE, none, "2"), 0);
    assert_int_equal(spec->n_steps, 3);
    assert_string_equal(argument_of(spec, 1), "2");
    assert_string_equal(argument_of(spec, 2), "a");
}

static void test_an_engine_that_was_destroyed(void **state)
{
    char first[] = "default", second[] = "other";
    MS_CLEANUP(spec_free) Muster__ClusterSpec *spec = spec_create();

    (void)state;
    assert_int_equal(add(spec, MS_OP_CREATE_ENGINE, first, "1"), 0);
    assert_int_equal(add(spec, MS_OP_CREATE_ENGINE, second, "2"), 0);
    assert_int_equal(add(spec, MS_OP_DESTROY_ENGINE, first, ""), 0);
    assert_int_equal(add(spec, MS_OP_DESTROY_ENGINE, first, ""), 0); /* is none */
    assert_int_equal(spec->n_steps, 1);
    assert_string_equal(spec->steps[0]->engine, "other");
}

static void test_each_rank_has_its_argument(void **state)
{
    char engine[] = "default", method[] = "tell";
    uint8_t bytes[] = {'a', 'b', 'c'};
    ProtobufCBinaryData each[] = {{1, bytes}, {1, bytes + 1}, {1, bytes + 2}};
    MS_CLEANUP(spec_free) Muster__ClusterSpec *spec = spec_create();
    Muster__Step call = MUSTER__STEP__INIT;

    (void)state;
    call.engine = engine;
    call.method = method;
    call.arguments = each;
    call.n_arguments = 3;
    assert_int_equal(add(spec, MS_OP_CREATE_ENGINE, engine, "e"), 0);
    assert_int_equal(ms_cluster_spec_add(spec, &call, NULL, NULL), 0);
    for (uint32_t rank = 0; rank < 3; rank++) {
        Muster__RunSteps *run = ms_cluster_spec_run(spec, rank, 0, 7, 8);

        assert_non_null(run);
        assert_int_equal(run->uid, 7);
        assert_int_equal(run->run, 8);
        assert_int_equal(run->n_steps, 2);
        assert_int_equal(run->steps[0]->arguments[0].data[0], 'e');
        assert_int_equal(run->steps[1]->n_arguments, 1);
        assert_int_equal(run->steps[1]->arguments[0].data[0], bytes[rank]);
        muster__run_steps__free_unpacked(run, NULL);
    }
}

/* Whatever was done in whatever order: a new worker makes the engines that are there, once
 * each, in the order of their making, and is configured at most once. */
static void test_random_histories(void **state)
{
    char names[3][2] = {"a", "b", "c"}, none[] = "";
    uint64_t seed = test_seed(20261117);

    (void)state;
    for (int history = 0; history < 200; history++) {
        MS_CLEANUP(spec_free) Muster__ClusterSpec *spec = spec_create();
        bool there[3] = {0};
        unsigned configured = 0, engines = 0;

        for (int i = 0; i < 30; i++) {
            uint32_t which = test_roll(&seed, 3);

            switch (test_roll(&seed, 3)) {
            case 0:
                if (!there[which])
                    assert_int_equal(add(spec, MS_OP_CREATE_ENGINE, names[which], "e"),
                                     0);
                there[which] = true;
                break;
            case 1:
                add(spec, MS_OP_DESTROY_ENGINE, names[which], "");
                there[which] = false;
                break;
            default:
                assert_int_equal(add(spec, MS_OP_CONFIGURE, none, "c"), 0);
            }
        }
        for (size_t i = 0; i < spec->n_steps; i++) {
            configured += spec->steps[i]->op == MS_OP_CONFIGURE;
            if (spec->steps[i]->op != MS_OP_CREATE_ENGINE)
                continue;
            engines++;
            assert_true(there[spec->steps[i]->engine[0] - 'a']);
        }
        assert_true(configured <= 1);
        assert_int_equal(engines, there[0] + there[1] + there[2]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_variables),
        cmocka_unit_test(test_what_is_no_spec),
        cmocka_unit_test(test_steps_that_are_none),
        cmocka_unit_test(test_the_last_configuration_counts),
        cmocka_unit_test(test_an_engine_that_was_destroyed),
        cmocka_unit_test(test_each_rank_has_its_argument),
        cmocka_unit_test(test_random_histories),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
