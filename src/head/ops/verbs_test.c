/* verbs_test.c - tests of verbs.h: all that a head can be asked */
#include "head/ops/verbs.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static bool is_body(const ProtobufCFieldDescriptor *f)
{
    return f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF;
}

/* A message in the oneof that nobody has given a row is found here. */
static void test_every_body_has_one_row(void **state)
{
    const ProtobufCMessageDescriptor *d = &muster__driver_to_head__descriptor;
    size_t count, bodies = 0;
    const struct ms_verb *verbs = ms_verbs(&count);

    (void)state;
    for (unsigned i = 0; i < d->n_fields; i++) {
        size_t rows = 0;

        if (!is_body(&d->fields[i]))
            continue;
        bodies++;
        for (size_t j = 0; j < count; j++)
            rows += (uint32_t)verbs[j].body == d->fields[i].id;
        if (rows != 1)
            fail_msg("'%s' has %zu rows in verbs.c", d->fields[i].name, rows);
    }
    assert_int_equal(bodies, count);
}

static void test_rows_are_whole(void **state)
{
    size_t count;
    const struct ms_verb *verbs = ms_verbs(&count);

    (void)state;
    for (size_t i = 0; i < count; i++) {
        const struct ms_verb *v = &verbs[i];
        const ProtobufCFieldDescriptor *answer =
            protobuf_c_message_descriptor_get_field(&muster__head_to_driver__descriptor,
                                                    v->answer);

        assert_ptr_equal(ms_verb_find(v->body), v);
        assert_true(answer && is_body(answer));
        assert_true((v->who != 0) == (v->run != NULL));
        /* an answer that tells nothing answers no question */
        assert_false(v->is_question && v->answer == MUSTER__HEAD_TO_DRIVER__BODY_DONE);
    }
}

/* Its fields are in the message, and no other row has the same route. */
static void
check_route(const struct ms_verb *v, const struct ms_verb *verbs, size_t count)
{
    const char *at = v->http.path;
    char name[64];

    assert_true(v->who & MS_ASKER_HTTP);
    /* a question may be a POST: what it asks about can be as long as a file */
    assert_true(v->is_question || strcmp(v->http.method, "GET") != 0);
    while ((at = strchr(at, '{'))) {
        at += 1 + (at[1] == '+');
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at, "}"), at);
        assert_non_null(
            protobuf_c_message_descriptor_get_field_by_name(ms_verb_message(v), name));
    }
    for (size_t i = 0; i < count; i++)
        if (&verbs[i] != v && verbs[i].http.method)
            assert_true(strcmp(verbs[i].http.method, v->http.method) != 0 ||
                        strcmp(verbs[i].http.path, v->http.path) != 0);
}

static void test_routes(void **state)
{
    size_t count, routes = 0;
    const struct ms_verb *verbs = ms_verbs(&count);

    (void)state;
    for (size_t i = 0; i < count; i++)
        if (verbs[i].http.method) {
            check_route(&verbs[i], verbs, count);
            routes++;
        }
    assert_true(routes > 0);
}

static void test_names_and_messages(void **state)
{
    const struct ms_verb *v = ms_verb_find(MUSTER__DRIVER_TO_HEAD__BODY_KV_PUT);

    (void)state;
    assert_string_equal(ms_verb_name(v), "kv_put");
    assert_ptr_equal(ms_verb_message(v), &muster__kv_put__descriptor);
}

/* 0, or why not. */
static int check(Muster__DriverToHead__BodyCase body, enum ms_asker who)
{
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;
    struct ms_error err = {0};

    m.body_case = body;
    if (ms_verb_check(&m, who, &err))
        return 0;
    assert_true(err.text[0]);
    return err.code;
}

static void test_who_may(void **state)
{
    (void)state;
    /* what ends with its owner is not for those who own nothing */
    for (unsigned who = MS_ASKER_PROCESS; who <= MS_ASKER_HTTP; who <<= 1) {
        int owns = who < MS_ASKER_TOOL ? 0 : -EPERM;

        assert_int_equal(check(MUSTER__DRIVER_TO_HEAD__BODY_CREATE, who), owns);
        assert_int_equal(check(MUSTER__DRIVER_TO_HEAD__BODY_HOLD_PORT, who), owns);
        assert_int_equal(check(MUSTER__DRIVER_TO_HEAD__BODY_PLACE_GROUP, who), owns);
        assert_int_equal(check(MUSTER__DRIVER_TO_HEAD__BODY_RESERVE, who), owns);
        assert_int_equal(check(MUSTER__DRIVER_TO_HEAD__BODY_DESTROY, who), 0);
        assert_int_equal(check(MUSTER__DRIVER_TO_HEAD__BODY_BARRIER, who),
                         who == MS_ASKER_WORKER ? 0 : -EPERM);
        assert_int_equal(check(MUSTER__DRIVER_TO_HEAD__BODY_HELLO, who), -ENOSYS);
        assert_int_equal(check(MUSTER__DRIVER_TO_HEAD__BODY__NOT_SET, who), -ENOSYS);
    }
    assert_int_equal(
        check(MUSTER__DRIVER_TO_HEAD__BODY_RESTORE_GROUP, MS_ASKER_PROCESS), -EPERM);
    assert_int_equal(check(MUSTER__DRIVER_TO_HEAD__BODY_STATUS, MS_ASKER_TOOL), 0);
}

static void test_a_refusal_says_who_and_what(void **state)
{
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;
    struct ms_error err = {0};

    (void)state;
    m.body_case = MUSTER__DRIVER_TO_HEAD__BODY_CREATE;
    assert_null(ms_verb_check(&m, MS_ASKER_TOOL, &err));
    assert_string_equal(err.text, "a tool may not ask for 'create'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_body_has_one_row),
        cmocka_unit_test(test_rows_are_whole),
        cmocka_unit_test(test_routes),
        cmocka_unit_test(test_names_and_messages),
        cmocka_unit_test(test_who_may),
        cmocka_unit_test(test_a_refusal_says_who_and_what),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
