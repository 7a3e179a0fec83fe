/* secret_test.c - tests of secret.h: the secret of a job, from a file */
#include "base/cleanup.h"
#include "base/name.h"
#include "io/session/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define DIGITS "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static char path[] = "/tmp/ms-secret-XXXXXX";

static int setup(void **state)
{
    int fd = mkstemp(path);

    (void)state;
    if (fd < 0)
        return -1;
    close(fd);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return unlink(path);
}

static void put(const char *text, mode_t mode)
{
    MS_CLEANUP(ms_cleanup_fd) int fd = open(path, O_WRONLY | O_TRUNC);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(fchmod(fd, mode), 0);
}

static void test_with_and_without_newline(void **state)
{
    static const char *const texts[] = {DIGITS, DIGITS "\n"};

    (void)state;
    for (size_t i = 0; i < MS_COUNT(texts); i++) {
        uint8_t secret[MS_SECRET_FILE_SIZE] = {0};
        char hex[2 * MS_SECRET_FILE_SIZE + 1];

        put(texts[i], 0600);
        assert_int_equal(ms_secret_read(path, secret, NULL), 0);
        ms_hex(secret, sizeof secret, hex);
        assert_int_equal(strcmp(hex, DIGITS), 0);
    }
}

static void test_other_content_is_refused_and_not_shown(void **state)
{
    static const char *const texts[] = {
        "", "\n", "abc", DIGITS "0", DIGITS "\n\n", DIGITS " "};

    (void)state;
    for (size_t i = 0; i < MS_COUNT(texts); i++) {
        uint8_t secret[MS_SECRET_FILE_SIZE] = {7};
        struct ms_error err = {0};

        put(texts[i], 0600);
        assert_int_equal(ms_secret_read(path, secret, &err), -EINVAL);
        assert_int_equal(secret[0], 7);
        assert_non_null(strstr(err.text, path));
        assert_null(strstr(err.text, "0011"));
    }
}

static void test_readable_by_others_is_refused(void **state)
{
    static const mode_t modes[] = {0604, 0602, 0620, 0777};
    uint8_t secret[MS_SECRET_FILE_SIZE];
    struct ms_error err = {0};

    (void)state;
    for (size_t i = 0; i < MS_COUNT(modes); i++) {
        put(DIGITS, modes[i]);
        assert_int_equal(ms_secret_read(path, secret, &err), -EPERM);
        assert_non_null(strstr(err.text, "chmod 600"));
    }
    put(DIGITS, 0640); /* root's choice, but nobody else's */
    assert_int_equal(ms_secret_read(path, secret, NULL), geteuid() == 0 ? 0 : -EPERM);
    put(DIGITS, 0400);
    assert_int_equal(ms_secret_read(path, secret, NULL), 0);
}

static void test_of_somebody_else_is_refused(void **state)
{
    uint8_t secret[MS_SECRET_FILE_SIZE];

    (void)state;
    if (geteuid() != 0) {
        print_message("# skipped: only root can give a file to somebody else\n");
        skip();
    }
    put(DIGITS, 0600);
    assert_int_equal(chown(path, 65534, 65534), 0);
    assert_int_equal(ms_secret_read(path, secret, NULL), -EPERM);
}

static void test_what_is_no_file(void **state)
{
    uint8_t secret[MS_SECRET_FILE_SIZE];
    struct ms_error err = {0};

    (void)state;
    assert_int_equal(ms_secret_read("/nonexistent/secret", secret, &err), -ENOENT);
    assert_non_null(strstr(err.text, "/nonexistent/secret"));
    assert_int_equal(ms_secret_read("/", secret, NULL), -EINVAL);
    assert_int_equal(ms_secret_read("/dev/zero", secret, NULL), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_with_and_without_newline),
        cmocka_unit_test(test_other_content_is_refused_and_not_shown),
        cmocka_unit_test(test_readable_by_others_is_refused),
        cmocka_unit_test(test_what_is_no_file),
        cmocka_unit_test(test_of_somebody_else_is_refused),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
