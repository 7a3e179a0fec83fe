/* rendezvous_test.c - tests of rendezvous.h: members meet and become a world with
 * ranks, again and again */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/test_random.h"
#include "job/rendezvous.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define S MS_NS_PER_S

static struct ms_rendezvous make(uint32_t min, uint32_t max, uint32_t unit)
{
    const struct ms_rendezvous_limits limits = {.min = min,
                                                .max = max,
                                                .unit = unit,
                                                .last_call_ns = 30 * S,
                                                .join_ns = 600 * S};
    struct ms_rendezvous r;

    assert_int_equal(ms_rendezvous_check(&limits, NULL), 0);
    ms_rendezvous_init(&r, &limits);
    return r;
}

static int
join_as(struct ms_rendezvous *r, const char *key, uint64_t owner, int64_t now)
{
    return ms_rendezvous_join(
        r, &(struct ms_rendezvous_join){.key = key, .owner = owner}, now, NULL);
}

/* The owner is the key's first letter, as with all that are never replaced. */
static void join(struct ms_rendezvous *r, const char *keys, int64_t now)
{
    for (; *keys; keys++) {
        const char key[2] = {*keys, 0};

        assert_true(join_as(r, key, (uint64_t)*keys, now) >= 0);
    }
}

static enum ms_rendezvous_event step(struct ms_rendezvous *r, int64_t now)
{
    return ms_rendezvous_step(r, now, NULL);
}

static void
assert_world(const struct ms_rendezvous *r, uint64_t round, const char *keys)
{
    char got[64] = {0};

    for (size_t i = 0; i < r->world_count && i + 1 < sizeof got; i++)
        got[i] = r->world[i].key[0];
    assert_string_equal(got, keys);
    assert_int_equal(r->round, round);
}

static void test_limits_that_cannot_be_kept(void **state)
{
    static const struct {
        struct ms_rendezvous_limits limits;
        const char *says;
    } cases[] = {
        {{3, 4, 2, 0, S}, "multiples of the unit"},
        {{2, 5, 2, 0, S}, "multiples of the unit"},
        {{1, 3, 4, 0, S}, "multiples of the unit"},
        {{2, 2, 0, 0, S}, "multiples of the unit"},
        {{0, 2, 1, 0, S}, "the least is 1"},
        {{3, 2, 1, 0, S}, "not more than the most"},
        {{1, 100000, 1, 0, S}, "it can have 4096"},
        {{1, 2, 1, 0, 0}, "time to join"},
        {{1, 2, 1, -1, S}, "last call"},
    };

    (void)state;
    for (size_t i = 0; i < MS_COUNT(cases); i++) {
        struct ms_error err = {0};

        assert_int_equal(ms_rendezvous_check(&cases[i].limits, &err), -EINVAL);
        assert_non_null(strstr(err.text, cases[i].says));
    }
}

/* 5.6, item 4 */
static void test_min_3_unit_2_is_refused_at_start(void **state)
{
    const struct ms_rendezvous_limits l = {3, 8, 2, 0, S};
    struct ms_error err = {0};

    (void)state;
    assert_int_equal(ms_rendezvous_check(&l, &err), -EINVAL);
    assert_string_equal(err.text,
                        "a world of 3 to 8 members in units of 2: min and max must be "
                        "multiples of the unit");
}

/* 5.6, item 5 */
static void test_trickling_joiners_complete_by_the_deadline(void **state)
{
    MS_CLEANUP(ms_rendezvous_finish) struct ms_rendezvous r = make(2, 1000, 2);
    int64_t now = 0;

    (void)state;
    for (int i = 0; r.round == 0; i++, now += 20 * S) { /* within every last call */
        char key[16];

        assert_true(now <= 600 * S);
        snprintf(key, sizeof key, "n%d", i);
        assert_int_equal(join_as(&r, key, (uint64_t)i, now), 1);
        step(&r, now);
    }
    assert_int_equal(now, 620 * S);
    assert_int_equal(r.world_count, 30); /* of 31, in units of 2 */
    assert_int_equal(r.waiting_count, 1);
}

static void test_max_completes_at_once(void **state)
{
    MS_CLEANUP(ms_rendezvous_finish) struct ms_rendezvous r = make(2, 4, 1);

    (void)state;
    join(&r, "abc", 0);
    assert_int_equal(step(&r, 0), MS_RENDEZVOUS_NOTHING);
    join(&r, "d", 5);
    assert_int_equal(step(&r, 5), MS_RENDEZVOUS_COMPLETED);
    assert_world(&r, 1, "abcd");
    assert_int_equal(ms_rendezvous_next_ns(&r), MS_NEVER);
    assert_false(ms_rendezvous_is_wanted(&r));
}

static void test_min_completes_after_the_last_call(void **state)
{
    MS_CLEANUP(ms_rendezvous_finish) struct ms_rendezvous r = make(2, 4, 1);

    (void)state;
    join(&r, "a", 0);
    assert_int_equal(ms_rendezvous_next_ns(&r), 600 * S);
    join(&r, "b", 10 * S);
    assert_int_equal(ms_rendezvous_next_ns(&r), 40 * S);
    join(&r, "c", 20 * S);
    assert_int_equal(ms_rendezvous_next_ns(&r), 50 * S);
    join(&r, "c", 49 * S); /* it waits already */
    assert_int_equal(step(&r, 50 * S - 1), MS_RENDEZVOUS_NOTHING);
    assert_int_equal(step(&r, 50 * S), MS_RENDEZVOUS_COMPLETED);
    assert_world(&r, 1, "abc");
}

static void test_too_few_at_the_deadline(void **state)
{
    MS_CLEANUP(ms_rendezvous_finish) struct ms_rendezvous r = make(4, 8, 2);
    struct ms_error err = {0};

    (void)state;
    join(&r, "abc", 0);
    assert_int_equal(ms_rendezvous_step(&r, 600 * S, &err), MS_RENDEZVOUS_FAILED);
    assert_string_equal(
        err.text, "3 of at least 4 members came within 600.0 s; the last was 'c'");
    assert_int_equal(r.waiting_count, 0);
    assert_int_equal(r.round, 0);
    join(&r, "abcdefgh", 601 * S); /* it can be tried again */
    assert_int_equal(step(&r, 601 * S), MS_RENDEZVOUS_COMPLETED);
    assert_world(&r, 1, "abcdefgh");
}

static void test_cut_to_the_unit_the_rest_waits(void **state)
{
    MS_CLEANUP(ms_rendezvous_finish) struct ms_rendezvous r = make(2, 8, 2);

    (void)state;
    join(&r, "abcde", 0);
    assert_int_equal(step(&r, 30 * S), MS_RENDEZVOUS_COMPLETED);
    assert_world(&r, 1, "abcd");
    assert_true(ms_rendezvous_waits(&r, "e", 'e'));
    assert_false(ms_rendezvous_is_wanted(&r)); /* with e alone it does not grow */
    join(&r, "f", 31 * S);
    assert_true(ms_rendezvous_is_wanted(&r));
    assert_int_equal(ms_rendezvous_next_ns(&r), MS_NEVER); /* the world works */
    join(&r, "bcda", 40 * S);
    assert_int_equal(step(&r, 70 * S), MS_RENDEZVOUS_COMPLETED);
    assert_world(&r, 2, "abcdef");
}

static void test_a_whole_world_meets_again_at_once(void **state)
{
    MS_CLEANUP(ms_rendezvous_finish) struct ms_rendezvous r = make(2, 8, 1);

    (void)state;
    join(&r, "abc", 0);
    step(&r, 30 * S);
    join(&r, "ca", 100 * S);
    assert_true(ms_rendezvous_is_wanted(&r));
    /* b lives: it is waited for beyond the last call, up to the deadline */
    assert_int_equal(step(&r, 300 * S), MS_RENDEZVOUS_NOTHING);
    assert_int_equal(ms_rendezvous_next_ns(&r), 700 * S);
    join(&r, "b", 400 * S);
    assert_int_equal(step(&r, 400 * S), MS_RENDEZVOUS_COMPLETED);
    assert_world(&r, 2, "abc");
}

static void test_a_member_that_does_not_come_back_is_left_behind(void **state)
{
    MS_CLEANUP(ms_rendezvous_finish) struct ms_rendezvous r = make(2, 8, 1);

    (void)state;
    join(&r, "abc", 0);
    step(&r, 30 * S);
    join(&r, "ca", 100 * S);
    assert_int_equal(step(&r, 700 * S), MS_RENDEZVOUS_COMPLETED);
    assert_world(&r, 2, "ac");
}

static void test_ranks_are_stable(void **state)
{
    static const struct {
        const char *gone, *come, *world;
    } cases[] = {
        {"", "", "abcd"},
        {"b", "", "adc"},   /* c and a keep theirs; d fills the gap */
        {"b", "x", "axcd"}, /* a newcomer gets the free rank */
        {"bc", "xy", "axyd"},
        {"a", "", "dbc"},
        {"abc", "x", "dx"},
        {"", "xy", "abcdxy"},
        {"d", "", "abc"},
    };

    (void)state;
    for (size_t i = 0; i < MS_COUNT(cases); i++) {
        MS_CLEANUP(ms_rendezvous_finish) struct ms_rendezvous r = make(2, 8, 1);

        join(&r, "abcd", 0);
        step(&r, 30 * S);
        for (const char *g = cases[i].gone; *g; g++)
            assert_int_equal(ms_rendezvous_drop(&r, (uint64_t)*g, 31 * S), 1);
        join(&r, cases[i].come, 32 * S);
        for (const char *k = "dcba"; *k; k++) /* in any order */
            if (!strchr(cases[i].gone, *k))
                join(&r, (const char[]){*k, 0}, 33 * S);
        step(&r, 63 * S);
        assert_world(&r, 2, cases[i].world);
    }
}

/* New members get the ranks that they would like, as far as old ones leave them free. */
static void test_liked_ranks(void **state)
{
    MS_CLEANUP(ms_rendezvous_finish) struct ms_rendezvous r = make(2, 4, 1);
    const char *const keys[] = {"d", "c", "b", "a"};

    (void)state;
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(ms_rendezvous_join(
                             &r,
                             &(struct ms_rendezvous_join){.key = keys[i],
                                                          .owner = i + 1,
                                                          .place = i == 1 ? 0 : 4 - i},
                             0,
                             NULL),
                         1);
    assert_int_equal(step(&r, 0), MS_RENDEZVOUS_COMPLETED);
    assert_world(&r, 1, "abcd"); /* c took what was left */
    assert_int_equal(ms_rendezvous_drop(&r, 1, S), 1);
    for (uint64_t owner = 2; owner < 5; owner++)
        join_as(&r, keys[owner - 1], owner, S);
    /* the rank that it would like is an old member's */
    assert_int_equal(ms_rendezvous_join(&r,
                                        &(struct ms_rendezvous_join){
                                            .key = "e", .owner = 9, .place = 1},
                                        S,
                                        NULL),
                     1);
    assert_int_equal(step(&r, S), MS_RENDEZVOUS_COMPLETED);
    assert_world(&r, 2, "abce");
}

/* With fewer than max there are, a round does not wait for more; below min it does. */
static void test_all_that_are_present(void **state)
{
    MS_CLEANUP(ms_rendezvous_finish) struct ms_rendezvous r = make(2, 6, 2);

    (void)state;
    r.present = 5; /* cut to the unit: 4 */
    join(&r, "abc", 0);
    assert_int_equal(step(&r, 0), MS_RENDEZVOUS_NOTHING);
    join(&r, "d", 0);
    assert_int_equal(step(&r, 0), MS_RENDEZVOUS_COMPLETED);
    assert_world(&r, 1, "abcd");
    r.present = 1; /* all others have gone for good */
    for (uint64_t owner = 'b'; owner <= 'd'; owner++)
        ms_rendezvous_drop(&r, owner, S);
    join(&r, "a", S);
    assert_int_equal(step(&r, S), MS_RENDEZVOUS_NOTHING);
    assert_int_equal(step(&r, 700 * S), MS_RENDEZVOUS_FAILED);
}

static void test_a_returning_rank(void **state)
{
    MS_CLEANUP(ms_rendezvous_finish) struct ms_rendezvous r = make(2, 3, 1);

    (void)state;
    join(&r, "abc", 0);
    step(&r, 0);
    assert_int_equal(ms_rendezvous_rank(&r, "b", 'b'), 1);
    /* b comes again as another incarnation before anybody knows that the first has died */
    assert_int_equal(join_as(&r, "b", 77, 10 * S), 1);
    assert_int_equal(ms_rendezvous_rank(&r, "b", 'b'), -1);
    assert_true(ms_rendezvous_is_wanted(&r));
    assert_int_equal(ms_rendezvous_lost(&r), 1);
    /* the late end of the first changes nothing */
    assert_int_equal(ms_rendezvous_drop(&r, 'b', 11 * S), 0);
    assert_false(ms_rendezvous_leave(&r, "b", 'b', 11 * S));
    join(&r, "ca", 12 * S);
    assert_int_equal(step(&r, 12 * S), MS_RENDEZVOUS_COMPLETED);
    assert_world(&r, 2, "abc");
    assert_int_equal(ms_rendezvous_rank(&r, "b", 77), 1);
}

static void test_at_max_newcomers_wait_until_one_is_lost(void **state)
{
    MS_CLEANUP(ms_rendezvous_finish) struct ms_rendezvous r = make(2, 2, 1);

    (void)state;
    join(&r, "abx", 0);
    step(&r, 0);
    assert_world(&r, 1, "ab");
    assert_false(ms_rendezvous_is_wanted(&r));
    ms_rendezvous_drop(&r, 'a', S);
    assert_true(ms_rendezvous_is_wanted(&r));
    assert_int_equal(step(&r, 10000 * S), MS_RENDEZVOUS_NOTHING); /* b works on */
    join(&r, "b", 10000 * S);
    assert_int_equal(step(&r, 10000 * S), MS_RENDEZVOUS_COMPLETED);
    assert_world(&r, 2, "xb");
}

static void test_old_members_go_before_new_ones(void **state)
{
    MS_CLEANUP(ms_rendezvous_finish) struct ms_rendezvous r = make(2, 2, 1);

    (void)state;
    join(&r, "ab", 0);
    step(&r, 0);
    join(&r, "xyz", S);
    join(&r, "b", 2 * S);
    /* three and more wait, but a lives and is waited for */
    assert_int_equal(step(&r, 3 * S), MS_RENDEZVOUS_NOTHING);
    join(&r, "a", 4 * S);
    assert_int_equal(step(&r, 4 * S), MS_RENDEZVOUS_COMPLETED);
    assert_world(&r, 2, "ab");
    assert_int_equal(r.waiting_count, 3);
}

static void test_when_all_have_gone_those_that_wait_begin(void **state)
{
    MS_CLEANUP(ms_rendezvous_finish) struct ms_rendezvous r = make(1, 2, 1);

    (void)state;
    join(&r, "abx", 0);
    step(&r, 0);
    ms_rendezvous_drop(&r, 'a', 50 * S);
    ms_rendezvous_drop(&r, 'b', 60 * S);
    assert_int_equal(ms_rendezvous_next_ns(&r), 30 * S); /* the last call is over */
    assert_int_equal(step(&r, 60 * S), MS_RENDEZVOUS_COMPLETED);
    assert_world(&r, 2, "x");
    ms_rendezvous_drop(&r, 'x', 61 * S);
    assert_true(ms_rendezvous_is_empty(&r));
}

static void test_leaving_while_waiting(void **state)
{
    MS_CLEANUP(ms_rendezvous_finish) struct ms_rendezvous r = make(2, 4, 1);

    (void)state;
    join(&r, "ab", 0);
    assert_true(ms_rendezvous_leave(&r, "b", 'b', S));
    assert_false(ms_rendezvous_leave(&r, "b", 'b', S));
    assert_int_equal(step(&r, 100 * S), MS_RENDEZVOUS_NOTHING);
    assert_true(ms_rendezvous_leave(&r, "a", 'a', S));
    assert_int_equal(ms_rendezvous_next_ns(&r), MS_NEVER);
    join(&r, "a", 1000 * S); /* a new round with a new deadline */
    assert_int_equal(ms_rendezvous_next_ns(&r), 1600 * S);
}

static void test_closed(void **state)
{
    MS_CLEANUP(ms_rendezvous_finish) struct ms_rendezvous r = make(1, 2, 1);
    struct ms_error err = {0};

    (void)state;
    join(&r, "abx", 0);
    step(&r, 0);
    ms_rendezvous_close(&r);
    assert_int_equal(r.waiting_count, 0);
    assert_int_equal(
        ms_rendezvous_join(&r, &(struct ms_rendezvous_join){.key = "c"}, 0, &err),
        -ECANCELED);
    ms_rendezvous_drop(&r, 'a', S);
    assert_false(ms_rendezvous_is_wanted(&r));
    assert_world(&r, 1, "ab");
}

static void test_bad_members(void **state)
{
    MS_CLEANUP(ms_rendezvous_finish) struct ms_rendezvous r = make(1, 2, 1);
    char key[MS_RENDEZVOUS_KEY_MAX + 2];

    (void)state;
    memset(key, 'k', sizeof key);
    key[sizeof key - 1] = 0;
    assert_int_equal(join_as(&r, "", 1, 0), -EINVAL);
    assert_int_equal(join_as(&r, "a\nb", 1, 0), -EINVAL);
    assert_int_equal(join_as(&r, key, 1, 0), -EINVAL);
    assert_int_equal(r.waiting_count, 0);
}

/* ---- kept ---- */

static void assert_same(const struct ms_rendezvous *a, const struct ms_rendezvous *b)
{
    Muster__KeptRendezvous *x = ms_rendezvous_encode(a), *y = ms_rendezvous_encode(b);
    uint8_t packed[2][65536];
    size_t len;

    assert_non_null(x);
    assert_non_null(y);
    len = muster__kept_rendezvous__pack(x, packed[0]);
    assert_int_equal(muster__kept_rendezvous__pack(y, packed[1]), len);
    assert_memory_equal(packed[0], packed[1], len);
    muster__kept_rendezvous__free_unpacked(x, NULL);
    muster__kept_rendezvous__free_unpacked(y, NULL);
}

static struct ms_rendezvous copy(const struct ms_rendezvous *r, int64_t now)
{
    Muster__KeptRendezvous *m = ms_rendezvous_encode(r);
    struct ms_rendezvous out;

    assert_non_null(m);
    assert_int_equal(ms_rendezvous_decode(&out, m, now), 0);
    muster__kept_rendezvous__free_unpacked(m, NULL);
    return out;
}

static void test_kept_and_made_again(void **state)
{
    MS_CLEANUP(ms_rendezvous_finish) struct ms_rendezvous r = make(2, 3, 1);

    (void)state;
    join(&r, "abcx", 0);
    step(&r, 0);
    ms_rendezvous_drop(&r, 'c', S);
    join(&r, "b", 2 * S);
    {
        MS_CLEANUP(ms_rendezvous_finish)
        struct ms_rendezvous again = copy(&r, 5000 * S);

        assert_same(&r, &again);
        assert_true(ms_rendezvous_is_wanted(&again));
        assert_int_equal(ms_rendezvous_next_ns(&again), 5600 * S); /* a lives */
        join(&again, "a", 5001 * S);
        assert_int_equal(step(&again, 5001 * S), MS_RENDEZVOUS_COMPLETED);
        assert_world(&again, 2, "abx");
    }
}

/* ---- random ---- */

enum { KEYS = 10 };

/* What must hold in every state. */
static void check_state(const struct ms_rendezvous *r, uint64_t round_before)
{
    assert_true(r->round == round_before || r->round == round_before + 1);
    if (r->round > 0) {
        assert_in_range(r->world_count, r->limits.min, r->limits.max);
        assert_int_equal(r->world_count % r->limits.unit, 0);
    }
    for (size_t i = 0; i < r->world_count; i++)
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(r->world[i].key, r->world[k].key);
    for (size_t i = 0; i < r->waiting_count; i++)
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(r->waiting[i].key, r->waiting[k].key);
    if (r->is_gathering)
        assert_true(r->waiting_count > 0 && ms_rendezvous_next_ns(r) <= r->deadline_ns);
}

/* Of two worlds that follow each other: who is in both and could keep the rank has it. */
static void check_stable(char (*before)[4], size_t count, const struct ms_rendezvous *r)
{
    for (size_t rank = 0; rank < count && rank < r->world_count; rank++)
        for (size_t k = 0; k < r->world_count; k++)
            if (strcmp(before[rank], r->world[k].key) == 0)
                assert_int_equal(k, rank);
}

static void run_one(uint64_t number)
{
    uint64_t seed = test_seed(number), owners[KEYS], last_owner = KEYS;
    uint32_t unit = 1 + test_roll(&seed, 3), min = unit * (1 + test_roll(&seed, 2));
    MS_CLEANUP(ms_rendezvous_finish)
    struct ms_rendezvous r = make(min, min + unit * test_roll(&seed, 3), unit);
    int64_t now = 0;

    for (size_t i = 0; i < KEYS; i++)
        owners[i] = i;
    for (int i = 0; i < 300; i++) {
        uint64_t round = r.round;
        size_t k = test_roll(&seed, KEYS), count = r.world_count;
        char key[4] = {(char)('a' + k), 0}, before[16][4];

        for (size_t n = 0; n < count; n++)
            strcpy(before[n], r.world[n].key);
        switch (test_roll(&seed, 8)) {
        case 0:
            ms_rendezvous_drop(&r, owners[k], now);
            owners[k] = ++last_owner;
            break;
        case 1:
            owners[k] =
                ++last_owner; /* a replacement; the end of the old is not known */
            join_as(&r, key, owners[k], now);
            break;
        case 2:
            ms_rendezvous_leave(&r, key, owners[k], now);
            break;
        case 3:
            now += test_roll(&seed, 100) * S;
            break;
        default:
            assert_true(join_as(&r, key, owners[k], now) >= 0);
        }
        switch (step(&r, now)) {
        case MS_RENDEZVOUS_COMPLETED:
            check_stable(before, count, &r);
            break;
        case MS_RENDEZVOUS_FAILED:
            assert_int_equal(r.waiting_count, 0);
            break;
        default:
            assert_true(now < ms_rendezvous_next_ns(&r));
        }
        check_state(&r, round);
        if (i % 64 == 0) {
            MS_CLEANUP(ms_rendezvous_finish) struct ms_rendezvous again = copy(&r, now);

            assert_same(&r, &again);
        }
    }
}

static void test_random_members(void **state)
{
    (void)state;
    for (uint64_t number = 1; number <= 1000; number++)
        run_one(number);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits_that_cannot_be_kept),
        cmocka_unit_test(test_min_3_unit_2_is_refused_at_start),
        cmocka_unit_test(test_trickling_joiners_complete_by_the_deadline),
        cmocka_unit_test(test_max_completes_at_once),
        cmocka_unit_test(test_min_completes_after_the_last_call),
        cmocka_unit_test(test_too_few_at_the_deadline),
        cmocka_unit_test(test_cut_to_the_unit_the_rest_waits),
        cmocka_unit_test(test_a_whole_world_meets_again_at_once),
        cmocka_unit_test(test_a_member_that_does_not_come_back_is_left_behind),
        cmocka_unit_test(test_ranks_are_stable),
        cmocka_unit_test(test_liked_ranks),
        cmocka_unit_test(test_all_that_are_present),
        cmocka_unit_test(test_a_returning_rank),
        cmocka_unit_test(test_at_max_newcomers_wait_until_one_is_lost),
        cmocka_unit_test(test_old_members_go_before_new_ones),
        cmocka_unit_test(test_when_all_have_gone_those_that_wait_begin),
        cmocka_unit_test(test_leaving_while_waiting),
        cmocka_unit_test(test_closed),
        cmocka_unit_test(test_bad_members),
        cmocka_unit_test(test_kept_and_made_again),
        cmocka_unit_test(test_random_members),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
