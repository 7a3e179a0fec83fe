/* frame_test.c - tests of frame.h: the fixed header in front of every piece of a
 * message */
#include "base/limits.h"
#include "base/test_random.h"
#include "wire/frame.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct ms_frame full = {.magic = MS_FRAME_MAGIC,
                                     .version = MS_FRAME_VERSION,
                                     .kind = MS_KIND_CALL,
                                     .codec = MS_CODEC_PLAIN,
                                     .op = 0x0201,
                                     .flags = MS_FRAME_STREAM | MS_FRAME_SPIN,
                                     .length = 0x1000,
                                     .core = 0x0a0b0c0d,
                                     .call_id = UINT64_C(0x1122334455667788),
                                     .total = 0x2000,
                                     .budget_ns = UINT64_C(0xfedcba9876543210),
                                     .ack = 0x0f};

/* Decode a frame that is `full` with one field changed. */
static int decode(const struct ms_frame *f, struct ms_error *err)
{
    uint8_t bytes[MS_FRAME_SIZE];
    struct ms_frame got = {.kind = 99};
    int rc;

    ms_frame_encode(f, bytes);
    rc = ms_frame_decode(bytes, &got, err);
    if (rc < 0)
        assert_int_equal(got.kind, 99); /* failure left no trace */
    return rc;
}

static void test_layout(void **state)
{
    static const uint8_t want[MS_FRAME_SIZE] = {
        0xA7, 1,    1,    2,    0x01, 0x02, 20,   0,    0x00, 0x10, 0,    0,
        0x0d, 0x0c, 0x0b, 0x0a, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,
        0x00, 0x20, 0,    0,    0,    0,    0,    0,    0x10, 0x32, 0x54, 0x76,
        0x98, 0xba, 0xdc, 0xfe, 0x0f, 0,    0,    0,    0,    0,    0,    0};
    uint8_t bytes[MS_FRAME_SIZE];
    struct ms_frame got;

    (void)state;
    ms_frame_encode(&full, bytes);
    assert_memory_equal(bytes, want, sizeof want);
    assert_int_equal(ms_frame_decode(bytes, &got, NULL), 0);
    assert_memory_equal(&got, &full, sizeof got);
}

static void test_not_a_frame(void **state)
{
    uint8_t bytes[MS_FRAME_SIZE];
    struct ms_frame got;
    struct ms_error err = {0};

    (void)state;
    ms_frame_encode(&full, bytes);
    bytes[0] = 'G'; /* "GET / HTTP/1.1" */
    assert_int_equal(ms_frame_decode(bytes, &got, &err), -EPROTO);
    assert_non_null(strstr(err.text, "0x47"));
}

static void test_another_version(void **state)
{
    uint8_t bytes[MS_FRAME_SIZE];
    struct ms_frame got;
    struct ms_error err = {0};

    (void)state;
    ms_frame_encode(&full, bytes);
    bytes[1] = MS_FRAME_VERSION + 1;
    assert_int_equal(ms_frame_decode(bytes, &got, &err), -EPROTONOSUPPORT);
    assert_non_null(strstr(err.text, "version 2"));
    assert_non_null(strstr(err.text, "speaks 1"));
}

static void test_kinds_codecs_flags(void **state)
{
    (void)state;
    for (unsigned kind = 0; kind < 256; kind++) {
        uint32_t len = kind == MS_KIND_DATA; /* it is never empty */
        struct ms_frame f = {.kind = (uint8_t)kind, .length = len, .total = len};
        bool known = (kind >= 1 && kind <= MS_KIND_LAST) || kind >= MS_KIND_IGNORED;

        assert_int_equal(decode(&f, NULL), known ? 0 : -EPROTO);
    }
    for (unsigned codec = 0; codec < 256; codec++) {
        struct ms_frame f = {.kind = MS_KIND_REPLY, .codec = (uint8_t)codec};

        assert_int_equal(decode(&f, NULL), codec <= MS_CODEC_LAST ? 0 : -EPROTO);
    }
    for (unsigned bit = 0; bit < 16; bit++) {
        struct ms_frame f = {.kind = MS_KIND_CALL, .flags = (uint16_t)(1u << bit)};

        f.length = 1;
        f.total = 1;
        assert_int_equal(decode(&f, NULL),
                         f.flags & (MS_FRAME_FLAGS | MS_FRAME_IGNORED) ? 0 : -EPROTO);
    }
}

static void test_length_of_a_piece(void **state)
{
    struct ms_frame f = full;
    struct ms_error err = {0};

    (void)state;
    f.length = MS_CHUNK_MAX;
    f.total = MS_CHUNK_MAX;
    assert_int_equal(decode(&f, NULL), 0);
    f.length = MS_CHUNK_MAX + 1;
    f.total = MS_MESSAGE_MAX;
    assert_int_equal(decode(&f, &err), -EMSGSIZE);
    assert_non_null(strstr(err.text, "65537"));
    f.length = 2;
    f.total = 1;
    assert_int_equal(decode(&f, NULL), -EPROTO); /* longer than its message */
    f.length = 0;
    f.total = 1;
    assert_int_equal(decode(&f, NULL), -EPROTO); /* nothing of something */
    f.total = 0;
    assert_int_equal(decode(&f, NULL), 0); /* an empty message */
}

/* One frame, whole, and larger than those of others. */
static void test_data(void **state)
{
    struct ms_frame f = {
        .kind = MS_KIND_DATA, .length = MS_DATA_MAX, .total = MS_DATA_MAX};

    (void)state;
    assert_int_equal(decode(&f, NULL), 0);
    f.length--;
    assert_int_equal(decode(&f, NULL), -EPROTO);
    f.length = 0;
    f.total = 0;
    assert_int_equal(decode(&f, NULL), -EPROTO);
    f.length = 5;
    f.total = 5;
    f.flags = MS_FRAME_MORE_OF;
    f.total = 10;
    assert_int_equal(decode(&f, NULL), -EPROTO);
    f.flags = 0;
    f.length = MS_DATA_MAX + 1;
    f.total = MS_DATA_MAX + 1;
    assert_int_equal(decode(&f, NULL), -EMSGSIZE);
}

static void test_length_of_a_message(void **state)
{
    static const struct {
        uint8_t kind;
        uint64_t max;
    } limits[] = {
        {MS_KIND_CALL, MS_MESSAGE_MAX},
        {MS_KIND_REPLY, MS_MESSAGE_MAX},
        {MS_KIND_ITEM, MS_MESSAGE_MAX},
        {MS_KIND_ERROR, MS_CONTROL_MAX},
        {MS_KIND_CONTROL, MS_CONTROL_MAX},
        {MS_KIND_METHOD, MS_METHOD_NAME_MAX},
        {MS_KIND_CANCEL, MS_CHUNK_MAX},
        {MS_KIND_ACK, MS_CHUNK_MAX},
        {MS_KIND_CREDIT, MS_CHUNK_MAX},
        {MS_KIND_PING, MS_CHUNK_MAX},
        {MS_KIND_PONG, MS_CHUNK_MAX},
        {MS_KIND_ATTACH, MS_CHUNK_MAX},
    };

    (void)state;
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        struct ms_frame f = {
            .kind = limits[i].kind, .length = 1, .total = limits[i].max};

        assert_int_equal(ms_frame_total_max(f.kind), limits[i].max);
        assert_int_equal(decode(&f, NULL), 0);
        f.total++;
        assert_int_equal(decode(&f, NULL), -EMSGSIZE);
        f.total = UINT64_MAX;
        assert_int_equal(decode(&f, NULL), -EMSGSIZE);
    }
}

static void test_later_pieces(void **state)
{
    struct ms_frame f = full;

    (void)state;
    f.flags |= MS_FRAME_MORE_OF;
    f.length = 1;
    f.total = MS_MESSAGE_MAX - 1; /* its offset */
    assert_int_equal(decode(&f, NULL), 0);
    f.total = MS_MESSAGE_MAX;
    assert_int_equal(decode(&f, NULL), -EPROTO);
    f.length = 0;
    f.total = 0;
    assert_int_equal(decode(&f, NULL), -EPROTO); /* it brings nothing */
    f.total = UINT64_MAX;
    f.length = MS_CHUNK_MAX;
    assert_int_equal(decode(&f, NULL), -EMSGSIZE);
}

/* Whatever decodes is encoded to the same bytes. */
static void test_random_frames(void **state)
{
    uint64_t seed = 88172645463325252u;

    (void)state;
    for (int i = 0; i < 100000; i++) {
        uint8_t bytes[MS_FRAME_SIZE], again[MS_FRAME_SIZE];
        struct ms_frame f;

        for (size_t at = 0; at < sizeof bytes; at += 8) {
            test_random(&seed);
            memcpy(bytes + at, &seed, 8);
        }
        bytes[0] = MS_FRAME_MAGIC;
        bytes[1] = MS_FRAME_VERSION;
        bytes[2] &= 15;
        bytes[3] &= 3;
        bytes[6] &= 63;
        bytes[7] = 0;
        memset(bytes + 10, 0, 2);
        memset(bytes + 27, 0, 5);
        if (ms_frame_decode(bytes, &f, NULL) < 0)
            continue;
        ms_frame_encode(&f, again);
        assert_memory_equal(bytes, again, sizeof bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_not_a_frame),
        cmocka_unit_test(test_another_version),
        cmocka_unit_test(test_kinds_codecs_flags),
        cmocka_unit_test(test_length_of_a_piece),
        cmocka_unit_test(test_length_of_a_message),
        cmocka_unit_test(test_data),
        cmocka_unit_test(test_later_pieces),
        cmocka_unit_test(test_random_frames),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
