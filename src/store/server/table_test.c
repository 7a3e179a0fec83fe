/* table_test.c - tests of table.h: the objects of one node's store, who holds
 * them, and for how long */
#include "store/server/table.h"

#include "base/clock.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define MIB  ((uint64_t)1 << 20)
#define HERE UINT64_C(0xA0)
#define FAR  UINT64_C(0xB0)

struct world {
    struct ms_table t;
    int freed, unheld;
};

static void on_free(void *arg, struct ms_object *o)
{
    (void)o;
    ((struct world *)arg)->freed++;
}

static void on_unheld(void *arg, struct ms_object *o)
{
    assert_true(o->is_copy);
    ((struct world *)arg)->unheld++;
}

static const struct ms_table_ops ops = {.on_free = on_free, .on_unheld = on_unheld};

static void world_init(struct world *w, uint64_t limit)
{
    *w = (struct world){0};
    assert_int_equal(ms_table_init(&w->t, HERE, 4 * limit, limit, &ops, w), 0);
}

static struct ms_holder *process(struct world *w, uint64_t id)
{
    char name[32];

    snprintf(name, sizeof name, "actor/%d", (int)id);
    return ms_table_add_holder(&w->t, id, MS_HOLDER_PROCESS, (pid_t)id, name);
}

static struct ms_object *make(struct world *w, struct ms_holder *h, uint64_t len)
{
    struct ms_object *o = ms_holder_make(h, len, "train.py:7", 0);

    (void)w;
    assert_non_null(o);
    assert_int_equal(ms_object_room(o), 0);
    return o;
}

/* A world with two processes; the first has made an object. */
static struct ms_object *
make_for_two(struct world *w, struct ms_holder **a, struct ms_holder **b)
{
    world_init(w, 8 * MIB);
    *a = process(w, 1);
    *b = process(w, 2);
    return make(w, *a, MIB);
}

static void test_goes_with_its_last_count(void **unused)
{
    struct world w;
    struct ms_holder *a, *b;
    struct ms_object *o = make_for_two(&w, &a, &b);

    (void)unused;
    assert_int_equal(ms_holder_count(b, o, 2, 0), 0);
    assert_int_equal(ms_holder_count(a, o, -1, 0), 0);
    assert_int_equal(ms_holder_count(b, o, -1, 0), 0);
    assert_int_equal(w.freed, 0);
    assert_int_equal(ms_holder_count(b, o, -1, 0), 0);
    assert_int_equal(w.freed, 1);
    assert_int_equal(w.t.space->used, 0);
    ms_table_finish(&w.t);
}

static void test_a_release_may_come_before_its_grant(void **unused)
{
    struct world w;
    struct ms_holder *a, *b;
    struct ms_object *o = make_for_two(&w, &a, &b);

    (void)unused;
    assert_int_equal(ms_holder_confirm(b, o, 0), 0);
    assert_int_equal(ms_holder_count(b, o, -1, 0), 0);
    assert_int_equal(w.freed, 0);
    assert_int_equal(ms_holder_grant(b, o, 0, 100), 0);
    assert_int_equal(w.freed, 0); /* it is still a's */
    assert_int_equal(ms_holder_count(a, o, -1, 0), 0);
    assert_int_equal(w.freed, 1);
    assert_int_equal(ms_table_expire(&w.t, 1000), MS_NEVER);
    ms_table_finish(&w.t);
}

static void test_a_grant_lapses_unless_confirmed(void **unused)
{
    struct world w;
    struct ms_holder *a, *b;
    struct ms_object *o = make_for_two(&w, &a, &b);

    (void)unused;
    assert_int_equal(ms_holder_grant(b, o, 0, 100), 0);
    assert_int_equal(ms_holder_grant(b, o, 0, 200), 0);
    assert_int_equal(ms_holder_count(a, o, -1, 0), 0);
    assert_int_equal(ms_table_expire(&w.t, 50), 100);
    assert_int_equal(ms_holder_confirm(b, o, 60), 0);
    assert_int_equal(ms_table_expire(&w.t, 150), 200);
    assert_int_equal(w.freed, 0);
    assert_int_equal(ms_table_expire(&w.t, 250), MS_NEVER);
    assert_int_equal(w.freed, 0); /* the one that was confirmed */
    assert_int_equal(ms_holder_count(b, o, -1, 0), 0);
    assert_int_equal(w.freed, 1);
    ms_table_finish(&w.t);
}

/* A process that was stopped meanwhile reads its answer after two minutes. */
static void test_a_late_confirmation_counts_again(void **unused)
{
    struct world w;
    struct ms_holder *a, *b;
    struct ms_object *o = make_for_two(&w, &a, &b);

    (void)unused;
    assert_int_equal(ms_holder_grant(b, o, 0, 100), 0);
    assert_int_equal(ms_table_expire(&w.t, 150), MS_NEVER);
    assert_int_equal(ms_holder_confirm(b, o, 160), 0);
    assert_int_equal(ms_holder_count(a, o, -1, 170), 0);
    assert_int_equal(w.freed, 0); /* b has it */
    assert_int_equal(ms_holder_count(b, o, -1, 180), 0);
    assert_int_equal(w.freed, 1);

    o = make(&w, a, MIB); /* and one that never confirms */
    assert_int_equal(ms_holder_grant(b, o, 0, 100), 0);
    assert_int_equal(ms_table_expire(&w.t, 150), MS_NEVER);
    assert_int_equal(ms_holder_count(a, o, -1, 170), 0);
    assert_int_equal(w.freed, 2);
    ms_table_finish(&w.t);
}

static void test_a_dead_holder_holds_nothing(void **unused)
{
    struct world w;
    struct ms_holder *a, *b;
    struct ms_object *o = make_for_two(&w, &a, &b);

    (void)unused;
    make(&w, a, MIB);
    assert_int_equal(ms_holder_grant(b, o, 0, 100), 0);
    ms_holder_remove(a);
    assert_int_equal(w.freed, 1);
    ms_holder_remove(b);
    assert_int_equal(w.freed, 2);
    assert_int_equal(ms_table_expire(&w.t, 1000), MS_NEVER);
    assert_null(ms_table_find_holder(&w.t, 1));
    ms_table_finish(&w.t);
}

static void test_whole_copies_are_kept_while_there_is_room(void **unused)
{
    struct world w;
    struct ms_holder *a;
    struct ms_object *m, *o;

    (void)unused;
    world_init(&w, 4 * MIB);
    a = process(&w, 1);
    m = ms_table_add(&w.t, FAR, 9, 3 * MIB, 0);
    assert_int_equal(ms_holder_count(a, m, 1, 0), 0);
    assert_int_equal(ms_object_room(m), 0);
    ms_object_pin(m);
    assert_int_equal(ms_holder_count(a, m, -1, 0), 0);
    assert_int_equal(w.freed, 0); /* somebody writes into it */
    m->is_whole = true;
    ms_object_unpin(m);
    assert_int_equal(w.freed, 0);
    assert_true(w.unheld > 0);
    assert_ptr_equal(ms_table_find(&w.t, FAR, 9), m);
    assert_int_equal(ms_holder_count(a, m, 1, 0), 0); /* held again by the same */
    assert_true(ms_list_is_empty(&w.t.unheld));
    assert_int_equal(ms_holder_count(a, m, -1, 0), 0);
    o = make(&w, a, 2 * MIB); /* needs its room */
    assert_int_equal(w.freed, 1);
    assert_null(ms_table_find(&w.t, FAR, 9));
    assert_int_equal(ms_holder_count(a, o, -1, 0), 0);

    m = ms_table_add(&w.t, FAR, 10, MIB, 0); /* one without bytes is not */
    assert_int_equal(ms_holder_count(a, m, 1, 0), 0);
    assert_int_equal(ms_holder_count(a, m, -1, 0), 0);
    assert_null(ms_table_find(&w.t, FAR, 10));
    ms_table_finish(&w.t);
}

static void test_a_slice_keeps_the_whole_object(void **unused)
{
    struct world w;
    struct ms_holder *a, *b;
    struct ms_object *o, *slice;
    uint64_t bytes, promised;

    (void)unused;
    world_init(&w, 4 * MIB);
    a = process(&w, 1);
    b = process(&w, 2);
    o = make(&w, a, 3 * MIB);
    o->is_ready = true;
    slice = ms_object_slice(o, 77, MIB, MIB, 0);
    assert_non_null(slice);
    assert_null(ms_object_slice(o, 77, 0, MIB, 0)); /* that number is taken */
    assert_int_equal(slice->at, o->at + MIB);
    assert_true(slice->is_ready && slice->is_whole);
    assert_int_equal(w.t.space->used, 3 * MIB); /* it takes nothing */
    assert_int_equal(ms_holder_count(b, slice, 1, 0), 0);
    ms_holder_read(a, o, -1, 0);
    assert_null(
        ms_table_find_idle(&w.t, 1, &bytes, &promised)); /* both stay where they are */
    assert_int_equal(ms_holder_count(a, o, -1, 0), 0);
    assert_int_equal(w.freed, 0);
    assert_ptr_equal(ms_table_find(&w.t, HERE, 77), slice);
    ms_holder_remove(b); /* the last one of both */
    assert_int_equal(w.freed, 2);
    assert_int_equal(w.t.space->used, 0);
    ms_table_finish(&w.t);
}

static void test_copies_of_slices_are_not_kept(void **unused)
{
    struct world w;
    struct ms_holder *a;
    struct ms_object *m;

    (void)unused;
    world_init(&w, 4 * MIB);
    a = process(&w, 1);
    m = ms_table_add(&w.t, FAR, 9, MIB, 0);
    m->is_slice = true;
    assert_int_equal(ms_holder_count(a, m, 1, 0), 0);
    assert_int_equal(ms_object_room(m), 0);
    m->is_ready = m->is_whole = true;
    assert_int_equal(ms_holder_count(a, m, -1, 0), 0);
    assert_int_equal(w.freed, 1);
    assert_int_equal(w.t.space->used, 0);
    ms_table_finish(&w.t);
}

static void test_full_names_the_largest_holders(void **unused)
{
    struct world w;
    struct ms_holder *a, *b;
    struct ms_object *o;
    struct ms_buf text;

    (void)unused;
    world_init(&w, 8 * MIB);
    a = process(&w, 1);
    b = process(&w, 2);
    make(&w, a, MIB);
    make(&w, b, 3 * MIB);
    make(&w, b, 2 * MIB);
    o = ms_holder_make(a, 4 * MIB, "", 0);
    assert_non_null(o);
    assert_int_equal(ms_object_room(o), -ENOSPC);
    ms_buf_init(&text);
    ms_table_explain_full(&w.t, 4 * MIB, NULL, &text);
    assert_string_equal(ms_buf_str(&text),
                        "the store is full: 4.0 MiB wanted, 6.0 MiB of 8.0 MiB used; "
                        "actor/2 holds 5.0 MiB in 2, actor/1 holds 1.0 MiB in 1; drop "
                        "refs, or raise store_limit");
    ms_buf_finish(&text);
    ms_table_finish(&w.t);
}

static void test_idle_is_what_nobody_reads(void **unused)
{
    struct world w;
    struct ms_holder *a, *b;
    struct ms_object *one, *two;
    uint64_t bytes, promised;

    (void)unused;
    world_init(&w, 8 * MIB);
    a = process(&w, 1);
    b = process(&w, 2);
    one = make(&w, a, MIB);
    two = make(&w, a, 2 * MIB);
    one->is_ready = two->is_ready = true;
    assert_null(
        ms_table_find_idle(&w.t, 1, &bytes, &promised)); /* who makes it writes it */
    ms_holder_read(a, two, -1, 5);
    ms_holder_read(a, one, -1, 6);
    assert_ptr_equal(ms_table_find_idle(&w.t, 1, &bytes, &promised),
                     two); /* the longest */
    assert_int_equal(bytes, 3 * MIB);
    assert_ptr_equal(ms_table_find_idle(&w.t, 2 * MIB, &bytes, &promised), two);
    assert_int_equal(bytes, 2 * MIB);

    assert_int_equal(ms_holder_grant(b, two, 7, 100), 0);
    assert_ptr_equal(ms_table_find_idle(&w.t, 1, &bytes, &promised),
                     one); /* two is promised */
    assert_int_equal(ms_holder_confirm(b, two, 8), 0);
    ms_holder_read(b, two, 1, 8);
    assert_int_equal(ms_holder_count(a, two, -1, 9), 0);
    assert_false(ms_object_is_idle(two));
    assert_int_equal(ms_holder_count(a, two, 1, 9), 0);
    ms_holder_remove(b); /* and its reads with it */
    assert_true(ms_object_is_idle(two));
    ms_object_pin(two);
    assert_false(ms_object_is_idle(two));
    ms_object_unpin(two);

    ms_object_unroom(two);
    two->spilled = (struct ms_spilled *)&w;
    assert_int_equal(w.t.space->used, MIB);
    assert_ptr_equal(ms_table_find(&w.t, HERE, two->id), two);
    assert_false(ms_object_is_idle(two));
    ms_holder_remove(a);
    assert_int_equal(w.t.objects.count, 0);
    ms_table_finish(&w.t);
}

/* ---- random ---------------------------------------------------------------------- */

enum { PEOPLE = 6, STEPS = 30000, OBJECTS_MAX = 60 };

static uint64_t seed;

static uint64_t next_random(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

/* What the table should say: ids of living objects, and each one's counts. */
struct model {
    uint64_t id;
    int64_t counts[PEOPLE];
};

static bool is_held(const struct model *m)
{
    for (int i = 0; i < PEOPLE; i++)
        if (m->counts[i])
            return true;
    return false;
}

static void test_random_counts_are_exact(void **unused)
{
    struct world w;
    struct ms_holder *holder_list[PEOPLE];
    struct model models[OBJECTS_MAX];
    size_t count = 0;
    uint64_t next_person = 1;

    (void)unused;
    seed = 7;
    world_init(&w, 64 * MIB);
    for (int i = 0; i < PEOPLE; i++)
        holder_list[i] = process(&w, next_person++);
    for (int step = 0; step < STEPS; step++) {
        int who = (int)(next_random() % PEOPLE);
        struct ms_object *o = NULL;
        uint64_t dice = next_random() % 100;

        if (dice < 30 && count < OBJECTS_MAX) {
            o = ms_holder_make(holder_list[who], next_random() % (4 * MIB), "", step);
            if (!o)
                continue;
            if (ms_object_room(o) < 0) {
                ms_holder_count(holder_list[who], o, -1, step);
                continue;
            }
            models[count] = (struct model){.id = o->id};
            models[count++].counts[who] = 1;
        } else if (dice < 95 && count) {
            struct model *m = &models[next_random() % count];
            int64_t by = (int64_t)(next_random() % 3) - 1;

            if (by == 0) /* a grant that is confirmed */
                by = 1;
            o = ms_table_find(&w.t, HERE, m->id);
            assert_non_null(o);
            m->counts[who] += by;
            if (next_random() % 2 || by < 0) {
                ms_holder_count(holder_list[who], o, by, step);
            } else {
                ms_holder_confirm(holder_list[who], o, step);
                if (ms_table_find(&w.t, HERE, m->id)) /* it was not at -1 */
                    ms_holder_grant(holder_list[who], o, step, step + 10);
            }
        } else if (dice == 99) {
            ms_holder_remove(holder_list[who]);
            holder_list[who] = process(&w, next_person++);
            for (size_t i = 0; i < count; i++)
                models[i].counts[who] = 0;
        }
        for (size_t i = 0; i < count;) {
            o = ms_table_find(&w.t, HERE, models[i].id);
            assert_int_equal(o != NULL, is_held(&models[i]));
            if (!o)
                models[i] = models[--count];
            else
                i++;
        }
        ms_table_expire(&w.t, step);
    }
    for (int i = 0; i < PEOPLE; i++)
        ms_holder_remove(holder_list[i]);
    assert_int_equal(w.t.objects.count, 0);
    assert_int_equal(w.t.space->used, 0);
    assert_true(ms_space_check(w.t.space));
    ms_table_finish(&w.t);
}

/* A holder says what it has: counts that were lost on the way are right afterwards. */
static void test_a_holder_states_what_it_has(void **unused)
{
    struct world w;
    struct ms_holder *a, *b;
    struct ms_object *named = make_for_two(&w, &a, &b);
    struct ms_object *unnamed = make(&w, a, MIB), *granted = make(&w, a, MIB);

    (void)unused;
    assert_int_equal(ms_holder_count(b, named, 2, 0), 0);
    assert_int_equal(ms_holder_count(b, unnamed, 3, 0), 0);
    assert_int_equal(ms_holder_grant(b, granted, 0, 100), 0);
    assert_int_equal(ms_holder_count(a, named, -1, 0), 0);
    assert_int_equal(ms_holder_count(a, unnamed, -1, 0), 0);
    assert_int_equal(ms_holder_count(a, granted, -1, 0), 0);

    ms_holder_state_begin(b);
    assert_int_equal(ms_holder_state(b, named, 1, 1), 0);
    assert_int_equal(ms_holder_state_end(b), 2);
    assert_int_equal(w.freed, 1); /* the unnamed one; the grant is on its way */
    ms_holder_state_begin(b);
    assert_int_equal(ms_holder_state(b, named, 1, 2), 0);
    assert_int_equal(ms_holder_state_end(b), 0);
    assert_int_equal(ms_holder_count(b, named, -1, 3), 0);
    assert_int_equal(w.freed, 2);
    assert_int_equal(ms_table_expire(&w.t, 100), MS_NEVER);
    assert_int_equal(w.freed, 3);
    ms_table_finish(&w.t);
}

/* What is confirmed counts, also if its grant was lost. */
static void test_a_confirmation_without_its_grant(void **unused)
{
    struct world w;
    struct ms_holder *a, *b;
    struct ms_object *o = make_for_two(&w, &a, &b);

    (void)unused;
    assert_int_equal(ms_holder_confirm(b, o, 0), 0);
    assert_int_equal(ms_holder_count(a, o, -1, 0), 0);
    assert_int_equal(w.freed, 0);
    assert_int_equal(ms_holder_count(b, o, -1, 0), 0);
    assert_int_equal(w.freed, 1);
    ms_table_finish(&w.t);
}

/* An answer that was not sent takes its grant back; also one that has lapsed. */
static void test_a_grant_is_taken_back(void **unused)
{
    struct world w;
    struct ms_holder *a, *b;
    struct ms_object *o = make_for_two(&w, &a, &b);

    (void)unused;
    assert_int_equal(ms_holder_grant(b, o, 0, 50), 0);
    assert_int_equal(ms_holder_grant(b, o, 0, 60), 0);
    ms_holder_take_back(b, o);
    assert_int_equal(ms_holder_confirm(b, o, 1), 0); /* the other one */
    assert_int_equal(ms_holder_count(a, o, -1, 1), 0);
    assert_int_equal(w.freed, 0);
    assert_int_equal(ms_holder_count(b, o, -1, 1), 0);
    assert_int_equal(w.freed, 1);

    o = make(&w, a, 100);
    assert_int_equal(ms_holder_grant(b, o, 0, 50), 0);
    ms_table_expire(&w.t, 50);
    ms_holder_take_back(b, o);
    ms_holder_take_back(b, o); /* of nothing */
    assert_int_equal(ms_holder_count(a, o, -1, 51), 0);
    assert_int_equal(w.freed, 2);
    ms_table_finish(&w.t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goes_with_its_last_count),
        cmocka_unit_test(test_a_release_may_come_before_its_grant),
        cmocka_unit_test(test_a_grant_lapses_unless_confirmed),
        cmocka_unit_test(test_a_late_confirmation_counts_again),
        cmocka_unit_test(test_a_holder_states_what_it_has),
        cmocka_unit_test(test_a_confirmation_without_its_grant),
        cmocka_unit_test(test_a_grant_is_taken_back),
        cmocka_unit_test(test_a_dead_holder_holds_nothing),
        cmocka_unit_test(test_whole_copies_are_kept_while_there_is_room),
        cmocka_unit_test(test_a_slice_keeps_the_whole_object),
        cmocka_unit_test(test_copies_of_slices_are_not_kept),
        cmocka_unit_test(test_full_names_the_largest_holders),
        cmocka_unit_test(test_idle_is_what_nobody_reads),
        cmocka_unit_test(test_random_counts_are_exact),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
