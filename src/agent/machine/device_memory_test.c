/* device_memory_test.c */
#include "agent/machine/device_memory.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char nvidia[] = "nvidia", huawei[] = "huawei", none[] = "", zero[] = "0",
            one[] = "1", bus[] = "0000:3b:00.0", other_bus[] = "0000:87:00.0";

/* A node with two devices of a vendor. */
struct node {
    Muster__NodeShape shape;
    Muster__Device devices[2], *list[2];
};

static void node_init(struct node *n, char *vendor, char *first_pci, char *second_pci)
{
    char *ids[] = {zero, one}, *pcis[] = {first_pci, second_pci};

    muster__node_shape__init(&n->shape);
    for (int i = 0; i < 2; i++) {
        muster__device__init(&n->devices[i]);
        n->devices[i].vendor = vendor;
        n->devices[i].id = ids[i];
        n->devices[i].pci = pcis[i];
        n->list[i] = &n->devices[i];
    }
    n->shape.devices = n->list;
    n->shape.n_devices = 2;
}

struct rig {
    struct ms_loop *loop;
    struct ms_device_memory memory;
    int reads;
};

static void on_read(void *arg)
{
    struct rig *rig = arg;

    rig->reads++;
    ms_loop_stop(rig->loop);
}

static void rig_start(struct rig *rig)
{
    *rig = (struct rig){.loop = ms_loop_create()};
    assert_non_null(rig->loop);
    ms_device_memory_init(&rig->memory, rig->loop, on_read, rig);
}

static void rig_stop(struct rig *rig)
{
    ms_device_memory_finish(&rig->memory);
    ms_loop_destroy(rig->loop);
}

/* A program in PATH that is called nvidia-smi. */
static void put_program(const char *script)
{
    static char dir[] = "/tmp/muster-smi-XXXXXX", path[64];
    int fd;

    if (!path[0]) {
        assert_non_null(mkdtemp(dir));
        snprintf(path, sizeof path, "%s/nvidia-smi", dir);
        setenv("PATH", dir, 1);
    }
    unlink(path);
    if (!script) {
        rmdir(dir);
        return;
    }
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0700);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, script, strlen(script)), strlen(script));
    close(fd);
}

static void test_found_by_bus_and_by_number(void **state)
{
    static const char said[] = "1, GPU-b, 00000000:3B:00.0, 1024\n"
                               "0, GPU-a, 00000000:87:00.0, 3\n"
                               "2, GPU-c, 00000000:90:00.0, [N/A]\nnonsense\n";
    const uint32_t both[] = {0, 1}, first[] = {0};
    struct node n;
    struct rig rig;
    uint64_t used;

    (void)state;
    put_program("#!/bin/sh\nexit 1\n");
    rig_start(&rig);
    node_init(&n, nvidia, bus, other_bus);
    assert_true(ms_device_memory_ask(&rig.memory, &n.shape));
    assert_false(ms_device_memory_sum(&rig.memory, both, 2, &used)); /* not yet */
    ms_device_memory_parse(&rig.memory, said, ms_now_ns());
    assert_true(ms_device_memory_sum(&rig.memory, first, 1, &used));
    assert_int_equal(used, (uint64_t)1024 << 20); /* the bus counts, not the number */
    assert_true(ms_device_memory_sum(&rig.memory, both, 2, &used));
    assert_int_equal(used, (uint64_t)1027 << 20);
    assert_false(ms_device_memory_sum(&rig.memory, both, 0, &used));
    n.devices[0].pci = n.devices[1].pci = none; /* described */
    ms_device_memory_parse(&rig.memory, said, ms_now_ns());
    assert_true(ms_device_memory_sum(&rig.memory, first, 1, &used));
    assert_int_equal(used, (uint64_t)3 << 20);
    ms_device_memory_parse(
        &rig.memory, said, ms_now_ns() - 2 * MS_DEVICE_MEMORY_OLD_NS);
    assert_false(ms_device_memory_sum(&rig.memory, first, 1, &used)); /* too old */
    rig_stop(&rig);
}

static void test_the_program_is_run(void **state)
{
    const uint32_t both[] = {0, 1};
    struct node n;
    struct rig rig;
    uint64_t used;

    (void)state;
    put_program("#!/bin/sh\n"
                "echo \"0, GPU-a, 00000000:87:00.0, 5\"\n"
                "echo \"1, GPU-b, 00000000:3B:00.0, 6\"\n");
    rig_start(&rig);
    node_init(&n, nvidia, none, none);
    assert_true(ms_device_memory_ask(&rig.memory, &n.shape));
    assert_false(ms_device_memory_ask(&rig.memory, &n.shape)); /* it runs already */
    ms_loop_run(rig.loop);
    assert_int_equal(rig.reads, 1);
    assert_true(ms_device_memory_sum(&rig.memory, both, 2, &used));
    assert_int_equal(used, (uint64_t)11 << 20);
    rig_stop(&rig);
}

/* It fails, talks without end, or is not there; and devices of others are not asked. */
static void test_nothing_is_known(void **state)
{
    const uint32_t first[] = {0};
    struct node n;
    struct rig rig;
    uint64_t used;

    (void)state;
    rig_start(&rig);
    node_init(&n, nvidia, none, none);
    put_program("#!/bin/sh\necho failed; exit 9\n");
    assert_true(ms_device_memory_ask(&rig.memory, &n.shape));
    ms_loop_run(rig.loop);
    put_program(
        "#!/bin/sh\nwhile echo \"0, GPU-a, 00000000:87:00.0, 5\"; do :; done\n");
    assert_true(ms_device_memory_ask(&rig.memory, &n.shape));
    ms_loop_run(rig.loop);
    assert_int_equal(rig.reads, 2);
    put_program(NULL);
    assert_false(ms_device_memory_ask(&rig.memory, &n.shape));
    node_init(&n, huawei, none, none);
    assert_false(ms_device_memory_ask(&rig.memory, &n.shape));
    assert_false(ms_device_memory_sum(&rig.memory, first, 1, &used));
    rig_stop(&rig);
}

/* It does not end: its session is its own, so nobody else would end it. */
static void test_one_that_hangs_goes_with_us(void **state)
{
    MS_CLEANUP(ms_cleanup_fd) int pidfd = -1;
    struct ms_process_end end;
    struct node n;
    struct rig rig;

    (void)state;
    put_program("#!/bin/sh\nexec /bin/sleep 60\n");
    rig_start(&rig);
    node_init(&n, nvidia, none, none);
    assert_true(ms_device_memory_ask(&rig.memory, &n.shape));
    pidfd = fcntl(rig.memory.program.pidfd, F_DUPFD_CLOEXEC, 0);
    assert_true(pidfd >= 0);
    rig_stop(&rig);
    assert_int_equal(ms_process_wait(pidfd, ms_now_ns() + 10 * MS_NS_PER_S, &end), 0);
    assert_true(end.signaled);
    assert_int_equal(end.code, SIGKILL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_found_by_bus_and_by_number),
        cmocka_unit_test(test_the_program_is_run),
        cmocka_unit_test(test_one_that_hangs_goes_with_us),
        cmocka_unit_test(test_nothing_is_known),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
