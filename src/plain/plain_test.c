/* The wire: what is written is what a protobuf library reads, and the reverse; garbage
 * and what is beyond a limit is refused. */
#include "base/cleanup.h"
#include "plain/value.h"
#include "proto/muster.pb-c.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void destroy(struct muster_value **v)
{
    muster_value_destroy(*v);
}

#define OWNED MS_CLEANUP(destroy) struct muster_value *

/* {"n": [null, true, -7, 2.5, "äö", b"\0x"], "t": float32[2, 3], "": {}} */
static struct muster_value *sample(void)
{
    static const float numbers[] = {1, 2, 3, 4, 5, 6};
    static const uint64_t shape[] = {2, 3};
    struct muster_value *map = muster_value_map(), *list = muster_value_list();

    muster_list_append(list, muster_value_null());
    muster_list_append(list, muster_value_bool(true));
    muster_list_append(list, muster_value_int(-7));
    muster_list_append(list, muster_value_float(2.5));
    muster_list_append(list, muster_value_text("äö"));
    muster_list_append(list, muster_value_bytes("\0x", 2));
    muster_map_set(map, "n", list);
    muster_map_set(map, "t", muster_value_tensor(MUSTER_FLOAT32, shape, 2, numbers));
    muster_map_set(map, "", muster_value_map());
    return map;
}

static void assert_sample(const struct muster_value *v)
{
    const struct muster_value *list = muster_map_find(v, "n"), *t;
    int64_t integer = 0;
    double real = 0;
    bool truth = false;
    size_t len = 0, size = 0;

    assert_int_equal(muster_map_count(v), 3);
    assert_int_equal(muster_list_count(list), 6);
    assert_int_equal(muster_value_kind(muster_list_at(list, 0)), MUSTER_NULL);
    assert_int_equal(muster_value_get_bool(muster_list_at(list, 1), &truth), 0);
    assert_true(truth);
    assert_int_equal(muster_value_get_int(muster_list_at(list, 2), &integer), 0);
    assert_int_equal(integer, -7);
    assert_int_equal(muster_value_get_float(muster_list_at(list, 3), &real), 0);
    assert_true(real == 2.5);
    assert_string_equal(muster_value_get_text(muster_list_at(list, 4), &len), "äö");
    assert_int_equal(len, 4);
    assert_memory_equal(
        muster_value_get_bytes(muster_list_at(list, 5), &len), "\0x", 2);
    assert_int_equal(len, 2);
    t = muster_map_find(v, "t");
    assert_int_equal(muster_tensor_dtype(t), MUSTER_FLOAT32);
    assert_int_equal(muster_tensor_ndim(t), 2);
    assert_int_equal(muster_tensor_shape(t)[1], 3);
    assert_int_equal(muster_tensor_count(t), 6);
    assert_true(((const float *)muster_tensor_data(t, &size))[5] == 6);
    assert_int_equal(size, 24);
    assert_int_equal((uintptr_t)muster_tensor_data(t, NULL) % MS_PLAIN_ALIGN, 0);
    assert_int_equal(muster_value_kind(muster_map_find(v, "")), MUSTER_MAP);
}

static void test_round_trip(void **state)
{
    OWNED v = sample();
    OWNED back = NULL;
    OWNED copy = NULL;
    MS_CLEANUP(ms_cleanup_free) void *data = NULL;
    size_t len = 0;

    (void)state;
    assert_int_equal(muster_value_encode(v, &data, &len), 0);
    back = muster_value_decode(data, len, NULL);
    assert_sample(back);
    copy = muster_value_copy(back);
    assert_sample(copy);
    assert_int_equal(muster_list_append(back, muster_value_null()), -EINVAL);
    assert_int_equal(muster_map_set(back, "x", muster_value_null()), -EROFS);
    assert_int_equal(muster_map_set(copy, "x", muster_value_null()), 0);
    assert_null(muster_tensor_data_mut(
        (struct muster_value *)(uintptr_t)muster_map_find(back, "t")));
}

static void test_protobuf_reads_it(void **state)
{
    OWNED v = sample();
    MS_CLEANUP(ms_cleanup_free) void *data = NULL;
    size_t len = 0;
    Muster__Value *m;

    (void)state;
    assert_int_equal(muster_value_encode(v, &data, &len), 0);
    m = muster__value__unpack(NULL, len, data);
    assert_non_null(m);
    assert_int_equal(m->kind_case, MUSTER__VALUE__KIND_MAP);
    assert_int_equal(m->map->n_entries, 3);
    assert_string_equal(m->map->entries[0]->key, "n");
    assert_int_equal(m->map->entries[0]->value->list->items[2]->integer, -7);
    assert_int_equal(m->map->entries[1]->value->tensor->shape[1], 3);
    assert_int_equal(m->map->entries[1]->value->tensor->data.len, 24);
    muster__value__free_unpacked(m, NULL);
}

static void test_reads_protobuf(void **state)
{
    Muster__Value items[3], *pointers[3];
    Muster__ValueList list = MUSTER__VALUE_LIST__INIT;
    Muster__Value root = MUSTER__VALUE__INIT;
    Muster__Tensor tensor = MUSTER__TENSOR__INIT;
    uint64_t shape[] = {5};
    uint8_t numbers[] = {1, 2, 3, 4, 5}, packed[128];
    char text[] = "seven";
    OWNED v = NULL;
    size_t len;

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        muster__value__init(&items[i]);
        pointers[i] = &items[i];
    }
    items[0].kind_case = MUSTER__VALUE__KIND_INTEGER;
    items[0].integer = INT64_MIN;
    items[1].kind_case = MUSTER__VALUE__KIND_TEXT;
    items[1].text = text;
    items[2].kind_case = MUSTER__VALUE__KIND_TENSOR;
    items[2].tensor = &tensor;
    tensor.dtype = MUSTER__DTYPE__DTYPE_UINT8;
    tensor.n_shape = 1;
    tensor.shape = shape;
    tensor.data = (ProtobufCBinaryData){5, numbers};
    list.n_items = 3;
    list.items = pointers;
    root.kind_case = MUSTER__VALUE__KIND_LIST;
    root.list = &list;
    len = muster__value__pack(&root, packed);
    v = muster_value_decode(packed, len, NULL);
    assert_int_equal(muster_list_count(v), 3);
    assert_string_equal(muster_value_get_text(muster_list_at(v, 1), NULL), "seven");
    assert_memory_equal(
        muster_tensor_data(muster_list_at(v, 2), NULL), numbers, sizeof numbers);
    /* not aligned by its writer: copied */
    assert_int_equal(
        (uintptr_t)muster_tensor_data(muster_list_at(v, 2), NULL) % MS_PLAIN_ALIGN, 0);
}

static void test_arguments(void **state)
{
    OWNED args = muster_value_list();
    OWNED kwargs = muster_value_map();
    OWNED back = NULL;
    struct ms_plain_writer w;
    struct iovec iov[MS_PLAIN_IOV_MAX];
    uint8_t *body;

    (void)state;
    muster_list_append(args, muster_value_int(1));
    muster_list_append(args, muster_value_text("two"));
    muster_map_set(kwargs, "three", sample());
    ms_plain_writer_init(&w);
    ms_value_encode_arguments(&w, args, kwargs);
    assert_int_equal(ms_plain_iov(&w, iov), 1);
    body = ms_bytes_copy(iov[0].iov_base, iov[0].iov_len);
    back = ms_value_decode_arguments(body, body, iov[0].iov_len, NULL);
    ms_plain_writer_finish(&w);
    assert_non_null(back);
    assert_string_equal(
        muster_value_get_text(muster_list_at(muster_list_at(back, 0), 1), NULL), "two");
    assert_sample(muster_map_find(muster_list_at(back, 1), "three"));
}

static void test_nothing_is_nothing(void **state)
{
    struct ms_plain_writer w;
    struct iovec iov[MS_PLAIN_IOV_MAX];
    OWNED back = NULL;
    OWNED null = NULL;

    (void)state;
    ms_plain_writer_init(&w);
    ms_value_encode_arguments(&w, NULL, NULL);
    assert_int_equal(ms_plain_iov(&w, iov), 0);
    ms_plain_writer_finish(&w);
    back = ms_value_decode_arguments(NULL, NULL, 0, NULL);
    assert_int_equal(muster_list_count(muster_list_at(back, 0)), 0);
    null = muster_value_decode("", 0, NULL);
    assert_int_equal(muster_value_kind(null), MUSTER_NULL);
    assert_non_null(null);
}

/* Big blocks are referred to, and lie where they would if they were copied. */
static void test_references(void **state)
{
    enum { BIG = 1 << 16 };
    MS_CLEANUP(ms_cleanup_free) uint8_t *numbers = malloc(BIG);
    uint64_t shape[] = {BIG};
    OWNED list = muster_value_list();
    OWNED back = NULL;
    MS_CLEANUP(ms_cleanup_free) void *data = NULL;
    struct iovec iov[MS_PLAIN_IOV_MAX];
    struct ms_plain_writer w;
    size_t len = 0;

    (void)state;
    for (size_t i = 0; i < BIG; i++)
        numbers[i] = (uint8_t)(i * 7);
    for (int i = 0; i < MS_PLAIN_REFS_MAX + 3; i++) {
        muster_list_append(list, muster_value_text(i % 2 ? "odd" : "even"));
        muster_list_append(list,
                           muster_value_tensor_view(MUSTER_UINT8, shape, 1, numbers));
    }
    ms_plain_writer_init(&w);
    ms_value_encode(&w, MS_PLAIN_ROOT, list);
    assert_int_equal(ms_plain_iov(&w, iov), MS_PLAIN_IOV_MAX);
    assert_ptr_equal(iov[1].iov_base, numbers);
    ms_plain_writer_finish(&w);
    assert_int_equal(muster_value_encode(list, &data, &len), 0);
    back = muster_value_decode(data, len, NULL);
    assert_int_equal(muster_list_count(back), 2 * (MS_PLAIN_REFS_MAX + 3));
    for (size_t i = 1; i < muster_list_count(back); i += 2)
        assert_memory_equal(
            muster_tensor_data(muster_list_at(back, i), NULL), numbers, BIG);
}

static struct muster_value *nested(unsigned depth)
{
    struct muster_value *v = muster_value_list();

    for (unsigned i = 1; i < depth; i++) {
        struct muster_value *outer = muster_value_list();

        muster_list_append(outer, v);
        v = outer;
    }
    return v;
}

static void test_depth(void **state)
{
    OWNED deep = nested(MS_PLAIN_DEPTH_MAX);
    OWNED deeper = nested(MS_PLAIN_DEPTH_MAX + 1);
    OWNED back = NULL;
    MS_CLEANUP(ms_cleanup_free) void *data = NULL;
    size_t len = 0;

    (void)state;
    assert_int_equal(muster_value_encode(deeper, &data, &len), -E2BIG);
    assert_int_equal(muster_value_encode(deep, &data, &len), 0);
    back = muster_value_decode(data, len, NULL);
    assert_non_null(back);
}

/* Lists within lists, deeper than anybody should follow. */
static void test_hostile_depth(void **state)
{
    enum { LEVELS = 200000 };
    uint8_t *bytes = malloc((size_t)LEVELS * 12), *at = bytes + (size_t)LEVELS * 12;
    struct muster_error err = {0};
    size_t len = 0;

    (void)state;
    for (int i = 0; i < LEVELS; i++) {
        for (int field = 0; field < 2; field++) {
            size_t n = len;

            for (int b = 4; b >= 0; b--, at--)
                at[-1] = (uint8_t)((n >> 7 * b & 0x7f) | (b == 4 ? 0 : 0x80));
            *--at = (uint8_t)(field == 0 ? 0x0a : 0x32);
            len += 6;
        }
    }
    assert_null(muster_value_decode(at, len, &err));
    assert_int_equal(err.code, -E2BIG);
    assert_non_null(strstr(err.message, "deeper"));
    free(bytes);
}

static void test_too_many(void **state)
{
    size_t count = MS_PLAIN_NODES_MAX, len = 6 + 2 * count;
    uint8_t *bytes = calloc(1, len);
    struct muster_error err = {0};
    struct muster_value *v;

    (void)state;
    bytes[0] = 0x32;
    for (int b = 0; b < 5; b++)
        bytes[1 + b] = (uint8_t)((2 * count >> 7 * b & 0x7f) | (b == 4 ? 0 : 0x80));
    for (size_t i = 0; i < count; i++)
        bytes[6 + 2 * i] = 0x0a;
    v = muster_value_decode(bytes, len, &err);
    assert_null(v); /* the list itself is one too many */
    assert_int_equal(err.code, -E2BIG);
    free(bytes);
}

static void test_garbage(void **state)
{
    static const struct {
        const char *bytes;
        size_t len;
    } bad[] = {
        {"\x08", 1},             /* a tag without a value */
        {"\x00", 1},             /* field 0 */
        {"\x0b", 1},             /* a group */
        {"\x08\x01\x10\x02", 4}, /* bool and int at once */
        {"\x0a\x00", 2},         /* a bool that is bytes */
        {"\x22\x05"
         "abc",
         5},                         /* a text longer than the message */
        {"\x22\x02\xc3\x28", 4},     /* not UTF-8 */
        {"\x22\x03\xed\xa0\x80", 5}, /* a surrogate */
        {"\x22\x02\xc0\x80", 4},     /* too long a form */
        {"\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 11}, /* beyond 64 bits */
        {"\x42\x02\x08\x63", 4},                              /* an unknown dtype */
        {"\x42\x06\x08\x03\x10\x05\x22\x00",
         8},                                 /* five bytes are said, none is there */
        {"\x42\x04\x12\x02\x01\x01", 6},     /* no dtype */
        {"\x3a\x05\x0a\x03\x0a\x01\xff", 7}, /* a key that is not UTF-8 */
        {"\x3a\x05\x0a\x03\x0a\x01\x00", 7}, /* a key with a NUL */
    };

    (void)state;
    for (size_t i = 0; i < MS_COUNT(bad); i++) {
        struct muster_error err = {0};

        assert_null(muster_value_decode(bad[i].bytes, bad[i].len, &err));
        assert_int_equal(err.code, -EBADMSG);
    }
}

/* A tensor of 2^63 elements of nothing, or whose product wraps around. */
static void test_tensor_sizes(void **state)
{
    uint64_t wrap[] = {UINT64_C(1) << 32, UINT64_C(1) << 32};
    uint64_t none[] = {UINT64_C(1) << 62, 0};
    size_t size = 99;

    (void)state;
    assert_int_equal(ms_plain_tensor_size(MUSTER_INT8, wrap, 2, &size), -EINVAL);
    assert_int_equal(size, 99);
    assert_int_equal(ms_plain_tensor_size(MUSTER_INT8, none, 2, &size), -EINVAL);
    assert_int_equal(ms_plain_tensor_size(MUSTER_INT8, none + 1, 1, &size), 0);
    assert_int_equal(size, 0);
    assert_int_equal(ms_plain_tensor_size((enum muster_dtype)0, none, 0, &size),
                     -EINVAL);
    assert_int_equal(ms_plain_tensor_size(MUSTER_FLOAT64, NULL, 0, &size), 0);
    assert_int_equal(size, 8);
}

/* A newer writer's field is passed over. */
static void test_unknown_fields(void **state)
{
    OWNED v = muster_value_decode("\x10\x0e\x7a\x02hi\xf8\x01\x05", 9, NULL);
    int64_t integer = 0;

    (void)state;
    assert_int_equal(muster_value_get_int(v, &integer), 0);
    assert_int_equal(integer, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_protobuf_reads_it),
        cmocka_unit_test(test_reads_protobuf),
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_nothing_is_nothing),
        cmocka_unit_test(test_references),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_hostile_depth),
        cmocka_unit_test(test_too_many),
        cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_tensor_sizes),
        cmocka_unit_test(test_unknown_fields),
    };

    return cmocka_run_group_tests_name("plain", tests, NULL, NULL);
}
