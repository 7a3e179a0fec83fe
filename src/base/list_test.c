/* list_test.c - tests of list.h: an intrusive doubly linked list */
#include "base/list.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

struct item {
    char name;
    struct ms_list link;
};

/* The names in order, read forwards; and the same list read backwards must agree. */
static const char *names(const struct ms_list *head)
{
    static char text[16];
    size_t n = 0, back;

    for (const struct ms_list *l = head->next; l != head; l = l->next)
        text[n++] = ms_list_entry((uintptr_t)l, struct item, link)->name;
    text[n] = 0;
    back = n;
    for (const struct ms_list *l = head->prev; l != head; l = l->prev)
        assert_int_equal(ms_list_entry((uintptr_t)l, struct item, link)->name,
                         text[--back]);
    assert_int_equal(back, 0);
    return text;
}

static void test_add_at_both_ends(void **state)
{
    struct ms_list head;
    struct item a = {.name = 'a'}, b = {.name = 'b'}, c = {.name = 'c'};

    (void)state;
    ms_list_init(&head);
    assert_true(ms_list_is_empty(&head));
    ms_list_add_tail(&head, &b.link);
    ms_list_add_tail(&head, &c.link);
    ms_list_add_head(&head, &a.link);
    assert_false(ms_list_is_empty(&head));
    assert_string_equal(names(&head), "abc");
    assert_ptr_equal(ms_list_first(&head, struct item, link), &a);
}

static void test_removing_twice_is_harmless(void **state)
{
    struct ms_list head;
    struct item a = {.name = 'a'}, b = {.name = 'b'}, c = {.name = 'c'};

    (void)state;
    ms_list_init(&head);
    ms_list_add_tail(&head, &a.link);
    ms_list_add_tail(&head, &b.link);
    ms_list_add_tail(&head, &c.link);
    ms_list_remove(&b.link);
    ms_list_remove(&b.link);
    assert_string_equal(names(&head), "ac");
    ms_list_remove(&a.link);
    ms_list_remove(&c.link);
    assert_true(ms_list_is_empty(&head));
}

static void test_splice_moves_everything_in_order(void **state)
{
    struct ms_list to, from;
    struct item a = {.name = 'a'}, b = {.name = 'b'}, c = {.name = 'c'};

    (void)state;
    ms_list_init(&to);
    ms_list_init(&from);
    ms_list_add_tail(&to, &a.link);
    ms_list_splice(&to, &from);
    assert_string_equal(names(&to), "a");
    ms_list_add_tail(&from, &b.link);
    ms_list_add_tail(&from, &c.link);
    ms_list_splice(&to, &from);
    assert_string_equal(names(&to), "abc");
    assert_true(ms_list_is_empty(&from));
    ms_list_splice(&from, &to);
    assert_string_equal(names(&from), "abc");
    assert_true(ms_list_is_empty(&to));
}

static void test_each_allows_freeing_the_current_one(void **state)
{
    struct ms_list head;
    char seen[8] = "";
    size_t n = 0;

    (void)state;
    ms_list_init(&head);
    for (int name = 'a'; name < 'e'; name++) {
        struct item *i = calloc(1, sizeof *i);

        assert_non_null(i);
        i->name = (char)name;
        ms_list_add_tail(&head, &i->link);
    }
    ms_list_each (i, &head, struct item, link) {
        seen[n++] = i->name;
        if (i->name == 'b' || i->name == 'd') {
            ms_list_remove(&i->link);
            free(i);
        }
    }
    assert_string_equal(seen, "abcd");
    assert_string_equal(names(&head), "ac");
    ms_list_each (i, &head, struct item, link)
        free(i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_add_at_both_ends),
        cmocka_unit_test(test_removing_twice_is_harmless),
        cmocka_unit_test(test_splice_moves_everything_in_order),
        cmocka_unit_test(test_each_allows_freeing_the_current_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
