#include "orchestrator/ray/package/zip.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

static uint32_t number(const uint8_t *at, int bytes)
{
    uint32_t n = 0;

    for (int i = 0; i < bytes; i++)
        n |= (uint32_t)at[i] << 8 * i;
    return n;
}

/* The i-th entry of the archive's directory. */
static const uint8_t *entry(const struct ms_zip *z, unsigned i)
{
    const uint8_t *end = z->out.data + z->out.len - 22,
                  *at = z->out.data + number(end + 16, 4);

    assert_int_equal(number(end, 4), 0x06054b50);
    assert_true(i < number(end + 10, 2));
    for (; i > 0; i--)
        at += 46 + number(at + 28, 2);
    assert_int_equal(number(at, 4), 0x02014b50);
    return at;
}

/* What it holds, unpacked; its length. */
static size_t
unpack(const struct ms_zip *z, const uint8_t *e, uint8_t *out, size_t room)
{
    const uint8_t *local = z->out.data + number(e + 42, 4);
    const uint8_t *data = local + 30 + number(local + 26, 2);
    uint32_t packed = number(e + 20, 4), len = number(e + 24, 4);
    z_stream s = {.next_in = (uint8_t *)(uintptr_t)data,
                  .avail_in = packed,
                  .next_out = out,
                  .avail_out = (uInt)room};

    assert_int_equal(number(local, 4), 0x04034b50);
    assert_true(len <= room);
    if (number(e + 10, 2) == 0) {
        memcpy(out, data, len);
    } else {
        assert_int_equal(inflateInit2(&s, -MAX_WBITS), Z_OK);
        assert_int_equal(inflate(&s, Z_FINISH), Z_STREAM_END);
        assert_int_equal(s.total_out, len);
        inflateEnd(&s);
    }
    assert_int_equal(number(e + 16, 4), crc32(0, out, len));
    return len;
}

static void test_holds_what_was_put_in(void **state)
{
    uint8_t zeros[5000] = {0}, odd[] = {7, 1, 4}, out[5000];
    struct ms_zip z;

    (void)state;
    ms_zip_init(&z);
    assert_int_equal(ms_zip_add(&z, "bin/program", 0755, zeros, sizeof zeros), 0);
    assert_int_equal(ms_zip_add(&z, "small", 0644, odd, sizeof odd), 0);
    assert_int_equal(ms_zip_add(&z, "empty", 0644, "", 0), 0);
    assert_int_equal(ms_zip_end(&z), 0);
    assert_true(z.out.len < 1000); /* it was packed */
    assert_memory_equal(entry(&z, 0) + 46, "bin/program", 11);
    assert_int_equal(number(entry(&z, 0) + 38, 4) >> 16, 0100755);
    assert_int_equal(unpack(&z, entry(&z, 0), out, sizeof out), sizeof zeros);
    assert_memory_equal(out, zeros, sizeof zeros);
    assert_int_equal(unpack(&z, entry(&z, 1), out, sizeof out), 3);
    assert_memory_equal(out, odd, sizeof odd);
    assert_int_equal(unpack(&z, entry(&z, 2), out, sizeof out), 0);
    ms_zip_finish(&z);
}

static void test_same_in_same_out(void **state)
{
    struct ms_zip a, b;

    (void)state;
    ms_zip_init(&a);
    ms_zip_init(&b);
    ms_zip_add(&a, "x", 0644, "same", 4);
    ms_zip_add(&b, "x", 0644, "same", 4);
    ms_zip_end(&a);
    ms_zip_end(&b);
    assert_int_equal(a.out.len, b.out.len);
    assert_memory_equal(a.out.data, b.out.data, a.out.len);
    ms_zip_finish(&a);
    ms_zip_finish(&b);
}

static void test_wrong_names(void **state)
{
    struct ms_zip z;

    (void)state;
    ms_zip_init(&z);
    assert_int_equal(ms_zip_add(&z, "", 0644, "", 0), -EINVAL);
    assert_int_equal(ms_zip_add(&z, "/etc/passwd", 0644, "", 0), -EINVAL);
    assert_int_equal(z.count, 0);
    ms_zip_finish(&z);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_holds_what_was_put_in),
        cmocka_unit_test(test_same_in_same_out),
        cmocka_unit_test(test_wrong_names),
    };

    return cmocka_run_group_tests_name("zip", tests, NULL, NULL);
}
