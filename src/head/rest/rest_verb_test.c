/* rest_verb_test.c - verbs that are asked by HTTP */
#include "head/rest/rest_impl.h"

#include <ctype.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* As OpenAPI writes it: "api/v1/kv/{+key}" is "/api/v1/kv/{key}". */
static void describe(const char *path, char *out, size_t room)
{
    size_t len = (size_t)snprintf(out, room, "/%s", path);
    char *plus = strstr(out, "{+");

    if (plus)
        memmove(plus + 1, plus + 2, len - (size_t)(plus + 1 - out));
}

/* A route that nobody has described is found here. */
static void test_every_route_is_described(void **state)
{
    json_t *openapi = json_loads(ms_rest_openapi, 0, NULL);
    size_t count;
    const struct ms_verb *verbs = ms_verbs(&count);

    (void)state;
    assert_non_null(openapi);
    for (size_t i = 0; i < count; i++) {
        const struct ms_verb_http *http = &verbs[i].http;
        char path[128], method[16];

        if (!http->method)
            continue;
        describe(http->path, path, sizeof path);
        snprintf(method, sizeof method, "%s", http->method);
        for (char *at = method; *at; at++)
            *at = (char)tolower((unsigned char)*at);
        if (!json_object_get(json_object_get(json_object_get(openapi, "paths"), path),
                             method))
            fail_msg("%s %s is not in doc/openapi.json", http->method, path);
    }
    json_decref(openapi);
}

static void test_percent_decoding(void **state)
{
    char out[16];

    (void)state;
    assert_true(ms_rest_decode("a%2Fb%20c", 9, out));
    assert_string_equal(out, "a/b c");
    assert_true(ms_rest_decode("%c3%a4", 6, out));
    assert_string_equal(out, "\xc3\xa4");
    assert_false(ms_rest_decode("%2", 2, out));
    assert_false(ms_rest_decode("%zz", 3, out));
    assert_false(ms_rest_decode("%00", 3, out));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_route_is_described),
        cmocka_unit_test(test_percent_decoding),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
