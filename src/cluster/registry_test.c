/* registry_test.c - tests of registry.h: which clusters there are, and what is
 * known of each of their workers */
#include "base/cleanup.h"
#include "cluster/registry.h"
#include "cluster/status.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct ms_registry reg;

static int setup(void **state)
{
    (void)state;
    ms_registry_init(&reg);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ms_registry_finish(&reg);
    return 0;
}

/* Workers with the uids first, first + 1, ... */
static struct ms_cluster *add(const char *name, uint64_t first, size_t count)
{
    struct ms_slot_spec slots[8] = {{0}};
    struct ms_cluster *c = NULL;
    struct ms_error err = {0};

    for (size_t i = 0; i < count; i++)
        slots[i].uid = first + i;
    if (ms_registry_add(&reg, name, slots, count, &c, &err) < 0)
        fail_msg("%s", err.text);
    return c;
}

static int started(uint64_t uid, int pid)
{
    char address[] = "/s/w/a.sock", log_path[] = "/s/logs/a-0.log";
    Muster__WorkerStarted s = MUSTER__WORKER_STARTED__INIT;

    s.uid = uid;
    s.pid = pid;
    s.address = address;
    s.log_path = log_path;
    return ms_registry_started(&reg, &s, 200);
}

static struct ms_slot *exited(uint64_t uid, int code)
{
    Muster__Exit e = MUSTER__EXIT__INIT;

    e.code = code;
    return ms_registry_exited(&reg, uid, &e);
}

static void test_life_of_a_cluster(void **state)
{
    struct ms_cluster *c = add("actor", 11, 2);

    (void)state;
    assert_int_equal(c->state, MS_CLUSTER_STARTING);
    assert_int_equal(c->slots[1].now.state, MUSTER__WORKER_STATE__WORKER_STARTING);
    assert_int_equal(c->slots[1].now.incarnation, 1);
    assert_int_equal(started(11, 1011), 0);
    assert_int_equal(c->state, MS_CLUSTER_STARTING);
    assert_int_equal(started(12, 1012), 0);
    assert_int_equal(c->state, MS_CLUSTER_RUNNING);
    assert_int_equal(c->slots[0].now.pid, 1011);
    assert_int_equal(c->slots[0].now.started_ns, 200);
    assert_ptr_equal(exited(12, 3), &c->slots[1]);
    assert_int_equal(c->slots[1].now.exit->code, 3);
    assert_int_equal(c->slots[1].now.started_ns, 200);
    assert_int_equal(c->live, 1);
    assert_int_equal(reg.live, 1);
    ms_registry_remove(&reg, c);
    assert_int_equal(reg.live, 0);
    assert_null(ms_registry_find(&reg, "actor"));
    assert_null(exited(11, 0));
}

static void test_failed_add_changes_nothing(void **state)
{
    const struct ms_slot_spec good = {.uid = 21}, zero = {0};
    const struct ms_slot_spec twice[] = {{.uid = 31}, {.uid = 11}};
    struct ms_cluster *before = add("actor", 11, 1), *c = NULL;
    struct ms_error err = {0};

    (void)state;
    assert_int_equal(ms_registry_add(&reg, "actor", &good, 1, &c, &err), -EEXIST);
    assert_non_null(strstr(err.text, "'actor'"));
    assert_int_equal(ms_registry_add(&reg, "a/b", &good, 1, &c, &err), -EINVAL);
    assert_int_equal(ms_registry_add(&reg, "none", NULL, 0, &c, &err), -EINVAL);
    assert_non_null(strstr(err.text, "no workers"));
    assert_int_equal(ms_registry_add(&reg, "z", &zero, 1, &c, &err), -EINVAL);
    assert_int_equal(ms_registry_add(&reg, "twice", twice, 2, &c, &err), -EEXIST);
    assert_int_equal(
        ms_registry_add(&reg, "many", &good, MS_CLUSTER_WORKERS_MAX, &c, &err),
        -ENOSPC);
    assert_non_null(strstr(err.text, "65536"));
    assert_null(c);
    assert_int_equal(reg.live, 1);
    assert_null(ms_registry_find_uid(&reg, 31));
    assert_ptr_equal(ms_registry_find_uid(&reg, 11), &before->slots[0]);
}

static void test_exit_before_the_start_is_confirmed(void **state)
{
    struct ms_cluster *c = add("actor", 11, 1);

    (void)state;
    assert_non_null(exited(11, 1));
    assert_int_equal(c->state, MS_CLUSTER_STARTING);
    assert_int_equal(started(11, 1011), 0);
    assert_int_equal(c->slots[0].now.state, MUSTER__WORKER_STATE__WORKER_EXITED);
    assert_int_equal(c->slots[0].now.pid, 1011);
    assert_int_equal(c->state, MS_CLUSTER_RUNNING);
    assert_int_equal(c->live, 0);
}

static void test_events_come_once(void **state)
{
    struct ms_cluster *c = add("actor", 11, 1);

    (void)state;
    assert_int_equal(started(11, 1011), 0);
    assert_int_equal(started(11, 9999), -ESTALE);
    assert_int_equal(c->slots[0].now.pid, 1011);
    assert_non_null(exited(11, 1));
    assert_null(exited(11, 2));
    assert_int_equal(c->slots[0].now.exit->code, 1);
    assert_int_equal(started(99, 1), -ESTALE);
    assert_null(exited(99, 1));
    assert_null(exited(0, 1));
}

static void test_an_older_incarnation_changes_nothing(void **state)
{
    struct ms_cluster *c = add("actor", 11, 2);
    struct ms_slot *slot = &c->slots[1];

    (void)state;
    assert_int_equal(started(11, 1011), 0);
    assert_int_equal(started(12, 1012), 0);
    assert_int_equal(ms_slot_renew(&reg, slot, 50), -EBUSY);
    assert_non_null(exited(12, 9));
    assert_int_equal(ms_slot_renew(&reg, slot, 11), -EEXIST);
    assert_int_equal(ms_slot_renew(&reg, slot, 0), -EINVAL);
    assert_int_equal(slot->now.exit->code, 9);
    assert_int_equal(ms_slot_renew(&reg, slot, 50), 0);
    assert_int_equal(slot->now.incarnation, 2);
    assert_int_equal(slot->now.pid, 0);
    assert_null(slot->now.exit);
    assert_int_equal(c->live, 2);

    assert_null(exited(12, 1));
    assert_int_equal(started(12, 77), -ESTALE);
    assert_int_equal(slot->now.state, MUSTER__WORKER_STATE__WORKER_STARTING);
    assert_int_equal(started(50, 1050), 0);
    assert_int_equal(slot->now.pid, 1050);
    assert_null(exited(12, 1));
    assert_int_equal(slot->now.state, MUSTER__WORKER_STATE__WORKER_RUNNING);
    assert_ptr_equal(exited(50, 4), slot);
}

static void test_exit_without_details(void **state)
{
    struct ms_cluster *c = add("actor", 11, 1);

    (void)state;
    assert_non_null(ms_registry_exited(&reg, 11, NULL));
    assert_null(c->slots[0].now.exit);
    assert_int_equal(c->live, 0);
}

static void test_status_says_what_is_known(void **state)
{
    const uint32_t devices[] = {4, 5};
    const struct ms_slot_spec slots[] = {
        {.uid = 11, .node = "here", .devices = devices, .device_count = 2},
        {.uid = 12}};
    struct ms_cluster *c = NULL;
    Muster__ClusterStatus *s;

    (void)state;
    assert_int_equal(ms_registry_add(&reg, "actor", slots, 2, &c, NULL), 0);
    assert_int_equal(started(11, 1011), 0);
    assert_non_null(exited(11, 3));
    s = ms_cluster_status(c, NULL, false);
    assert_non_null(s);
    assert_string_equal(s->name, "actor");
    assert_int_equal(s->n_workers, 2);
    assert_int_equal(s->workers[0]->uid, 11);
    assert_int_equal(s->workers[0]->pid, 1011);
    assert_int_equal(s->workers[0]->n_devices, 2);
    assert_int_equal(s->workers[0]->devices[1], 5);
    assert_string_equal(s->workers[0]->node, "here");
    assert_string_equal(s->workers[0]->address, "/s/w/a.sock");
    assert_int_equal(s->workers[0]->state, MUSTER__WORKER_STATE__WORKER_EXITED);
    assert_int_equal(s->workers[0]->exit->code, 3);
    assert_int_equal(s->workers[1]->rank, 1);
    assert_int_equal(s->workers[1]->state, MUSTER__WORKER_STATE__WORKER_STARTING);
    assert_null(s->workers[1]->exit);
    assert_string_equal(s->workers[1]->address, "");
    muster__cluster_status__free_unpacked(s, NULL);
}

static int
adopt_as(uint64_t uid, uint32_t rank, uint32_t world, uint32_t incarnation, int code)
{
    char address[] = "/s/w/a.sock", cluster[] = "actor";
    uint32_t devices[] = {rank};
    Muster__WorkerSpec spec = MUSTER__WORKER_SPEC__INIT;
    Muster__WorkerStarted begun = MUSTER__WORKER_STARTED__INIT;
    Muster__WorkerReport report = MUSTER__WORKER_REPORT__INIT;
    struct ms_slot *slot = NULL;
    int rc;

    spec.uid = begun.uid = uid;
    spec.cluster = cluster;
    spec.rank = rank;
    spec.world_size = world;
    spec.driver = 7;
    spec.incarnation = incarnation;
    spec.n_devices = 1;
    spec.devices = devices;
    begun.pid = 1000 + (int)uid;
    begun.address = address;
    report.spec = &spec;
    report.started = &begun;
    rc = ms_registry_adopt(&reg, "far", &report, 50, &slot, NULL);
    if (rc == 0 && code)
        assert_non_null(exited(uid, code));
    return rc;
}

static int adopt(uint64_t uid, uint32_t rank, uint32_t world, int code)
{
    return adopt_as(uid, rank, world, 3, code);
}

static void test_a_cluster_is_built_from_reports(void **state)
{
    struct ms_cluster *c;

    (void)state;
    assert_int_equal(adopt(12, 1, 3, 0), 0);
    c = ms_registry_find(&reg, "actor");
    assert_non_null(c);
    assert_int_equal(c->driver, 7);
    assert_int_equal(c->state, MS_CLUSTER_RUNNING);
    assert_int_equal(c->unknown, 2);
    assert_int_equal(c->live, 1);
    assert_int_equal(c->slots[1].now.incarnation, 3);
    assert_int_equal(c->slots[1].now.pid, 1012);
    assert_string_equal(c->slots[1].node, "far");
    assert_int_equal(c->slots[1].devices[0], 1);
    assert_int_equal(c->slots[0].now.state, MUSTER__WORKER_STATE__WORKER_UNKNOWN);

    assert_int_equal(adopt(12, 1, 3, 0), 0); /* told again: nothing changes */
    assert_int_equal(c->live, 1);
    assert_int_equal(adopt(13, 1, 3, 0), -EEXIST); /* its place is taken */
    assert_int_equal(adopt(14, 3, 3, 0), -EINVAL);
    assert_int_equal(adopt(15, 0, 4, 0), -EEXIST); /* another cluster of that name */
    assert_int_equal(adopt(11, 0, 3, 9), 0);
    assert_int_equal(adopt(16, 2, 3, 0), 0);
    assert_int_equal(c->unknown, 0);
    assert_int_equal(c->unconfirmed, 0);
    assert_int_equal(c->live, 2);
    assert_int_equal(c->slots[0].now.exit->code, 9);
    ms_registry_remove(&reg, c);
    assert_int_equal(reg.live, 0);
}

static void test_former_ones_are_known_for_a_while(void **state)
{
    const struct ms_slot_spec spec = {.uid = 1000, .node = "here"};
    struct ms_cluster *c = NULL;
    struct ms_slot *slot;
    uint64_t uid = 1000;

    (void)state;
    assert_int_equal(ms_registry_add(&reg, "actor", &spec, 1, &c, NULL), 0);
    slot = &c->slots[0];
    for (unsigned i = 0; i < MS_FORMER_MAX + 3; i++) {
        assert_non_null(ms_registry_exited(&reg, uid, NULL));
        assert_null(ms_registry_find_former(&reg, uid));
        assert_int_equal(ms_slot_renew(&reg, slot, ++uid), 0);
        assert_ptr_equal(ms_registry_find_former(&reg, uid - 1), slot);
        assert_int_equal(slot->now.incarnation, i + 2);
    }
    assert_null(ms_registry_find_former(&reg, 1002)); /* too long ago */
    assert_ptr_equal(ms_registry_find_former(&reg, 1003), slot);
    ms_registry_remove(&reg, c);
    assert_null(ms_registry_find_former(&reg, 1003));
}

/* A head that was started again hears of both, in any order. */
static void test_the_last_incarnation_is_adopted(void **state)
{
    struct ms_cluster *c;

    (void)state;
    assert_int_equal(adopt_as(12, 0, 2, 1, 9), 0);
    assert_int_equal(adopt_as(13, 0, 2, 2, 0), 0);
    c = ms_registry_find(&reg, "actor");
    assert_int_equal(c->slots[0].now.uid, 13);
    assert_int_equal(c->slots[0].now.incarnation, 2);
    assert_int_equal(c->live, 1);
    assert_int_equal(adopt_as(14, 0, 2, 1, 0), -EEXIST);
    assert_int_equal(c->unconfirmed, 0);
    ms_registry_remove(&reg, c);
}

/* As when there was no memory to start them. */
static void test_slots_that_were_not_started_can_go(void **state)
{
    struct ms_slot_spec more[2] = {{.uid = 50}, {.uid = 51}};
    struct ms_cluster *c = add("actor", 40, 1);

    (void)state;
    assert_int_equal(started(40, 4), 0);
    assert_int_equal(ms_cluster_resize(&reg, c, more, 3), 0);
    ms_cluster_set_changing(c, 1);
    assert_int_equal(ms_cluster_resize(&reg, c, NULL, 1), -EBUSY);
    ms_cluster_end_unstarted(&reg, c, false, "it was not started");
    assert_int_equal(ms_cluster_resize(&reg, c, NULL, 1), 0);
    assert_int_equal(c->live, 1);
    assert_int_equal(reg.live, 1);
    ms_registry_remove(&reg, c);
}

/* More ranks, fewer, more again: each uid leads to its slot, and nothing of those that went
 * stays. */
static void test_a_cluster_changes_its_size(void **state)
{
    struct ms_slot_spec more[3] = {{.uid = 50, .node = "b"}, {.uid = 51}, {.uid = 52}};
    struct ms_cluster *c = add("actor", 40, 2);

    (void)state;
    assert_int_equal(started(40, 4), 0);
    assert_non_null(exited(41, 1));
    assert_int_equal(ms_slot_renew(&reg, &c->slots[1], 42), 0);
    assert_int_equal(ms_cluster_resize(&reg, c, more, 5), 0);
    assert_int_equal(c->count, 5);
    assert_int_equal(c->live, 5);
    assert_int_equal(reg.live, 5);
    assert_ptr_equal(ms_registry_find_uid(&reg, 40), &c->slots[0]);
    assert_ptr_equal(ms_registry_find_former(&reg, 41), &c->slots[1]);
    assert_ptr_equal(ms_registry_find_uid(&reg, 51), &c->slots[3]);
    assert_int_equal(c->slots[4].rank, 4);
    assert_string_equal(c->slots[2].node, "b");
    assert_int_equal(ms_cluster_resize(&reg, c, NULL, 4), -EBUSY);
    assert_non_null(exited(52, 0));
    assert_non_null(exited(51, 0));
    assert_int_equal(ms_cluster_resize(&reg, c, NULL, 3), 0);
    assert_null(ms_registry_find_uid(&reg, 51));
    assert_int_equal(c->live, 3);
    more[0].uid = 40; /* is taken */
    assert_int_equal(ms_cluster_resize(&reg, c, more, 4), -EEXIST);
    more[0].uid = 60;
    more[1].uid = 60;
    assert_int_equal(ms_cluster_resize(&reg, c, more, 5), -EEXIST);
    assert_null(ms_registry_find_uid(&reg, 60));
    assert_int_equal(c->count, 3);
    assert_int_equal(reg.live, 3);
    ms_registry_remove(&reg, c);
    assert_int_equal(reg.live, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_life_of_a_cluster),
        TEST(test_failed_add_changes_nothing),
        TEST(test_exit_before_the_start_is_confirmed),
        TEST(test_events_come_once),
        TEST(test_an_older_incarnation_changes_nothing),
        TEST(test_exit_without_details),
        TEST(test_status_says_what_is_known),
        TEST(test_a_cluster_is_built_from_reports),
        TEST(test_former_ones_are_known_for_a_while),
        TEST(test_the_last_incarnation_is_adopted),
        TEST(test_slots_that_were_not_started_can_go),
        TEST(test_a_cluster_changes_its_size),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
