/* The memory behind objects: as much as they need, and never less. */
#include "store/test_rig.h"

#include "base/limits.h"
#include "io/loop.h"
#include "store/client/state.h"
#include "store/server/state.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t memory_of(int fd)
{
    struct stat st;

    assert_int_equal(fstat(fd, &st), 0);
    return (uint64_t)st.st_blocks * 512;
}

static void test_an_object_takes_no_memory_behind_it(void **unused)
{
    struct ms_store_client *c;
    struct ms_held *h;
    struct rig r;

    (void)unused;
    rig_start(&r, 16 * MS_SPACE_BLOCK);
    c = rig_enter(&r, 1);
    h = rig_make(c, 2 * MS_SPACE_BLOCK);
    assert_int_equal(h->at % MS_SPACE_BLOCK, 0);
    assert_int_equal(memory_of(c->arena_fd), 2 * MS_SPACE_BLOCK);
    ms_held_unref(h);
    ms_store_client_close(c);
    rig_stop(&r);
}

static uint64_t little_left(void)
{
    return MS_STORE_SPARE_HERE + 3 * MS_SPACE_BLOCK;
}

/* The container has less than the limit: an error, before the kernel ends somebody. */
static void test_a_container_without_memory(void **unused)
{
    const struct ms_store_options o = {.limit = 16 * MS_SPACE_BLOCK,
                                       .memory_left = little_left,
                                       .warning = "mind the container"};
    struct ms_error err = {0};
    struct ms_store_client *c;
    struct ms_held *h;
    struct rig r;

    (void)unused;
    rig_start_with(&r, &o);
    c = rig_enter(&r, 1);
    assert_string_equal(ms_store_client_warning(c), "mind the container");
    h = rig_make(c, 3 * MS_SPACE_BLOCK);
    assert_null(ms_store_client_make(c, 4 * MS_SPACE_BLOCK, "test.c:1", &err));
    assert_int_equal(err.code, -ENOMEM);
    assert_non_null(strstr(err.text, "container"));
    ms_held_unref(h);
    rig_wait_objects(c, 0); /* nothing is left of the one that failed */
    ms_store_client_close(c);
    rig_stop(&r);
}

/* ---- given back while it is made ------------------------------------------------- */

/* Two objects in one block, whose process dies when the first has memory. */
struct scene {
    struct ms_loop *loop;
    struct ms_store *store;
    struct ms_holder *process;
    struct ms_block_run beside; /* that nobody uses */
    int told;
};

static void on_beside(void *arg, int rc, const struct ms_block_run *runs, size_t done)
{
    struct scene *scene = arg;

    (void)runs;
    assert_int_equal(rc, 0);
    assert_int_equal(done, 1);
    ms_loop_stop(scene->loop);
}

static void
on_first(void *arg, struct ms_store *s, struct ms_object *o, const struct ms_error *why)
{
    struct scene *scene = arg;

    assert_non_null(o);
    assert_null(why);
    scene->told++;
    ms_holder_remove(scene->process);
    ms_store_punch_idle(s);
    assert_int_equal(s->table.space->committed, 0);
}

static void on_second(void *arg,
                      struct ms_store *s,
                      struct ms_object *o,
                      const struct ms_error *why)
{
    struct scene *scene = arg;

    assert_null(o);
    assert_null(why);
    scene->told++;
    /* what was asked for before it has happened then */
    assert_int_equal(ms_arena_commit(&s->arena, &scene->beside, 1, on_beside, scene),
                     0);
}

static void test_memory_that_is_given_back_meanwhile_is_made_again(void **unused)
{
    struct scene scene = {.loop = ms_loop_create(),
                          .beside = {8 * MS_SPACE_BLOCK, MS_SPACE_BLOCK}};
    char dir[] = "/tmp/muster-place-XXXXXX", path[64];
    struct ms_store_options options = {.loop = scene.loop,
                                       .path = path,
                                       .secret = rig_secret,
                                       .node_name = "n0",
                                       .limit = 16 * MS_SPACE_BLOCK,
                                       .listen_fd = -1};
    struct ms_object *one = NULL, *two = NULL;
    struct ms_table *t;

    (void)unused;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/s", dir);
    scene.store = ms_store_create(&options, NULL);
    assert_non_null(scene.store);
    t = &scene.store->table;
    scene.process = ms_table_add_holder(t, 1, MS_HOLDER_PROCESS, 1, "actor/0");
    one = ms_holder_make(scene.process, 4096, "", 0);
    two = ms_holder_make(scene.process, 4096, "", 0);
    assert_non_null(one);
    assert_non_null(two);
    ms_store_place(scene.store, one, on_first, &scene);
    ms_store_place(scene.store, two, on_second, &scene);
    ms_loop_run(scene.loop);
    assert_int_equal(scene.told, 2);
    assert_int_equal(memory_of(scene.store->arena.fd),
                     t->space->committed + MS_SPACE_BLOCK);
    ms_store_destroy(scene.store);
    ms_loop_destroy(scene.loop);
    assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_object_takes_no_memory_behind_it),
        cmocka_unit_test(test_a_container_without_memory),
        cmocka_unit_test(test_memory_that_is_given_back_meanwhile_is_made_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
