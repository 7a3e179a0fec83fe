/* json_test.c - tests of json.h: JSON as plain data and back, for calls to C that
 * came by HTTP */
#include "base/cleanup.h"
#include "worker/native/json.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>

static json_t *parse(const char *text)
{
    json_t *json = json_loads(
        text, JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, NULL);

    assert_non_null(json);
    return json;
}

static struct muster_value *from(const char *text)
{
    struct ms_error err = {0};
    json_t *json = parse(text);
    struct muster_value *v = ms_value_from_json(json, &err);

    json_decref(json);
    if (!v)
        fail_msg("%s: %s", text, err.text);
    return v;
}

/* In and out again. */
static void goes(const char *in, const char *out)
{
    struct muster_value *v = from(in);
    json_t *json = NULL;
    char *text;

    assert_int_equal(ms_value_to_json(v, &json), 0);
    text = json_dumps(json, JSON_COMPACT | JSON_ENCODE_ANY | JSON_SORT_KEYS);
    assert_string_equal(text, out);
    free(text);
    json_decref(json);
    muster_value_destroy(v);
}

static void refused(const char *in, int code, const char *part)
{
    struct ms_error err = {0};
    json_t *json = parse(in);

    assert_null(ms_value_from_json(json, &err));
    assert_int_equal(err.code, code);
    if (!strstr(err.text, part))
        fail_msg("%s: %s", in, err.text);
    json_decref(json);
}

static void same(const char *text)
{
    goes(text, text);
}

static void test_own_values(void **state)
{
    (void)state;
    same("null");
    same("true");
    same("false");
    same("-9223372036854775808");
    same("9223372036854775807");
    same("0.25");
    same("1e22");
    same("\"gr\u00fc\u00dfe\"");
    same("\"a\\u0000b\"");
    same("[]");
    same("{}");
    same("[1,[\"x\",{}],null]");
    same("{\"\":[null],\"a\":{\"b\":[0.5,true]}}");
}

static void test_a_float_stays_one(void **state)
{
    struct muster_value *v = from("1.0");

    (void)state;
    assert_int_equal(muster_value_kind(v), MUSTER_FLOAT);
    muster_value_destroy(v);
    same("1.0");
}

static void test_bytes(void **state)
{
    struct muster_value *v = from("{\"type\":\"bytes\",\"data\":\"AAH/\"}");
    size_t len = 0;
    const void *data = muster_value_get_bytes(v, &len);

    (void)state;
    assert_int_equal(len, 3);
    assert_memory_equal(data, "\0\1\xff", 3);
    muster_value_destroy(v);
    same("{\"data\":\"\",\"type\":\"bytes\"}");
    same("[{\"data\":\"AAH/\",\"type\":\"bytes\"}]");
}

static void test_tensors(void **state)
{
    /* 1.5, 2 */
    struct muster_value *v = from("{\"type\":\"tensor\",\"data\":\"AADAPwAAAEA=\","
                                  "\"shape\":[2,1],\"dtype\":\"torch.float32\"}");
    const float *numbers = muster_tensor_data(v, NULL);

    (void)state;
    assert_int_equal(muster_tensor_dtype(v), MUSTER_FLOAT32);
    assert_int_equal(muster_tensor_ndim(v), 2);
    assert_int_equal(muster_tensor_shape(v)[0], 2);
    assert_int_equal((uintptr_t)numbers % MS_PLAIN_ALIGN, 0);
    assert_true(numbers[0] == 1.5f && numbers[1] == 2.0f);
    muster_value_destroy(v);
    same("{\"data\":\"AADAPwAAAEA=\",\"dtype\":\"<f4\",\"shape\":[2],"
         "\"type\":\"ndarray\"}");
    same("{\"data\":\"AQA=\",\"dtype\":\"|b1\",\"shape\":[2],\"type\":\"ndarray\"}");
    same("{\"data\":\"AQA=\",\"dtype\":\"<i2\",\"shape\":[],\"type\":\"ndarray\"}");
    same("{\"data\":\"\",\"dtype\":\"<c16\",\"shape\":[0,3],\"type\":\"ndarray\"}");
    goes("{\"data\":\"AQA=\",\"dtype\":\"uint8\",\"shape\":[2],\"type\":\"ndarray\"}",
         "{\"data\":\"AQA=\",\"dtype\":\"|u1\",\"shape\":[2],\"type\":\"ndarray\"}");
}

static void test_bfloat16(void **state)
{
    static const uint16_t brains[] = {0x3f80, 0x3f82, 0x3f80, 0x7fc0, 0x7f80};
    /* 1; between two, to the even above; below the middle; NaN whose bits are all low;
     * too big for it */
    struct muster_value *v = from(
        "{\"type\":\"tensor\",\"data\":\"AACAPwCAgT8AcIA/AQCAf///f38=\",\"shape\":[5],"
        "\"dtype\":\"torch.bfloat16\"}");
    size_t size = 0;
    const uint16_t *data = muster_tensor_data(v, &size);

    (void)state;
    assert_int_equal(size, 10);
    for (size_t i = 0; i < MS_COUNT(brains); i++)
        assert_int_equal(data[i], brains[i]);
    muster_value_destroy(v);
    same("{\"data\":\"AADAPwAAAEA=\",\"dtype\":\"torch.bfloat16\",\"shape\":[2],"
         "\"type\":\"tensor\"}");
}

static void test_what_c_does_not_have(void **state)
{
    (void)state;
    goes("{\"type\":\"dataclass\",\"class_path\":\"a.B\",\"data\":"
         "{\"seed\":1,\"color\":{\"type\":\"enum\",\"class_path\":\"a.C\",\"value\":2}}"
         "}",
         "{\"color\":2,\"seed\":1}");
    goes("{\"type\":\"torch_dtype\",\"value\":\"torch.int8\"}", "\"torch.int8\"");
    /* those that only look like it */
    same("{\"type\":\"tensor\"}");
    same("{\"type\":\"enum\",\"value\":2}");
    same("{\"type\":3}");
    same("{\"data\":1,\"type\":\"other\"}");
}

#define ARRAY(data, shape, dtype)                                                      \
    "{\"type\":\"ndarray\",\"data\":" data ",\"shape\":" shape ",\"dtype\":" dtype "}"

static void test_refusals(void **state)
{
    (void)state;
    refused(ARRAY("\"!\"", "[1]", "\"<f4\""), -EINVAL, "base64");
    refused(ARRAY("\"AAAA\"", "[1]", "\"<f4\""), -EINVAL, "3 bytes");
    refused(ARRAY("\"AAAA\"", "[3]", "\"O\""), -EINVAL, "'O'");
    refused(ARRAY("\"AAAA\"", "[3]", "\">i4\""), -EINVAL, "little-endian");
    refused(ARRAY("\"AAAA\"", "[3]", "\"bfloat16\""), -EINVAL, "bfloat16");
    refused(ARRAY("\"AAAA\"", "[3]", "7"), -EINVAL, "no string");
    refused(ARRAY("\"AAAA\"", "[-1]", "\"|u1\""), -EINVAL, "no size");
    refused(ARRAY("\"AAAA\"", "[1.5]", "\"|u1\""), -EINVAL, "no size");
    refused(ARRAY("\"AAAA\"", "3", "\"|u1\""), -EINVAL, "list");
    refused(ARRAY("\"AAAA\"", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,3]", "\"|u1\""),
            -EINVAL,
            "at most 16");
    refused(ARRAY("\"AAAA\"", "[4611686018427387904,4,3]", "\"|u1\""),
            -EINVAL,
            "shape and dtype");
    refused(ARRAY("null", "[3]", "\"|u1\""), -EINVAL, "without data");
    refused("[{\"type\":\"pil_image\",\"data\":\"\"}]", -EINVAL, "pil_image");
    refused("{\"a\":{\"type\":\"ray_object_ref\",\"data\":\"\"}}", -EINVAL, "does not");
    refused("{\"type\":\"bytes\",\"data\":\"@\"}", -EINVAL, "base64");
}

/* `depth` lists, the innermost empty. */
static json_t *nested(unsigned depth)
{
    json_t *json = json_array();

    for (unsigned i = 1; i < depth; i++)
        json = json_pack("[o]", json);
    return json;
}

static void test_depth(void **state)
{
    json_t *most = nested(MS_PLAIN_DEPTH_MAX), *more = nested(MS_PLAIN_DEPTH_MAX + 1);
    struct ms_error err = {0};
    struct muster_value *v = ms_value_from_json(most, &err), *outer;
    json_t *back = NULL;

    (void)state;
    assert_non_null(v);
    assert_int_equal(ms_value_to_json(v, &back), 0);
    assert_true(json_equal(back, most));
    json_decref(back);
    assert_null(ms_value_from_json(more, &err));
    assert_int_equal(err.code, -E2BIG);
    assert_non_null(strstr(err.text, "64 deep"));
    outer = muster_value_list();
    muster_list_append(outer, muster_value_copy(v));
    back = NULL;
    assert_int_equal(ms_value_to_json(outer, &back), -E2BIG);
    assert_null(back);
    muster_value_destroy(outer);
    muster_value_destroy(v);
    json_decref(most);
    json_decref(more);
}

static void test_arguments(void **state)
{
    struct ms_error err = {0};
    json_t *args = parse("[1, {\"type\":\"bytes\",\"data\":\"AA==\"}]");
    json_t *kwargs = parse("{\"twice\": true}");
    struct muster_value *v = ms_arguments_from_json(args, kwargs, &err);
    bool twice = false;

    (void)state;
    assert_int_equal(muster_list_count(muster_list_at(v, 0)), 2);
    assert_int_equal(muster_value_kind(muster_list_at(muster_list_at(v, 0), 1)),
                     MUSTER_BYTES);
    assert_int_equal(
        muster_value_get_bool(muster_map_find(muster_list_at(v, 1), "twice"), &twice),
        0);
    assert_true(twice);
    muster_value_destroy(v);
    v = ms_arguments_from_json(NULL, NULL, &err);
    assert_int_equal(muster_list_count(v), 2);
    assert_int_equal(muster_list_count(muster_list_at(v, 0)), 0);
    muster_value_destroy(v);
    json_decref(args);
    json_decref(kwargs);
}

/* More than the writer refers to without a copy, and long enough for it. */
static void test_many_big_blocks(void **state)
{
    enum { COUNT = MS_PLAIN_REFS_MAX + 3, LETTERS = 32 << 10 };
    char *letters = malloc(LETTERS + 1);
    json_t *list = json_array();
    struct ms_error err = {0};
    struct muster_value *v;

    (void)state;
    memset(letters, 'B', LETTERS);
    letters[LETTERS] = '\0';
    for (int i = 0; i < COUNT; i++)
        json_array_append_new(
            list, json_pack("{s:s, s:s}", "type", "bytes", "data", letters));
    v = ms_value_from_json(list, &err);
    assert_non_null(v);
    for (int i = 0; i < COUNT; i++) {
        size_t len = 0;
        const uint8_t *data =
            muster_value_get_bytes(muster_list_at(v, (size_t)i), &len);

        assert_int_equal(len, LETTERS / 4 * 3);
        assert_int_equal(data[0], 0x04);
        assert_int_equal(data[len - 1], 0x41);
    }
    muster_value_destroy(v);
    json_decref(list);
    free(letters);
}

static void test_results_that_are_none(void **state)
{
    struct muster_value *list = muster_value_list(), *nan = muster_value_float(NAN);
    struct muster_value *infinite = muster_value_float(-INFINITY);
    json_t *json = NULL;

    (void)state;
    assert_int_equal(ms_value_to_json(nan, &json), -EDOM);
    muster_list_append(list, muster_value_int(1));
    muster_list_append(list, infinite);
    assert_int_equal(ms_value_to_json(list, &json), -EDOM);
    muster_value_destroy(list);
    list = muster_value_list();
    muster_list_append(list, NULL); /* as if there had been no memory */
    assert_int_equal(ms_value_to_json(list, &json), -ENOMEM);
    assert_null(json);
    muster_value_destroy(list);
    muster_value_destroy(nan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_values),
        cmocka_unit_test(test_a_float_stays_one),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_bfloat16),
        cmocka_unit_test(test_what_c_does_not_have),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_many_big_blocks),
        cmocka_unit_test(test_results_that_are_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
