/* Parts of objects that a process may write without anybody else seeing it. */
#include "store/client/private_map.h"

#include "base/limits.h"
#include "store/test_rig.h"

#include <sys/wait.h>
#include <unistd.h>

struct pair {
    struct rig rig;
    struct ms_store_client *a, *b;
    struct ms_held *mine, *theirs; /* the same object: a's and b's */
};

static void pair_start(struct pair *p, uint64_t len)
{
    rig_start(&p->rig, 64 * MIB);
    p->a = rig_enter(&p->rig, 1);
    p->b = rig_enter(&p->rig, 2);
    p->mine = rig_make(p->a, len);
    memset(p->mine->write, 7, len);
    p->theirs = rig_attach(p->b, p->mine);
}

static void pair_stop(struct pair *p)
{
    ms_held_unref(p->mine);
    ms_held_unref(p->theirs);
    rig_wait_objects(p->a, 0);
    ms_store_client_close(p->a);
    ms_store_client_close(p->b);
    rig_stop(&p->rig);
}

/* Whether b's memory is found as that object, and where in it. */
static bool is_found(const struct pair *p, const uint8_t *at, size_t len, uint64_t want)
{
    uint64_t offset = UINT64_MAX;
    unsigned reading = p->theirs->reading;
    struct ms_held *h = ms_store_client_find_memory(p->b, at, len, &offset);

    if (!h) {
        assert_int_equal(p->theirs->reading, reading);
        assert_true(offset == UINT64_MAX); /* nothing was said of it */
        return false;
    }
    assert_ptr_equal(h, p->theirs);
    assert_int_equal(offset, want);
    ms_held_unref(h);
    assert_int_equal(p->theirs->reading, reading);
    return true;
}

static void test_writing_is_seen_by_nobody_else(void **unused)
{
    struct ms_private_map *own, *other;
    struct pair p;
    uint8_t *at;

    (void)unused;
    pair_start(&p, 6 * MIB);
    own = ms_private_map_create(p.theirs, 100, 5 * MIB);
    other = ms_private_map_create(p.theirs, 64, MIB); /* of less than a block */
    assert_non_null(own);
    assert_non_null(other);
    at = own->bytes;
    assert_int_equal(own->len, 5 * MIB);
    assert_int_equal(at[0], 7);
    assert_int_equal(at[5 * MIB - 1], 7);
    at[3 * MIB] = 1;
    assert_int_equal(at[3 * MIB], 1);
    assert_int_equal(p.mine->read[3 * MIB + 100], 7);
    assert_int_equal(p.theirs->read[3 * MIB + 100], 7);
    other->bytes[0] = 2;
    assert_int_equal(p.theirs->read[64], 7);
    ms_private_map_destroy(other);
    ms_private_map_destroy(own);
    ms_private_map_destroy(NULL);
    pair_stop(&p);
}

static void test_what_was_not_written_is_found(void **unused)
{
    struct ms_private_map *own;
    struct pair p;
    uint8_t *at;

    (void)unused;
    pair_start(&p, 6 * MIB);
    own = ms_private_map_create(p.theirs, 100, 5 * MIB);
    assert_non_null(own);
    at = own->bytes;
    assert_true(is_found(&p, at, 5 * MIB, 100)); /* nobody has looked at it */
    assert_int_equal(at[2 * MIB], 7);
    assert_true(is_found(&p, at + 10, 4 * MIB, 110));
    assert_false(is_found(&p, at + 1, 5 * MIB, 101)); /* longer than it */
    at[3 * MIB] = 7;                                  /* the same, and yet written */
    assert_false(is_found(&p, at, 5 * MIB, 100));
    assert_false(is_found(&p, at + 3 * MIB, 1, 3 * MIB + 100));
    assert_true(is_found(&p, at, 2 * MIB, 100));
    assert_true(is_found(&p, at + 4 * MIB, MIB, 4 * MIB + 100));
    ms_private_map_destroy(own);
    pair_stop(&p);
}

static void test_it_holds_the_object(void **unused)
{
    struct ms_private_map *own;
    struct pair p;

    (void)unused;
    pair_start(&p, MIB);
    own = ms_private_map_create(p.theirs, 0, MIB);
    ms_held_unref(p.mine);
    ms_held_unref(p.theirs);
    p.mine = p.theirs = NULL;
    assert_int_equal(rig_object_count(p.a, NULL), 1);
    assert_int_equal(own->bytes[MIB - 1], 7);
    ms_private_map_destroy(own);
    rig_wait_objects(p.a, 0);
    pair_stop(&p);
}

static void test_what_cannot_be(void **unused)
{
    static struct ms_private_map *private_maps[MS_STORE_PRIVATE_MAX];
    struct pair p;

    (void)unused;
    pair_start(&p, MIB);
    assert_null(ms_private_map_create(p.theirs, 0, 0));
    assert_null(ms_private_map_create(p.theirs, 1, MIB));
    assert_null(ms_private_map_create(p.theirs, MIB + 1, 1));
    assert_null(ms_private_map_create(p.theirs, UINT64_MAX, 2));
    for (size_t i = 0; i < MS_STORE_PRIVATE_MAX; i++) {
        private_maps[i] = ms_private_map_create(p.theirs, i, 1);
        assert_non_null(private_maps[i]);
    }
    assert_null(ms_private_map_create(p.theirs, 0, 1));
    for (size_t i = 0; i < MS_STORE_PRIVATE_MAX; i++)
        ms_private_map_destroy(private_maps[i]);
    private_maps[0] = ms_private_map_create(p.theirs, 0, 1);
    assert_non_null(private_maps[0]);
    ms_private_map_destroy(private_maps[0]);
    pair_stop(&p);
}

static void test_a_forked_child_keeps_what_it_has(void **unused)
{
    struct ms_private_map *own;
    struct pair p;
    int status = -1;
    pid_t pid;

    (void)unused;
    pair_start(&p, MIB);
    own = ms_private_map_create(p.theirs, 0, MIB);
    pid = fork();
    if (pid == 0) {
        ms_store_client_forget(p.b);
        own->bytes[5] = 1;
        _exit(ms_private_map_create(p.theirs, 0, MIB) || own->bytes[6] != 7);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(own->bytes[5], 7);
    ms_private_map_destroy(own);
    pair_stop(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_writing_is_seen_by_nobody_else),
        cmocka_unit_test(test_what_was_not_written_is_found),
        cmocka_unit_test(test_it_holds_the_object),
        cmocka_unit_test(test_what_cannot_be),
        cmocka_unit_test(test_a_forked_child_keeps_what_it_has),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
