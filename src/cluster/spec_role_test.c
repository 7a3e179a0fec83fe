/* spec_role_test.c - what follows from what is said of a role */
#include "base/cleanup.h"
#include "cluster/spec.h"
#include "cluster/spec_role.h"
#include "plain/value.h"
#include "wire/frame.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void spec_free(Muster__ClusterSpec **spec)
{
    muster__cluster_spec__free_unpacked(*spec, NULL);
}

static Muster__ClusterSpec *build(const struct ms_spec_role *r)
{
    struct ms_error err = {0};
    Muster__ClusterSpec *spec = ms_spec_role_build(r, &err);

    if (!spec)
        fail_msg("%s", err.text);
    return spec;
}

/* What its engine is given under this key, as JSON. */
static void expect_engine(const Muster__ClusterSpec *spec,
                          const char *key,
                          enum muster_kind type,
                          const char *text)
{
    const ProtobufCBinaryData *body = &spec->steps[0]->arguments[0];
    struct muster_value *all = muster_value_decode(body->data, body->len, NULL);
    const struct muster_value *value = muster_map_find(all, key);

    assert_int_equal(spec->steps[0]->codec, MS_CODEC_PLAIN);
    if (!text)
        assert_null(value);
    else
        assert_int_equal(muster_value_kind(value), type);
    if (text && type == MUSTER_TEXT)
        assert_string_equal(muster_value_get_text(value, NULL), text);
    muster_value_destroy(all);
}

/* ---- a table --------------------------------------------------------------------- */

static const char *const command[] = {"nice", "python3", NULL};

static void test_how_it_is_started(void **state)
{
    static const struct {
        struct ms_spec_role role;
        Muster__StartKind start;
        const char *cls, *module; /* NULL: none */
    } cases[] = {
        {{.worker_cls = "a.b.C"}, MUSTER__START_KIND__START_FORK, "a.b.C", "a.b"},
        {{.worker_cls = "a.b:C.D"}, MUSTER__START_KIND__START_FORK, "a.b.C.D", "a.b"},
        {{.worker_cls = "a.C", .is_fresh = true},
         MUSTER__START_KIND__START_EXEC,
         "a.C",
         "a"},
        {{.worker_cls = "a.C", .command = command, .is_fresh = true},
         MUSTER__START_KIND__START_COMMAND,
         "a.C",
         "a"},
        {{.worker_cls = "lib/x.so:f", .command = command},
         MUSTER__START_KIND__START_NATIVE,
         "lib/x.so:f",
         NULL},
        {{.worker_cls = "lib/x.so:f", .library = "/w/lib/x.so"},
         MUSTER__START_KIND__START_NATIVE,
         "/w/lib/x.so:f",
         NULL},
        {{.command = command}, MUSTER__START_KIND__START_COMMAND, NULL, NULL},
    };

    (void)state;
    for (size_t i = 0; i < MS_COUNT(cases); i++) {
        MS_CLEANUP(spec_free) Muster__ClusterSpec *spec = build(&cases[i].role);
        const Muster__ZygoteKey *zygote = spec->worker->zygote;

        assert_int_equal(spec->worker->start, cases[i].start);
        assert_int_equal(spec->worker->n_command,
                         cases[i].start == MUSTER__START_KIND__START_COMMAND ? 2 : 0);
        assert_int_equal(spec->n_steps, cases[i].cls != NULL);
        if (cases[i].cls)
            expect_engine(spec, "cls", MUSTER_TEXT, cases[i].cls);
        assert_int_equal(zygote != NULL, cases[i].module != NULL);
        if (zygote)
            assert_string_equal(zygote->preload[0], cases[i].module);
    }
}

static void test_modules_each_once(void **state)
{
    static const char *const more[] = {"torch", "a.b", "torch", "numpy", NULL};
    const struct ms_spec_role role = {.worker_cls = "a.b.C", .preload = more};
    MS_CLEANUP(spec_free) Muster__ClusterSpec *spec = build(&role);

    (void)state;
    assert_int_equal(spec->worker->zygote->n_preload, 3);
    assert_string_equal(spec->worker->zygote->preload[0], "a.b");
    assert_string_equal(spec->worker->zygote->preload[1], "torch");
    assert_string_equal(spec->worker->zygote->preload[2], "numpy");
}

static void test_where_it_runs(void **state)
{
    static const struct {
        const char *told, *folder;
    } cases[] = {{NULL, ""}, {"", ""}, {"/data", "/data"}, {"run", "/home/me/run"}};

    (void)state;
    for (size_t i = 0; i < MS_COUNT(cases); i++) {
        const struct ms_spec_role role = {
            .worker_cls = "a.C", .working_dir = cases[i].told, .folder = "/home/me"};
        MS_CLEANUP(spec_free) Muster__ClusterSpec *spec = build(&role);

        assert_string_equal(spec->worker->working_dir, cases[i].folder);
    }
}

static void test_what_a_file_says(void **state)
{
    json_t *told =
        json_loads("{\"mesh\": {\"tp\": 2, \"dp\": 3}, \"visible\": \"node\","
                   " \"max_concurrency\": 4, \"http_open\": true}",
                   0,
                   NULL);
    struct ms_spec_role role = {.worker_cls = "a.C", .told = told};
    MS_CLEANUP(spec_free) Muster__ClusterSpec *spec = build(&role), *native = NULL;

    (void)state;
    assert_false(spec->can_resize);
    assert_true(spec->worker->http_open);
    assert_int_equal(spec->visible, MUSTER__VISIBLE__VISIBLE_NODE);
    expect_engine(spec, "mesh", MUSTER_MAP, "");
    expect_engine(spec, "max_concurrency", MUSTER_INT, "");
    role.worker_cls = "x.so:f"; /* Python's matters */
    native = build(&role);
    assert_false(native->worker->http_open);
    expect_engine(native, "mesh", MUSTER_MAP, NULL);
    json_decref(told);
}

static void test_which_can_change_their_size(void **state)
{
    static const struct {
        const char *mesh;
        bool is_fixed, can_resize;
    } cases[] = {{"{}", false, true},
                 {"{\"mesh\": {\"dp\": 4, \"tp\": 1}}", false, true},
                 {"{\"mesh\": {\"pp\": 2}}", false, false},
                 {"{\"mesh\": {\"ep\": 2}}", false, false},
                 {"{}", true, false}};

    (void)state;
    for (size_t i = 0; i < MS_COUNT(cases); i++) {
        json_t *told = json_loads(cases[i].mesh, 0, NULL);
        const struct ms_spec_role role = {
            .worker_cls = "a.C", .told = told, .is_fixed = cases[i].is_fixed};
        MS_CLEANUP(spec_free) Muster__ClusterSpec *spec = build(&role);

        assert_int_equal(spec->can_resize, cases[i].can_resize);
        json_decref(told);
    }
}

static void test_variables_as_python_has_them(void **state)
{
    static const struct {
        const char *json, *text;
    } cases[] = {
        {"\"x y\"", "A=x y"}, {"true", "A=True"}, {"0.5", "A=0.5"}, {"100", "A=100"}};

    (void)state;
    for (size_t i = 0; i < MS_COUNT(cases); i++) {
        json_t *value = json_loads(cases[i].json, JSON_DECODE_ANY, NULL);
        MS_CLEANUP(ms_cleanup_free) char *text = ms_spec_variable("A", value);

        assert_string_equal(text, cases[i].text);
        json_decref(value);
    }
}

static void test_words(void **state)
{
    json_t *list = json_loads("[\"a\", \"b\"]", 0, NULL), *one = json_string("a"),
           *none = json_loads("[\"a\", 1]", 0, NULL);
    MS_CLEANUP(ms_cleanup_free) const char **words = ms_spec_words(list);
    MS_CLEANUP(ms_cleanup_free) const char **word = ms_spec_words(one);

    (void)state;
    assert_string_equal(words[1], "b");
    assert_null(words[2]);
    assert_string_equal(word[0], "a");
    assert_null(word[1]);
    assert_null(ms_spec_words(none));
    json_decref(list);
    json_decref(one);
    json_decref(none);
}

static void test_classes_in_libraries(void **state)
{
    static const struct {
        const char *worker_cls;
        bool is_native;
    } cases[] = {{"libreward.so:reward", true},
                 {"/x.sources/l.so:f", true},
                 {"/x.so.d/l.so.1:f", true},
                 {"package.module.Class", false},
                 {"package.module:Class", false},
                 {"/x.so:d/module:Class", false},
                 {"l.so:", false},
                 {".so:f", false},
                 {"l.sources:f", false}};

    (void)state;
    for (size_t i = 0; i < MS_COUNT(cases); i++)
        if (ms_class_is_native(cases[i].worker_cls) != cases[i].is_native)
            fail_msg("%s", cases[i].worker_cls);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_how_it_is_started),
        cmocka_unit_test(test_modules_each_once),
        cmocka_unit_test(test_where_it_runs),
        cmocka_unit_test(test_what_a_file_says),
        cmocka_unit_test(test_which_can_change_their_size),
        cmocka_unit_test(test_variables_as_python_has_them),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_classes_in_libraries),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
