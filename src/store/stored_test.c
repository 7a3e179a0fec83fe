/* stored_test.c - tests of stored.h: a payload whose big parts are in a store
 * (codec MS_CODEC_STORED) */
#include "store/stored.h"

#include "base/cleanup.h"
#include "base/limits.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const struct ms_stored_name names[] = {
    {.node = 5,
     .id = 1,
     .len = 1000,
     .at = 64,
     .address = "10.0.0.1:80",
     .address_len = 11},
    {.node = 6, .id = 2, .len = 10, .at = 0, .address = "", .address_len = 0},
};
static const struct ms_stored_part parts[] = {
    {.len = 3, .object = -1},
    {.len = 900, .object = 0, .offset = 100},
    {.len = 20, .object = -1},
    {.len = 0, .object = 1, .offset = 10},
};

#define NOW_NS (1000 * MS_NS_PER_S)

/* "abc", then twenty times 'x'. */
static void encode(struct ms_buf *b)
{
    uint8_t inline_[48] = "abc";

    memset(inline_ + 16, 'x', 20);
    ms_buf_init(b);
    assert_int_equal(ms_stored_encode(b, 77, 88, names, 2, parts, 4, NOW_NS), 0);
    assert_int_equal(b->len % MS_STORED_ALIGN, 0);
    assert_int_equal(ms_buf_append(b, inline_, sizeof inline_), 0);
}

static void test_what_was_written_is_read(void **unused)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf b;
    struct ms_stored s;
    struct ms_stored_name n;
    struct ms_stored_part p;
    struct ms_stored_walk walk = {0};
    size_t at = 0;

    (void)unused;
    encode(&b);
    assert_int_equal(ms_stored_parse(&s, b.data, b.len, NULL), 0);
    assert_int_equal(s.holder, 77);
    assert_int_equal(s.node, 88);
    assert_int_equal(s.written_s, 1000);
    assert_true(ms_stored_next(&s, &at, &n));
    assert_int_equal(n.len, 1000);
    assert_int_equal(n.address_len, 11);
    assert_memory_equal(n.address, "10.0.0.1:80", 11);
    assert_true(ms_stored_next(&s, &at, &n));
    assert_int_equal(n.node, 6);
    assert_false(ms_stored_next(&s, &at, &n));
    assert_true(ms_stored_part(&s, &walk, &p));
    assert_memory_equal(b.data + p.offset, "abc", 3);
    assert_true(ms_stored_part(&s, &walk, &p));
    assert_int_equal(p.object, 0);
    assert_int_equal(p.offset, 100);
    assert_true(ms_stored_part(&s, &walk, &p));
    assert_int_equal(b.data[p.offset + 19], 'x');
    assert_true(ms_stored_part(&s, &walk, &p));
    assert_int_equal(p.object, 1);
    assert_false(ms_stored_part(&s, &walk, &p));
}

static void test_every_cut_and_flip_is_survived(void **unused)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf b;
    struct ms_stored s;

    (void)unused;
    encode(&b);
    for (size_t len = 0; len < b.len - 12; len++) {
        uint8_t *copy = ms_bytes_copy(b.data, len);

        assert_int_equal(ms_stored_parse(&s, copy, len, NULL), -EPROTO);
        free(copy);
    }
    for (size_t i = 0; i < b.len * 8; i++) {
        b.data[i / 8] ^= (uint8_t)(1u << (i % 8));
        if (ms_stored_parse(&s, b.data, b.len, NULL) == 0) {
            struct ms_stored_walk walk = {0};
            struct ms_stored_part p;

            while (ms_stored_part(&s, &walk, &p))
                assert_true(p.object >= 0 || p.offset + p.len <= b.len);
        }
        b.data[i / 8] ^= (uint8_t)(1u << (i % 8));
    }
}

static void test_parts_beyond_their_objects_are_refused(void **unused)
{
    const struct ms_stored_part beyond[] = {{.len = 901, .object = 0, .offset = 100}};
    const struct ms_stored_part nowhere[] = {{.len = 1, .object = 2, .offset = 0}};
    MS_CLEANUP(ms_buf_finish) struct ms_buf b;
    struct ms_stored s;

    (void)unused;
    ms_buf_init(&b);
    assert_int_equal(ms_stored_encode(&b, 0, 0, names, 2, beyond, 1, 0), 0);
    assert_int_equal(ms_stored_parse(&s, b.data, b.len, NULL), -EPROTO);
    b.len = 0;
    assert_int_equal(ms_stored_encode(&b, 0, 0, names, 2, nowhere, 1, 0), 0);
    assert_int_equal(ms_stored_parse(&s, b.data, b.len, NULL), -EPROTO);
}

static void test_places_hold_while_the_grant_does(void **unused)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf b;
    struct ms_stored s;

    (void)unused;
    encode(&b);
    assert_int_equal(ms_stored_parse(&s, b.data, b.len, NULL), 0);
    assert_true(ms_stored_is_fresh(&s, NOW_NS));
    assert_true(ms_stored_is_fresh(&s, NOW_NS + MS_STORE_LEASE_NS / 2));
    assert_false(ms_stored_is_fresh(&s, NOW_NS + MS_STORE_LEASE_NS));
    assert_false(ms_stored_is_fresh(&s, NOW_NS + 100 * MS_STORE_LEASE_NS));
    assert_false(ms_stored_is_fresh(&s, NOW_NS - MS_NS_PER_S)); /* another clock */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_written_is_read),
        cmocka_unit_test(test_every_cut_and_flip_is_survived),
        cmocka_unit_test(test_parts_beyond_their_objects_are_refused),
        cmocka_unit_test(test_places_hold_while_the_grant_does),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
