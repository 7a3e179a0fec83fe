/* name.c - check and compare names, make random ids */
#include "base/name.h"
#include "base/limits.h"
#include "base/utf8.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/random.h>

static int name_char_ok(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '.' || c == '-';
}

int ms_name_check(const char *name, const char *what, struct ms_error *err)
{
    size_t len = name ? strnlen(name, MS_NAME_MAX + 1) : 0;

    if (len == 0)
        return ms_error_set(err, -EINVAL, "%s: a name is needed", what);
    if (len > MS_NAME_MAX)
        return ms_error_set(
            err, -EINVAL, "%s: longer than %zu characters", what, MS_NAME_MAX);
    if (name[0] == '.' || name[0] == '-')
        return ms_error_set(
            err, -EINVAL, "%s '%s': must not start with '%c'", what, name, name[0]);
    for (size_t i = 0; i < len; i++)
        if (!name_char_ok(name[i]))
            return ms_error_set(err,
                                -EINVAL,
                                "%s: character %zu is not one of A-Z a-z 0-9 _ . -",
                                what,
                                i + 1);
    return 0;
}

/* Those of ASCII, and the second set, U+0080 to U+009F. */
static bool has_control(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];

        if (c < ' ' || c == 0x7f ||
            (c == 0xc2 && i + 1 < len && (unsigned char)text[i + 1] < 0xa0))
            return true;
    }
    return false;
}

int ms_title_check(
    const char *text, size_t len, size_t max, const char *what, struct ms_error *err)
{
    if (!text || len == 0)
        return ms_error_set(err, -EINVAL, "%s: a name is needed", what);
    if (len > max)
        return ms_error_set(
            err, -EINVAL, "%s '%.40s...': longer than %zu bytes", what, text, max);
    if (!ms_utf8_is_valid(text, len))
        return ms_error_set(err, -EINVAL, "%s: the name is not UTF-8", what);
    if (has_control(text, len))
        return ms_error_set(
            err, -EINVAL, "%s: the name has a control character in it", what);
    return 0;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Two runs of digits by their value; moves behind both. */
static int order_numbers(const char **a, const char **b)
{
    const char *x = *a + strspn(*a, "0"), *y = *b + strspn(*b, "0");
    size_t m = strspn(x, "0123456789"), n = strspn(y, "0123456789");

    *a = x + m;
    *b = y + n;
    return m != n ? (m > n) - (m < n) : memcmp(x, y, m);
}

int ms_name_order(const char *a, const char *b)
{
    const char *x = a, *y = b;

    while (*x && *y) {
        if (is_digit(*x) && is_digit(*y)) {
            int rc = order_numbers(&x, &y);

            if (rc)
                return rc;
        } else if (*x != *y) {
            break;
        } else {
            x++;
            y++;
        }
    }
    if (*x != *y)
        return (unsigned char)*x < (unsigned char)*y ? -1 : 1;
    return strcmp(a, b); /* "n1" and "n01" */
}

int ms_random_bytes(void *at, size_t len)
{
    uint8_t *p = at;

    while (len) {
        ssize_t n = getrandom(p, len, 0);

        if (n < 0) {
            if (errno == EINTR)
                continue;
            return -errno;
        }
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

uint64_t ms_random_id(void)
{
    uint64_t id = 0;

    while (id == 0)
        if (ms_random_bytes(&id, sizeof id) < 0)
            id = 1;
    return id;
}

void ms_hex(const void *data, size_t len, char *out)
{
    static const char digits[] = "0123456789abcdef";
    const uint8_t *p = data;

    for (size_t i = 0; i < len; i++) {
        out[2 * i] = digits[p[i] >> 4];
        out[2 * i + 1] = digits[p[i] & 15];
    }
    out[2 * len] = 0;
}

static int digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return -1;
}

int ms_unhex(const char *text, void *out, size_t len)
{
    uint8_t *p = out;

    if (strnlen(text, 2 * len + 1) != 2 * len)
        return -EINVAL;
    for (size_t i = 0; i < len; i++) {
        int hi = digit(text[2 * i]), lo = digit(text[2 * i + 1]);

        if (hi < 0 || lo < 0)
            return -EINVAL;
        p[i] = (uint8_t)(hi << 4 | lo);
    }
    return 0;
}
