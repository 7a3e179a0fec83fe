/* offer_test.c - tests of offer.h: a secret that a controller and its bridge have,
 * and nobody else */
#include "orchestrator/ray/bridge/offer.h"

#include "base/cleanup.h"
#include "orchestrator/ray/bridge/relay.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* ---- keys ---------------------------------------------------------------------------- */

static void test_both_have_the_same_secret(void **state)
{
    struct ms_offer_keys ours, theirs, others;
    uint8_t a[MS_OFFER_KEY], b[MS_OFFER_KEY], c[MS_OFFER_KEY], zero[MS_OFFER_KEY] = {0};

    (void)state;
    assert_int_equal(ms_offer_keys_make(&ours), 0);
    assert_int_equal(ms_offer_keys_make(&theirs), 0);
    assert_int_equal(ms_offer_keys_make(&others), 0);
    assert_int_equal(ms_offer_secret(&ours, theirs.public_key, a), 0);
    assert_int_equal(ms_offer_secret(&theirs, ours.public_key, b), 0);
    assert_int_equal(ms_offer_secret(&others, ours.public_key, c), 0);
    assert_memory_equal(a, b, sizeof a);
    assert_memory_not_equal(a, c, sizeof a);
    assert_int_equal(ms_offer_secret(&ours, zero, c), -EPROTO); /* a key that is none */
    ms_offer_keys_wipe(&ours);
    assert_memory_equal(ours.private_key, zero, sizeof zero);
}

static void test_print_and_parse(void **state)
{
    struct ms_offer_keys k;
    MS_CLEANUP(ms_cleanup_free) char *with = NULL;
    MS_CLEANUP(ms_cleanup_free) char *without = NULL;
    struct ms_offer o;

    (void)state;
    assert_int_equal(ms_offer_keys_make(&k), 0);
    with = ms_offer_print(k.public_key, "10.0.0.1:7,[::1]:8");
    without = ms_offer_print(k.public_key, "");
    assert_int_equal(ms_offer_parse(with, &o, NULL), 0);
    assert_string_equal(o.addresses, "10.0.0.1:7,[::1]:8");
    assert_memory_equal(o.public_key, k.public_key, MS_OFFER_KEY);
    assert_int_equal(ms_offer_parse(without, &o, NULL), 0);
    assert_string_equal(o.addresses, "");
    with[0] = '2'; /* of another version */
    assert_int_equal(ms_offer_parse(with, &o, NULL), -EINVAL);
    assert_int_equal(ms_offer_parse("", &o, NULL), -EINVAL);
    assert_int_equal(ms_offer_parse("1 abc -", &o, NULL), -EINVAL);
}

static void test_find_in_a_log(void **state)
{
    struct ms_offer_keys k;
    MS_CLEANUP(ms_cleanup_free) char *answer = NULL;
    char log[1024];
    struct ms_offer o;

    (void)state;
    assert_int_equal(ms_offer_keys_make(&k), 0);
    answer = ms_offer_print(k.public_key, "h:1");
    snprintf(log, sizeof log, "Running\n" MS_OFFER_ANSWER " rubbish\nmore\n");
    assert_int_equal(ms_offer_find(log, &o), -ENOENT);
    snprintf(log, sizeof log, "Running\n" MS_OFFER_ANSWER " %s", answer);
    assert_int_equal(ms_offer_find(log, &o), -ENOENT); /* the line is not whole yet */
    snprintf(log, sizeof log, "Running\n" MS_OFFER_ANSWER " %s\nhm", answer);
    assert_int_equal(ms_offer_find(log, &o), 0);
    assert_string_equal(o.addresses, "h:1");
    snprintf(log, sizeof log, "he said " MS_OFFER_ANSWER " %s\n", answer);
    assert_int_equal(ms_offer_find(log, &o), -ENOENT); /* not a line of its own */
}

/* ---- the relay ----------------------------------------------------------------------- */

static size_t kept(const struct ms_relay *r)
{
    size_t count = 0;

    ms_list_each (one, &r->sent.open, struct ms_relayed, pending.link)
        count++;
    return count;
}

static void test_relay_once_and_in_order(void **state)
{
    struct ms_relay a, b;
    const struct ms_relayed *one;

    (void)state;
    ms_relay_init(&a);
    ms_relay_init(&b);
    assert_true(ms_relay_begin(&a, 7));
    assert_false(ms_relay_begin(&a, 7));
    one = ms_relay_add(&a, "first", 5);
    assert_int_equal(one->pending.number, 1);
    assert_true(ms_relay_take(&b, one->pending.number));
    one = ms_relay_add(&a, "second", 6);
    assert_string_equal(one->line, "second");
    ms_relay_acked(&a, b.heard.watermark);
    assert_int_equal(kept(&a), 1);
    assert_true(ms_relay_take(&b, 2));
    /* the connection breaks before that is acknowledged: it comes again */
    assert_false(ms_relay_take(&b, 2));
    ms_relay_acked(&a, b.heard.watermark);
    assert_int_equal(kept(&a), 0);
    assert_int_equal(a.kept_bytes, 0);
    ms_relay_finish(&a);
    ms_relay_finish(&b);
}

static void test_relay_of_another_controller(void **state)
{
    struct ms_relay r;

    (void)state;
    ms_relay_init(&r);
    ms_relay_begin(&r, 1);
    ms_relay_add(&r, "for the first", 13);
    assert_true(ms_relay_take(&r, 1));
    assert_true(ms_relay_begin(&r, 2));
    assert_int_equal(kept(&r), 0);
    assert_int_equal(r.heard.watermark, 0);
    assert_int_equal(ms_relay_add(&r, "x", 1)->pending.number, 1);
    ms_relay_finish(&r);
}

static void test_relay_has_a_limit(void **state)
{
    struct ms_relay r;
    char *big = calloc(1, MS_RELAY_KEPT_MAX);

    (void)state;
    ms_relay_init(&r);
    assert_non_null(ms_relay_add(&r, big, MS_RELAY_KEPT_MAX - 1));
    assert_null(ms_relay_add(&r, big, 2));
    assert_non_null(ms_relay_add(&r, big, 1));
    ms_relay_finish(&r);
    free(big);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_have_the_same_secret),
        cmocka_unit_test(test_print_and_parse),
        cmocka_unit_test(test_find_in_a_log),
        cmocka_unit_test(test_relay_once_and_in_order),
        cmocka_unit_test(test_relay_of_another_controller),
        cmocka_unit_test(test_relay_has_a_limit),
    };

    return cmocka_run_group_tests_name("offer", tests, NULL, NULL);
}
