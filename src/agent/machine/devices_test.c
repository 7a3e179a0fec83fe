/* devices_test.c - tests of devices.h: the devices of this machine, of any vendor */
#include "agent/machine/devices.h"
#include "base/cleanup.h"
#include "io/tree.h"
#include "resource/shape.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

/* ---- a tree of files ------------------------------------------------------------- */

static char root[64];

static int setup(void **state)
{
    (void)state;
    strcpy(root, "/tmp/ms-devices-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    return ms_tree_remove(AT_FDCWD, root);
}

/* The file below the root, and the folders above it. */
static void put(const char *path, const char *text)
{
    char full[512];
    FILE *f;

    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *at = full + strlen(root) + 1; (at = strchr(at, '/')); *at++ = '/') {
        *at = 0;
        mkdir(full, 0700);
    }
    f = fopen(full, "we");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* ---- looking --------------------------------------------------------------------- */

static void put_nvidia(const char *pci, const char *uuid)
{
    char path[128], text[256];

    snprintf(path, sizeof path, "/proc/driver/nvidia/gpus/%s/information", pci);
    snprintf(text,
             sizeof text,
             "Model: \t\t NVIDIA A100-SXM4-80GB\nIRQ:   \t\t 140\nGPU UUID: \t %s\n"
             "Device Minor: \t 3\n",
             uuid);
    put(path, text);
}

static void test_nvidia(void **state)
{
    MS_CLEANUP(ms_found_finish) struct ms_found f = {0};

    (void)state;
    put_nvidia("0000:b7:00.0", "GPU-bbbb-1");
    put_nvidia("0000:07:00.0", "GPU-aaaa-0");
    put("/dev/nvidia0", "");
    put("/dev/nvidiactl", "");
    assert_int_equal(ms_devices_look(root, &f), 0);
    assert_int_equal(f.count, 2);
    assert_string_equal(f.at[0].pci, "0000:07:00.0");
    assert_string_equal(f.at[0].id, "0");
    assert_string_equal(f.at[0].model, "NVIDIA A100-SXM4-80GB");
    assert_string_equal(f.at[1].uuid, "GPU-bbbb-1");
    assert_int_equal(f.at[1].memory, UINT64_C(80) << 30);
    assert_int_equal(f.at[1].links, 0);
    ms_found_finish(&f);
    put("/proc/driver/nvidia-nvswitch/devices/0000:c1:00.0/information", "x");
    assert_int_equal(ms_devices_look(root, &f), 0);
    assert_int_equal(f.at[1].links, 1);
}

static void test_device_files(void **state)
{
    MS_CLEANUP(ms_found_finish) struct ms_found f = {0};

    (void)state;
    for (int i = 0; i < 12; i++) {
        char path[32];

        snprintf(path, sizeof path, "/dev/davinci%d", i);
        put(path, "");
    }
    put("/dev/davinci_manager", "");
    put("/dev/nvidia3", "");
    put("/dev/nvidia-uvm", "");
    put("/dev/cambricon_dev0", "");
    assert_int_equal(ms_devices_look(root, &f), 0);
    assert_int_equal(f.count, 14);
    assert_string_equal(f.at[0].vendor, "nvidia");
    assert_string_equal(f.at[0].id, "3");
    assert_string_equal(f.at[11].id, "10"); /* counted as people do */
    assert_string_equal(f.at[11].kind, "npu");
    assert_string_equal(f.at[13].kind, "mlu");
}

static void put_kfd(int node, const char *properties, int linked_with)
{
    char path[128], text[128];

    snprintf(
        path, sizeof path, "/sys/class/kfd/kfd/topology/nodes/%d/properties", node);
    put(path, properties);
    snprintf(path,
             sizeof path,
             "/sys/class/kfd/kfd/topology/nodes/%d/mem_banks/0/properties",
             node);
    put(path, "heap_type 1\nsize_in_bytes 68702699520\nflags 0\n");
    snprintf(path,
             sizeof path,
             "/sys/class/kfd/kfd/topology/nodes/%d/io_links/0/properties",
             node);
    put(path, "type 2\nnode_from 1\nnode_to 0\n");
    if (linked_with < 0)
        return;
    snprintf(path,
             sizeof path,
             "/sys/class/kfd/kfd/topology/nodes/%d/io_links/1/properties",
             node);
    snprintf(
        text, sizeof text, "type 11\nnode_from %d\nnode_to %d\n", node, linked_with);
    put(path, text);
}

static void test_amd(void **state)
{
    MS_CLEANUP(ms_found_finish) struct ms_found f = {0};

    (void)state;
    put_kfd(0, "cpu_cores_count 64\nsimd_count 0\n", -1);
    put_kfd(1, "simd_count 440\nlocation_id 49408\ndomain 0\n", 2);
    put_kfd(2, "simd_count 440\nlocation_id 50688\ndomain 0\n", 1);
    put_kfd(3, "simd_count 440\nlocation_id 768\ndomain 1\n", -1);
    assert_int_equal(ms_devices_look(root, &f), 0);
    assert_int_equal(f.count, 3);
    assert_string_equal(f.at[0].pci, "0000:c1:00.0");
    assert_string_equal(f.at[2].pci, "0001:03:00.0");
    assert_string_equal(f.at[2].id, "2");
    assert_int_equal(f.at[0].memory, UINT64_C(68702699520));
    assert_int_equal(f.at[0].links, f.at[1].links);
    assert_int_not_equal(f.at[0].links, 0);
    assert_int_equal(f.at[2].links, 0);
}

static void test_accelerators_and_cards(void **state)
{
    MS_CLEANUP(ms_found_finish) struct ms_found f = {0};

    (void)state;
    put("/sys/class/accel/accel0/device/vendor", "0x1da3\n");
    put("/sys/class/accel/accel0/device/module_id", "6\n");
    put("/sys/class/accel/accel0/device/uevent",
        "DRIVER=habanalabs\nPCI_SLOT_NAME=0000:33:00.0\nX=1\n");
    put("/sys/class/accel/accel1/device/vendor", "0x1ae0\n");
    put("/sys/class/accel/accel2/device/vendor", "0x8086\n"); /* a laptop's NPU */
    put("/sys/class/drm/card0/device/vendor", "0x8086\n");
    put("/sys/class/drm/card0/device/class", "0x030000\n"); /* has a display */
    put("/sys/class/drm/card1/device/vendor", "0x8086\n");
    put("/sys/class/drm/card1/device/class", "0x038000\n");
    put("/sys/class/drm/card1-HDMI-A-1/status", "connected\n");
    assert_int_equal(ms_devices_look(root, &f), 0);
    assert_int_equal(f.count, 3);
    assert_string_equal(f.at[0].kind, "hpu");
    assert_string_equal(f.at[0].id, "6");
    assert_string_equal(f.at[0].pci, "0000:33:00.0");
    assert_string_equal(f.at[1].kind, "tpu");
    assert_string_equal(f.at[2].vendor, "intel");
}

/* ---- order, domains, what is visible --------------------------------------------- */

/* Two packages with a NUMA node and a PCIe root each; the second one comes first by bus
 * number. */
static const char machine[] =
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
    "<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n"
    "<topology version=\"2.0\">\n"
    "<object type=\"Machine\" os_index=\"0\" cpuset=\"0x3\" complete_cpuset=\"0x3\" "
    "allowed_cpuset=\"0x3\" nodeset=\"0x3\" complete_nodeset=\"0x3\" "
    "allowed_nodeset=\"0x3\" "
    "gp_index=\"1\">\n"
    " <object type=\"Group\" cpuset=\"0x1\" complete_cpuset=\"0x1\" nodeset=\"0x1\" "
    "complete_nodeset=\"0x1\" gp_index=\"2\">\n"
    "  <object type=\"NUMANode\" os_index=\"0\" cpuset=\"0x1\" complete_cpuset=\"0x1\" "
    "nodeset=\"0x1\" complete_nodeset=\"0x1\" gp_index=\"3\" local_memory=\"1024\"/>\n"
    "  <object type=\"PU\" os_index=\"0\" cpuset=\"0x1\" complete_cpuset=\"0x1\" "
    "nodeset=\"0x1\" "
    "complete_nodeset=\"0x1\" gp_index=\"4\"/>\n"
    "  <object type=\"Bridge\" gp_index=\"5\" bridge_type=\"0-1\" depth=\"0\" "
    "bridge_pci=\"0000:[80-bf]\">\n"
    "   <object type=\"PCIDev\" gp_index=\"6\" pci_busid=\"0000:87:00.0\" "
    "pci_type=\"0302 [10de:20b2] [10de:1463] a1\" pci_link_speed=\"0.0\"/>\n"
    "   <object type=\"PCIDev\" gp_index=\"7\" pci_busid=\"0000:90:00.0\" "
    "pci_type=\"0302 [10de:20b2] [10de:1463] a1\" pci_link_speed=\"0.0\"/>\n"
    "  </object>\n"
    " </object>\n"
    " <object type=\"Group\" cpuset=\"0x2\" complete_cpuset=\"0x2\" nodeset=\"0x2\" "
    "complete_nodeset=\"0x2\" gp_index=\"8\">\n"
    "  <object type=\"NUMANode\" os_index=\"1\" cpuset=\"0x2\" complete_cpuset=\"0x2\" "
    "nodeset=\"0x2\" complete_nodeset=\"0x2\" gp_index=\"9\" local_memory=\"1024\"/>\n"
    "  <object type=\"PU\" os_index=\"1\" cpuset=\"0x2\" complete_cpuset=\"0x2\" "
    "nodeset=\"0x2\" "
    "complete_nodeset=\"0x2\" gp_index=\"10\"/>\n"
    "  <object type=\"Bridge\" gp_index=\"11\" bridge_type=\"0-1\" depth=\"0\" "
    "bridge_pci=\"0000:[00-3f]\">\n"
    "   <object type=\"PCIDev\" gp_index=\"12\" pci_busid=\"0000:07:00.0\" "
    "pci_type=\"0302 [10de:20b2] [10de:1463] a1\" pci_link_speed=\"0.0\"/>\n"
    "  </object>\n"
    " </object>\n"
    "</object>\n"
    "</topology>\n";

static const char *cuda; /* CUDA_VISIBLE_DEVICES */

static const char *visible(const char *variable)
{
    return strcmp(variable, "CUDA_VISIBLE_DEVICES") == 0 ? cuda : NULL;
}

static Muster__NodeShape *shape_of(struct hwloc_topology *t)
{
    MS_CLEANUP(ms_found_finish) struct ms_found f = {0};
    Muster__NodeShape *s = ms_shape_create("n");
    struct ms_error err = {0};

    assert_int_equal(ms_devices_look(root, &f), 0);
    assert_int_equal(ms_devices_add(s, &f, t, visible, &err), 0);
    return s;
}

static void test_order_of_the_topology(void **state)
{
    struct hwloc_topology *t = ms_topology_open(machine);
    MS_CLEANUP(ms_shape_cleanup) Muster__NodeShape *s = NULL;

    (void)state;
    assert_non_null(t);
    put_nvidia("0000:07:00.0", "GPU-aaaa-0");
    put_nvidia("0000:87:00.0", "GPU-bbbb-1");
    put_nvidia("0000:90:00.0", "GPU-cccc-2");
    cuda = NULL;
    s = shape_of(t);
    assert_int_equal(s->n_devices, 3);
    assert_string_equal(s->devices[0]->id, "1");
    assert_string_equal(s->devices[1]->id, "2");
    assert_string_equal(s->devices[2]->id, "0");
    assert_int_equal(s->devices[0]->numa, 0);
    assert_int_equal(s->devices[2]->numa, 1);
    assert_int_equal(s->devices[0]->domain, 0);
    assert_int_equal(s->devices[1]->domain, 0);
    assert_int_equal(s->devices[2]->domain, 1);
    assert_string_equal(s->devices[2]->variable, "CUDA_VISIBLE_DEVICES");
    ms_topology_close(t);
}

static void test_a_part_of_the_machine(void **state)
{
    MS_CLEANUP(ms_shape_cleanup) Muster__NodeShape *some = NULL, *none = NULL;

    (void)state;
    put_nvidia("0000:07:00.0", "GPU-aaaa-0");
    put_nvidia("0000:87:00.0", "GPU-bbbb-1");
    put_nvidia("0000:90:00.0", "GPU-cccc-2");
    put("/dev/davinci0", "");
    cuda = "2, GPU-aaaa";
    some = shape_of(NULL);
    assert_int_equal(some->n_devices, 3);
    assert_string_equal(some->devices[0]->vendor, "huawei");
    assert_string_equal(some->devices[1]->id, "GPU-aaaa");
    assert_int_equal(some->devices[1]->numa, -1);
    assert_string_equal(some->devices[2]->id, "2");
    cuda = "";
    none = shape_of(NULL);
    assert_int_equal(none->n_devices, 1);
}

static void test_names_of_described_ones(void **state)
{
    MS_CLEANUP(ms_shape_cleanup) Muster__NodeShape *s = ms_shape_create("n");
    struct ms_error err = {0};

    (void)state;
    ms_shape_add_devices(s, &(struct ms_shape_devices){.count = 2}, &err);
    cuda = "4,7";
    assert_int_equal(ms_devices_rename(s, visible), 0);
    assert_string_equal(s->devices[0]->id, "4");
    assert_string_equal(s->devices[1]->id, "7");
    cuda = "1,2,3";
    assert_int_equal(ms_devices_rename(s, visible), 0);
    assert_string_equal(s->devices[1]->id, "7"); /* it means something else */
}

static void test_this_machine(void **state)
{
    MS_CLEANUP(ms_shape_cleanup) Muster__NodeShape *s = ms_shape_create("n");
    struct hwloc_topology *t = ms_topology_open(NULL);
    struct ms_error err = {0};
    struct ms_topology_place place;

    (void)state;
    assert_non_null(t);
    assert_false(ms_topology_find(t, "ffff:ff:1f.7", &place));
    assert_false(ms_topology_find(t, "nonsense", &place));
    assert_false(ms_topology_find(t, "", &place));
    ms_topology_close(t);
    assert_int_equal(ms_devices_find(s, &err), 0);
    assert_null(ms_topology_open("<nonsense"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_nvidia),
        TEST(test_device_files),
        TEST(test_amd),
        TEST(test_accelerators_and_cards),
        TEST(test_order_of_the_topology),
        TEST(test_a_part_of_the_machine),
        TEST(test_names_of_described_ones),
        TEST(test_this_machine),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
