/* token_test.c - tests of token.h: what an HTTP client shows instead of the secret */
#include "io/http/token.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* printf 'muster http token' | openssl dgst -sha256 -mac HMAC -macopt hexkey:0000... */
#define ZERO_TOKEN "fc49c14bd569f68a32992a138de8eb0f96ab162b3b031cb6a7c5aaceb0caa505"

static bool shows(const struct ms_http_token *t, const char *one, const char *two)
{
    struct ms_http_request r = {.header_count = two ? 2 : 1};

    r.headers[0] = (struct ms_http_header){"authorization", one};
    r.headers[1] = (struct ms_http_header){"authorization", two};
    return ms_http_token_is_shown(t, &r);
}

static void test_token(void **state)
{
    uint8_t secret[32] = {0};
    struct ms_http_token t, other;
    char text[128];

    (void)state;
    assert_int_equal(ms_http_token_make(&t, secret, sizeof secret), 0);
    assert_string_equal(t.text, ZERO_TOKEN);
    assert_true(shows(&t, "Bearer " ZERO_TOKEN, NULL));
    assert_true(shows(&t, "bearer  " ZERO_TOKEN, NULL));
    assert_false(shows(&t, "Basic " ZERO_TOKEN, NULL));
    assert_false(shows(&t, ZERO_TOKEN, NULL));
    assert_false(shows(&t, "Bearer ", NULL));
    assert_false(shows(&t, "Bearer " ZERO_TOKEN "0", NULL));
    assert_false(shows(&t, "Bearer " ZERO_TOKEN, "Bearer " ZERO_TOKEN));
    snprintf(text, sizeof text, "Bearer %.63s", t.text);
    assert_false(shows(&t, text, NULL));
    secret[0] = 1;
    assert_int_equal(ms_http_token_make(&other, secret, sizeof secret), 0);
    assert_false(shows(&other, "Bearer " ZERO_TOKEN, NULL));
    assert_false(ms_http_token_is_shown(&t, &(struct ms_http_request){0}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_token)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
