/* devices_look.c - the devices that the files of the kernel and of drivers tell of */
#include "agent/machine/devices.h"
#include "base/cleanup.h"
#include "base/name.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>

enum { TEXT_MAX = 16 << 10, NODES_MAX = 512 };

void ms_found_finish(struct ms_found *f)
{
    free(f->at);
    *f = (struct ms_found){0};
}

/* A new one, all zero but what it is; NULL: out of memory. */
static struct ms_found_device *
found(struct ms_found *f, const char *vendor, const char *kind)
{
    struct ms_found_device *at = realloc(f->at, (f->count + 1) * sizeof *at);

    if (!at)
        return NULL;
    f->at = at;
    at += f->count;
    *at = (struct ms_found_device){.vendor = vendor,
                                   .kind = kind,
                                   .number = (uint32_t)f->count++,
                                   .place = {.numa = -1}};
    return at;
}

/* ---- files ----------------------------------------------------------------------- */

static bool read_file(char out[TEXT_MAX], const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static bool read_file(char out[TEXT_MAX], const char *fmt, ...)
{
    MS_CLEANUP(ms_cleanup_fd) int fd = -1;
    char path[PATH_MAX];
    va_list ap;
    ssize_t n;

    va_start(ap, fmt);
    vsnprintf(path, sizeof path, fmt, ap);
    va_end(ap);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, out, TEXT_MAX - 1);
    out[n > 0 ? n : 0] = 0;
    return n > 0;
}

/* A number in a file of its own: "0x1da3\n". */
static unsigned long read_number(const char *dir, const char *name)
{
    char text[TEXT_MAX];

    return read_file(text, "%s/%s", dir, name) ? strtoul(text, NULL, 0) : 0;
}

/* What stands behind "KEY" and blanks or a colon, up to the end of the line. */
static bool find_value(const char *text, const char *key, char out[MS_DEVICE_TEXT_MAX])
{
    size_t len = strlen(key);

    for (const char *at = text; at; at = strchr(at, '\n'), at = at ? at + 1 : NULL) {
        if (strncmp(at, key, len) != 0 || !strchr(": \t", at[len]))
            continue;
        at += len + strspn(at + len, ": \t");
        len = strcspn(at, "\n");
        while (len && isspace((unsigned char)at[len - 1]))
            len--;
        snprintf(out, MS_DEVICE_TEXT_MAX, "%.*s", (int)len, at);
        return true;
    }
    out[0] = 0;
    return false;
}

static uint64_t find_number(const char *text, const char *key)
{
    char value[MS_DEVICE_TEXT_MAX];

    return find_value(text, key, value) ? strtoull(value, NULL, 0) : 0;
}

/* The names in a folder that begin so and go on with digits (`digits`) or anything, in the
 * order in which people count. */
struct names {
    struct dirent **at;
    size_t count;
};

static void names_finish(struct names *n)
{
    for (size_t i = 0; i < n->count; i++)
        free(n->at[i]);
    free(n->at);
}

static bool is_wanted(const char *name, const char *prefix, bool digits)
{
    size_t len = strlen(prefix);
    const char *rest = name + len;

    if (name[0] == '.' || strncmp(name, prefix, len) != 0)
        return false;
    return !digits || (*rest && strspn(rest, "0123456789") == strlen(rest));
}

static int by_order(const struct dirent **a, const struct dirent **b)
{
    return ms_name_order((*a)->d_name, (*b)->d_name);
}

static int list(struct names *out,
                const char *root,
                const char *dir,
                const char *prefix,
                bool digits)
{
    char path[PATH_MAX];
    int count;

    *out = (struct names){0};
    snprintf(path, sizeof path, "%s%s", root, dir);
    count = scandir(path, &out->at, NULL, by_order);
    for (int i = 0; i < count; i++) {
        struct dirent *one = MS_TAKE(out->at[i]);

        if (is_wanted(one->d_name, prefix, digits))
            out->at[out->count++] = one;
        else
            free(one);
    }
    return count < 0 && errno == ENOMEM ? -ENOMEM : 0;
}

/* "PCI_SLOT_NAME=0000:3b:00.0" in the folder of a device. */
static void read_pci(const char *dir, char out[MS_DEVICE_TEXT_MAX])
{
    static const char key[] = "PCI_SLOT_NAME=";
    char text[TEXT_MAX];
    const char *at = read_file(text, "%s/uevent", dir) ? strstr(text, key) : NULL;

    out[0] = 0;
    if (at)
        snprintf(out,
                 MS_DEVICE_TEXT_MAX,
                 "%.*s",
                 (int)strcspn(at + strlen(key), "\n"),
                 at + strlen(key));
}

/* ---- vendors --------------------------------------------------------------------- */

/* Device files alone: the number is all that they tell. */
static int look_dev(struct ms_found *f,
                    const char *root,
                    const char *prefix,
                    const char *vendor,
                    const char *kind)
{
    MS_CLEANUP(names_finish) struct names names;
    int rc = list(&names, root, "/dev", prefix, true);

    for (size_t i = 0; i < names.count && rc == 0; i++) {
        struct ms_found_device *d = found(f, vendor, kind);

        if (d)
            snprintf(d->id, sizeof d->id, "%s", names.at[i]->d_name + strlen(prefix));
        else
            rc = -ENOMEM;
    }
    return rc;
}

/* "NVIDIA A100-SXM4-80GB": the driver's files do not say it otherwise. */
static uint64_t memory_in(const char *model)
{
    const char *at = strstr(model, "GB");

    if (!at || at == model || !isdigit((unsigned char)at[-1]))
        return 0;
    while (at > model && isdigit((unsigned char)at[-1]))
        at--;
    return strtoull(at, NULL, 10) << 30;
}

/* By its bus number, as nvidia-smi counts them too. */
static int look_nvidia(struct ms_found *f, const char *root)
{
    static const char gpus[] = "/proc/driver/nvidia/gpus";
    MS_CLEANUP(names_finish) struct names names, switches;
    int rc = list(&names, root, gpus, "", false);
    char text[TEXT_MAX];

    if (rc < 0)
        names = (struct names){0};
    if (list(&switches, root, "/proc/driver/nvidia-nvswitch/devices", "", false) < 0)
        rc = -ENOMEM;
    for (size_t i = 0; i < names.count && rc == 0; i++) {
        struct ms_found_device *d = found(f, "nvidia", "gpu");
        const char *pci = names.at[i]->d_name;

        if (!d)
            return -ENOMEM;
        snprintf(d->id, sizeof d->id, "%zu", i);
        snprintf(d->pci, sizeof d->pci, "%.95s", pci);
        d->links = switches.count ? 1 : 0; /* NVSwitch: each with each */
        if (!read_file(text, "%s%s/%s/information", root, gpus, pci))
            continue;
        find_value(text, "Model", d->model);
        find_value(text, "GPU UUID", d->uuid);
        d->memory = memory_in(d->model);
    }
    return rc == 0 && names.count == 0 ? look_dev(f, root, "nvidia", "nvidia", "gpu")
                                       : rc;
}

/* `node` is a folder, as below. */
static uint64_t kfd_memory(const char *node)
{
    char text[TEXT_MAX];
    uint64_t bytes = 0;

    for (int bank = 0; bank < 16; bank++) {
        if (!read_file(text, "%s/mem_banks/%d/properties", node, bank))
            break;
        if (find_number(text, "heap_type") == 1 || find_number(text, "heap_type") == 2)
            bytes += find_number(text, "size_in_bytes");
    }
    return bytes;
}

/* The least node that it has an xGMI link with, or itself. */
static uint32_t kfd_group(const char *node)
{
    enum { XGMI = 11 };
    unsigned long least = strtoul(strrchr(node, '/') + 1, NULL, 10);
    char text[TEXT_MAX];
    bool has_links = false;

    for (int link = 0; link < NODES_MAX; link++) {
        if (!read_file(text, "%s/io_links/%d/properties", node, link))
            break;
        if (find_number(text, "type") != XGMI)
            continue;
        has_links = true;
        if (find_number(text, "node_to") < least)
            least = find_number(text, "node_to");
    }
    return has_links ? (uint32_t)least + 1 : 0;
}

static int look_amd(struct ms_found *f, const char *root)
{
    static const char nodes[] = "/sys/class/kfd/kfd/topology/nodes";
    MS_CLEANUP(names_finish) struct names names;
    int rc = list(&names, root, nodes, "", true);
    char text[TEXT_MAX], node[PATH_MAX];
    size_t count = 0;

    for (size_t i = 0; i < names.count && rc == 0; i++) {
        struct ms_found_device *d;
        uint64_t at;

        snprintf(
            node, sizeof node, "%.2000s%s/%.255s", root, nodes, names.at[i]->d_name);
        if (!read_file(text, "%s/properties", node) ||
            find_number(text, "simd_count") == 0)
            continue; /* a CPU */
        d = found(f, "amd", "gpu");
        if (!d)
            return -ENOMEM;
        at = find_number(text, "location_id");
        snprintf(d->id, sizeof d->id, "%zu", count++);
        snprintf(d->pci,
                 sizeof d->pci,
                 "%04x:%02x:%02x.%x",
                 (unsigned)find_number(text, "domain"),
                 (unsigned)(at >> 8) & 0xff,
                 (unsigned)(at >> 3) & 0x1f,
                 (unsigned)at & 7);
        d->memory = kfd_memory(node);
        d->links = kfd_group(node);
    }
    return rc;
}

/* Gaudi names modules, not devices. */
static int look_accel(struct ms_found *f, const char *dir, const char *number)
{
    enum { HABANA = 0x1da3, GOOGLE = 0x1ae0 };
    unsigned long vendor = read_number(dir, "vendor");
    struct ms_found_device *d;
    char text[TEXT_MAX];

    if (vendor != HABANA && vendor != GOOGLE)
        return 0;
    d = vendor == HABANA ? found(f, "habana", "hpu") : found(f, "google", "tpu");
    if (!d)
        return -ENOMEM;
    if (read_file(text, "%s/module_id", dir))
        snprintf(d->id, sizeof d->id, "%lu", strtoul(text, NULL, 10));
    else
        snprintf(d->id, sizeof d->id, "%s", number);
    read_pci(dir, d->pci);
    return 0;
}

/* Not the ones with a display; counted from 0. */
static int look_intel(struct ms_found *f, const char *dir, const char *number)
{
    enum { INTEL = 0x8086, CLASS_OTHER_DISPLAY = 0x0380 };
    struct ms_found_device *d;
    size_t count = 0;

    (void)number;
    if (read_number(dir, "vendor") != INTEL ||
        read_number(dir, "class") >> 8 != CLASS_OTHER_DISPLAY)
        return 0;
    for (size_t i = 0; i < f->count; i++)
        count += strcmp(f->at[i].vendor, "intel") == 0;
    d = found(f, "intel", "xpu");
    if (!d)
        return -ENOMEM;
    snprintf(d->id, sizeof d->id, "%zu", count);
    read_pci(dir, d->pci);
    return 0;
}

/* Each device of a class: its folder, and the number in its name. */
static int
look_class(struct ms_found *f,
           const char *root,
           const char *class,
           const char *prefix,
           int (*look)(struct ms_found *f, const char *dir, const char *number))
{
    MS_CLEANUP(names_finish) struct names names;
    int rc = list(&names, root, class, prefix, true);

    for (size_t i = 0; i < names.count && rc == 0; i++) {
        char dir[PATH_MAX];

        snprintf(dir,
                 sizeof dir,
                 "%.2000s%s/%.255s/device",
                 root,
                 class,
                 names.at[i]->d_name);
        rc = look(f, dir, names.at[i]->d_name + strlen(prefix));
    }
    return rc;
}

int ms_devices_look(const char *root, struct ms_found *out)
{
    int rc = look_nvidia(out, root);

    if (rc == 0)
        rc = look_amd(out, root);
    if (rc == 0)
        rc = look_dev(out, root, "davinci", "huawei", "npu");
    if (rc == 0)
        rc = look_class(out, root, "/sys/class/accel", "accel", look_accel);
    if (rc == 0)
        rc = look_class(out, root, "/sys/class/drm", "card", look_intel);
    if (rc == 0)
        rc = look_dev(out, root, "cambricon_dev", "cambricon", "mlu");
    return rc;
}
