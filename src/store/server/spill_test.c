/* Objects that go to files and come back: a node's store and processes that use it. */
#include "store/test_rig.h"

#include "base/limits.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MANY = 12 };

static char folder[64];

static int set_up(void **unused)
{
    (void)unused;
    snprintf(folder, sizeof folder, "%s", "/tmp/muster-spill-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static size_t files_in(const char *path)
{
    DIR *d = opendir(path);
    struct dirent *e;
    size_t n = 0;

    assert_non_null(d);
    while ((e = readdir(d)))
        n += e->d_name[0] != '.' || strlen(e->d_name) > 2;
    closedir(d);
    return n;
}

static int tear_down(void **unused)
{
    (void)unused;
    return rmdir(folder); /* nothing was left there */
}

static void start(struct rig *r, uint64_t limit, uint64_t spill_limit)
{
    struct ms_store_options o = {
        .limit = limit, .spill_dir = folder, .spill_limit = spill_limit};

    rig_start_with(r, &o);
}

/* Filled with its number; nobody reads it. */
static struct ms_held *make_resting(struct ms_store_client *c, uint64_t len, int number)
{
    struct ms_held *h = rig_make(c, len);

    memset(h->write, number, len);
    ms_held_rest(h);
    return h;
}

static void drop_resting(struct ms_held *h)
{
    ms_held_wake(h);
    ms_held_unref(h);
}

static void check(struct ms_store_client *c, const struct ms_held *h, int number)
{
    struct ms_held *got = rig_attach(c, h);

    assert_int_equal(got->read[0], number);
    assert_int_equal(got->read[h->len / 2], number);
    assert_int_equal(got->read[h->len - 1], number);
    ms_held_unref(got);
}

static uint64_t spilled(struct ms_store_client *c)
{
    Muster__StoreStats *m = ms_store_client_stats(c, true, NULL);
    uint64_t bytes = 0, marked = 0;

    assert_non_null(m);
    bytes = m->spilled;
    for (size_t i = 0; i < m->n_objects; i++)
        marked += m->objects[i]->is_spilled ? m->objects[i]->len : 0;
    assert_int_equal(bytes, marked);
    assert_true(m->used <= m->limit);
    muster__store_stats__free_unpacked(m, NULL);
    return bytes;
}

static void test_more_than_fits_comes_back(void **unused)
{
    struct ms_store_client *a, *b;
    struct ms_held *all[MANY];
    struct rig r;

    (void)unused;
    start(&r, 4 * MIB, 0);
    a = rig_enter(&r, 1);
    b = rig_enter(&r, 2);
    for (int i = 0; i < MANY; i++)
        all[i] = make_resting(a, MIB, i + 1);
    assert_int_equal(spilled(a), (MANY - 4) * MIB);
    assert_null(all[0]->read); /* it may be anywhere */
    for (int i = 0; i < MANY; i++)
        check(i % 2 ? a : b, all[i], i + 1);
    assert_true(spilled(a) >= (MANY - 4) * MIB);
    for (int i = 0; i < MANY; i++)
        drop_resting(all[i]);
    rig_wait_objects(a, 0);
    assert_int_equal(spilled(a), 0);
    ms_store_client_close(a);
    ms_store_client_close(b);
    rig_stop(&r);
}

static void test_what_is_read_stays(void **unused)
{
    struct ms_store_client *a, *b;
    struct ms_held *mine, *theirs, *rests;
    struct ms_error err = {0};
    struct rig r;

    (void)unused;
    start(&r, 4 * MIB, 0);
    a = rig_enter(&r, 1);
    b = rig_enter(&r, 2);
    mine = make_resting(a, 2 * MIB, 7);
    theirs = rig_attach(b, mine);
    rests = make_resting(a, MIB, 8);
    assert_null(ms_store_client_make(
        a, 3 * MIB, "", &err)); /* one could go, that is too little */
    assert_int_equal(err.code, -ENOSPC);
    assert_non_null(strstr(err.text, "all of it is in use"));
    assert_non_null(strstr(err.text, "holds"));
    assert_int_equal(spilled(a), 0);
    ms_held_unref(rig_make(a, 2 * MIB)); /* for this it goes */
    assert_int_equal(spilled(a), MIB);
    assert_int_equal(theirs->read[2 * MIB - 1], 7);
    check(b, rests, 8);
    drop_resting(mine);
    drop_resting(rests);
    ms_held_unref(theirs);
    rig_wait_objects(a, 0);
    ms_store_client_close(a);
    ms_store_client_close(b);
    rig_stop(&r);
}

/* A name that was given away while nobody read the object says no place. */
static void test_granted_while_it_is_spilled(void **unused)
{
    struct ms_store_client *a, *b;
    struct ms_held *h, *big, *got;
    struct ms_stored_name name;
    struct rig r;

    (void)unused;
    start(&r, 4 * MIB, 0);
    a = rig_enter(&r, 1);
    b = rig_enter(&r, 2);
    h = make_resting(a, 2 * MIB, 3);
    big = rig_make(a, 3 * MIB);
    assert_int_equal(spilled(a), 2 * MIB);
    ms_held_name(h, &name);
    assert_int_equal(ms_store_client_grant(a, &name, ms_store_client_node(b), 2, false),
                     0);
    got = ms_store_client_adopt(b, &name, ms_store_client_node(a));
    assert_non_null(got);
    assert_null(got->read);
    drop_resting(h);
    ms_held_unref(big);
    rig_wait_objects(a, 1); /* the agent has heard that */
    check(b, got, 3);
    ms_held_unref(got);
    rig_wait_objects(a, 0);
    ms_store_client_close(a);
    ms_store_client_close(b);
    rig_stop(&r);
}

/* ---- trouble --------------------------------------------------------------------- */

/* Nothing can be written: an error that says so, and nothing lost. */
static void expect_refused(struct rig *r, const char *reason)
{
    struct ms_store_client *a = rig_enter(r, 1);
    struct ms_held *one = make_resting(a, MIB, 1), *two = make_resting(a, 2 * MIB, 2);
    struct ms_error err = {0};

    assert_null(ms_store_client_make(a, 3 * MIB, "", &err));
    assert_int_equal(err.code, -ENOSPC);
    if (!strstr(err.text, reason))
        fail_msg("no '%s' in: %s", reason, err.text);
    assert_non_null(strstr(err.text, "actor/1 holds 3.0 MiB in 2"));
    assert_int_equal(spilled(a), 0);
    check(a, one, 1);
    check(a, two, 2);
    drop_resting(one);
    drop_resting(two);
    ms_held_unref(rig_make(a, 4 * MIB));
    rig_wait_objects(a, 0);
    ms_store_client_close(a);
}

static void test_folders_that_take_nothing(void **unused)
{
    char path[96];
    struct ms_store_options o = {.limit = 4 * MIB, .spill_dir = path};
    struct ms_error err = {0};
    struct rig r;
    int fd;

    (void)unused;
    snprintf(path, sizeof path, "%s/gone", folder);
    assert_int_equal(ms_store_check_spill(path, &err), -ENOENT);
    assert_non_null(strstr(err.text, path));
    rig_start_with(&r, &o);
    expect_refused(&r, "cannot spill to");
    rig_stop(&r);

    snprintf(path, sizeof path, "%s/file", folder);
    fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
    rig_start_with(&r, &o);
    expect_refused(&r, "cannot spill to");
    rig_stop(&r);
    unlink(path);

    assert_int_equal(mkdir(path, 0500), 0);
    if (geteuid() != 0) { /* who may everything may that too */
        rig_start_with(&r, &o);
        expect_refused(&r, "Permission denied");
        rig_stop(&r);
    }
    rmdir(path);
}

static void test_spill_limit(void **unused)
{
    struct ms_store_client *a;
    struct ms_held *all[4];
    struct ms_error err = {0};
    struct rig r;

    (void)unused;
    start(&r, 4 * MIB, MIB / 2);
    expect_refused(&r, "the spill limit is reached");
    rig_stop(&r);

    start(&r, 2 * MIB, 2 * MIB);
    a = rig_enter(&r, 1);
    for (int i = 0; i < 4; i++)
        all[i] = make_resting(a, MIB, i);
    assert_null(ms_store_client_make(a, MIB, "", &err));
    assert_non_null(strstr(err.text, "the spill limit is reached"));
    for (int i = 2; i < 4; i++) /* those that are in memory are still read */
        check(a, all[i], i);
    for (int i = 0; i < 4; i++)
        drop_resting(all[i]);
    ms_held_unref(rig_make(a, MIB));
    rig_wait_objects(a, 0);
    ms_store_client_close(a);
    rig_stop(&r);
}

static void test_full_disk(void **unused)
{
    char path[96];
    struct ms_store_options o = {
        .limit = 4 * MIB, .spill_dir = path, .spill_limit = 64 * MIB};
    struct rig r;

    (void)unused;
    snprintf(path, sizeof path, "%s/small", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    if (mount("muster-test", path, "tmpfs", 0, "size=512k") < 0) {
        rmdir(path);
        print_message("not allowed to mount a small disk: not tested\n");
        skip();
    }
    rig_start_with(&r, &o);
    expect_refused(&r, "No space left on device");
    rig_stop(&r);
    assert_int_equal(umount(path), 0);
    rmdir(path);
}

/* What an agent left that was killed in the wrong moment. */
static void test_leftovers_go(void **unused)
{
    char path[128], other[128];
    struct rig r;
    int fd;

    (void)unused;
    snprintf(path, sizeof path, "%s/.muster-spill-0123456789abcdef", folder);
    snprintf(other, sizeof other, "%s/somebody's", folder);
    for (int i = 0; i < 2; i++) {
        fd = open(i ? other : path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        close(fd);
    }
    start(&r, 4 * MIB, 0);
    assert_int_equal(files_in(folder), 1);
    assert_int_equal(unlink(other), 0);
    rig_stop(&r);
}

static void *make_one(void *client)
{
    struct ms_error err = {0};
    struct ms_held *h = ms_store_client_make(client, 40 * MIB, "", &err);

    ms_held_unref(h);
    return NULL;
}

/* The store goes while it writes and while others wait for that. */
static void test_ends_while_it_spills(void **unused)
{
    struct ms_store_client *a;
    struct ms_held *all[4];
    pthread_t thread;
    struct rig r;

    (void)unused;
    start(&r, 64 * MIB, 0);
    a = rig_enter(&r, 1);
    for (int i = 0; i < 4; i++)
        all[i] = make_resting(a, 16 * MIB, i);
    assert_int_equal(pthread_create(&thread, NULL, make_one, a), 0);
    while (spilled(a) == 0)
        ;
    rig_stop(&r);
    pthread_join(thread, NULL);
    for (int i = 0; i < 4; i++)
        drop_resting(all[i]);
    ms_store_client_close(a);
}

/* ---- threads --------------------------------------------------------------------- */

enum { THREADS = 4, ROUNDS = 250, KEPT = 16 };

struct job {
    struct ms_store_client *mine, *other;
    unsigned seed;
};

/* Each has KEPT objects of its own, of which the store has not room for all. */
static void *work(void *arg)
{
    struct job *j = arg;
    struct ms_held *kept[KEPT] = {NULL};
    int marks[KEPT];

    for (int i = 0; i < ROUNDS; i++) {
        int at = rand_r(&j->seed) % KEPT;

        if (kept[at]) {
            check(rand_r(&j->seed) % 2 ? j->mine : j->other, kept[at], marks[at]);
            if (rand_r(&j->seed) % 4)
                continue;
            drop_resting(kept[at]);
        }
        marks[at] = rand_r(&j->seed) % 255;
        kept[at] = make_resting(
            j->mine, MS_SPILL_MIN + (uint64_t)rand_r(&j->seed) % MIB, marks[at]);
    }
    for (int i = 0; i < KEPT; i++)
        if (kept[i])
            drop_resting(kept[i]);
    return NULL;
}

static void test_random_threads_of_two_processes(void **unused)
{
    struct ms_store_client *a, *b;
    pthread_t threads[THREADS];
    struct job jobs[THREADS];
    uint64_t used = 1;
    struct rig r;

    (void)unused;
    start(&r, 32 * MIB, 0); /* so that a little may rest unsaid */
    a = rig_enter(&r, 1);
    b = rig_enter(&r, 2);
    for (unsigned i = 0; i < THREADS; i++) {
        jobs[i] = (struct job){i % 2 ? a : b, i % 2 ? b : a, i + 1};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &jobs[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    rig_wait_objects(a, 0);
    rig_object_count(a, &used);
    assert_int_equal(used, 0);
    assert_int_equal(spilled(a), 0);
    ms_store_client_close(a);
    ms_store_client_close(b);
    rig_stop(&r);
}

struct make {
    struct ms_store_client *client;
    struct ms_held *made;
};

static void *make_more(void *arg)
{
    struct make *m = arg;

    m->made = rig_make(m->client, 6 * MIB);
    return NULL;
}

/* An answer is under way: its object is in use until it has come, and not for longer. */
static void test_what_was_promised_is_waited_for(void **unused)
{
    struct ms_store_client *a, *b;
    struct ms_held *held[2], *got;
    struct ms_stored_name names[2];
    struct make m;
    pthread_t thread;
    struct rig r;

    (void)unused;
    start(&r, 16 * MIB, 0);
    a = rig_enter(&r, 1);
    b = rig_enter(&r, 2);
    for (int i = 0; i < 2; i++) {
        held[i] = rig_make(a, 6 * MIB);
        memset(held[i]->write, i + 1, 6 * MIB);
        ms_held_name(held[i], &names[i]);
        assert_int_equal(
            ms_store_client_grant(a, &names[i], ms_store_client_node(b), 2, false), 0);
        names[i].address = "";
        names[i].address_len = 0;
        names[i].at = MS_PLACE_UNKNOWN;
        ms_held_unref(held[i]);
    }
    m = (struct make){.client = a};
    assert_int_equal(pthread_create(&thread, NULL, make_more, &m), 0);
    rig_wait_objects(b, 3);
    for (int i = 0; i < 2; i++) {
        got = ms_store_client_adopt(b, &names[i], ms_store_client_node(a));
        assert_non_null(got);
        held[i] = got;
    }
    pthread_join(thread, NULL);
    for (int i = 0; i < 2; i++) {
        got = rig_attach(b, held[i]);
        assert_int_equal(got->read[6 * MIB - 1], i + 1);
        ms_held_unref(got);
        ms_held_unref(held[i]);
        if (i == 0)
            ms_held_unref(m.made);
    }
    rig_wait_objects(a, 0);
    ms_store_client_close(a);
    ms_store_client_close(b);
    rig_stop(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            test_more_than_fits_comes_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_is_read_stays, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_granted_while_it_is_spilled, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_what_was_promised_is_waited_for, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_folders_that_take_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_spill_limit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_full_disk, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_leftovers_go, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_ends_while_it_spills, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_random_threads_of_two_processes, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
