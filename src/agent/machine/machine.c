/* machine.c - the CPUs and the memory that this node may use */
#include "agent/machine/machine.h"
#include "agent/machine/devices.h"
#include "base/cleanup.h"
#include "io/cgdir.h"
#include "io/cgpath.h"
#include "resource/shape.h"

#include <ctype.h>
#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { STAT_MAX = 8192 };

/* The group above, which may limit us too; false: it is not below a mount. */
static bool go_up(char dir[MS_CGROUP_PATH_MAX])
{
    char *slash = strrchr(dir, '/');

    if (!slash || slash == dir)
        return false;
    *slash = 0;
    return access(dir, R_OK) == 0 && strncmp(dir, "/sys/fs/cgroup", 14) == 0;
}

/* The least of what our group for this controller and those above it have; UINT64_MAX: no
 * limit. */
static uint64_t least_of(const char *controller,
                         uint64_t (*of)(const char *dir, bool is_v2))
{
    uint64_t least = UINT64_MAX;
    char dir[MS_CGROUP_PATH_MAX];
    bool is_v2;

    if (ms_cgdir_find_own(controller, dir, &is_v2) < 0)
        return least;
    do {
        uint64_t has = of(dir, is_v2);

        least = has < least ? has : least;
    } while (go_up(dir));
    return least;
}

static unsigned whole_cpus(long long quota, long long period)
{
    if (quota <= 0 || period <= 0)
        return 0;
    return (unsigned)((quota + period - 1) / period);
}

unsigned ms_machine_quota_v2(const char *cpu_max)
{
    char *end;
    long long quota = strtoll(cpu_max, &end, 10);

    return end == cpu_max ? 0 : whole_cpus(quota, strtoll(end, NULL, 10));
}

unsigned ms_machine_quota_v1(const char *quota_us, const char *period_us)
{
    return whole_cpus(strtoll(quota_us, NULL, 10), strtoll(period_us, NULL, 10));
}

static uint64_t quota_of(const char *dir, bool is_v2)
{
    char quota[64], period[64];
    unsigned cpus = 0;

    if (is_v2 && ms_cgdir_read(dir, "cpu.max", quota, sizeof quota) == 0)
        cpus = ms_machine_quota_v2(quota);
    if (!is_v2 && ms_cgdir_read(dir, "cpu.cfs_quota_us", quota, sizeof quota) == 0 &&
        ms_cgdir_read(dir, "cpu.cfs_period_us", period, sizeof period) == 0)
        cpus = ms_machine_quota_v1(quota, period);
    return cpus ? cpus : UINT64_MAX;
}

static unsigned affinity_cpus(void)
{
    cpu_set_t set;
    long online;

    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return (unsigned)CPU_COUNT(&set);
    online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (unsigned)online : 1;
}

unsigned ms_machine_cpus(void)
{
    unsigned cpus = affinity_cpus();
    uint64_t quota = least_of("cpu", quota_of);

    if (quota < cpus)
        cpus = (unsigned)quota;
    return cpus ? cpus : 1;
}

static uint64_t limit_of(const char *dir, bool is_v2)
{
    char text[64];
    uint64_t limit = 0;

    if (ms_cgdir_read(
            dir, is_v2 ? "memory.max" : "memory.limit_in_bytes", text, sizeof text) ==
            0 &&
        isdigit((unsigned char)text[0]))
        limit = strtoull(text, NULL, 10);
    return limit ? limit : UINT64_MAX;
}

uint64_t ms_machine_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGE_SIZE);
    uint64_t memory = pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : 0;
    uint64_t limit = least_of("memory", limit_of);

    return limit < memory ? limit : memory;
}

uint64_t ms_machine_left(const char *limit,
                         const char *usage,
                         const char *stat,
                         const char *cache)
{
    unsigned long long most, used;
    long long reclaimable = ms_cgpath_number(stat, cache);

    if (!isdigit((unsigned char)limit[0]) || !isdigit((unsigned char)usage[0]))
        return UINT64_MAX;
    most = strtoull(limit, NULL, 10);
    used = strtoull(usage, NULL, 10);
    if (reclaimable > 0)
        used -= (unsigned long long)reclaimable < used ? (unsigned long long)reclaimable
                                                       : used;
    return used < most ? most - used : 0;
}

static uint64_t left_of(const char *dir, bool is_v2)
{
    char limit[64], usage[64], stat[STAT_MAX];

    if (ms_cgdir_read(
            dir, is_v2 ? "memory.max" : "memory.limit_in_bytes", limit, sizeof limit) <
            0 ||
        ms_cgdir_read(dir,
                      is_v2 ? "memory.current" : "memory.usage_in_bytes",
                      usage,
                      sizeof usage) < 0)
        return UINT64_MAX;
    if (ms_cgdir_read(dir, "memory.stat", stat, sizeof stat) < 0)
        stat[0] = 0;
    return ms_machine_left(
        limit, usage, stat, is_v2 ? "inactive_file" : "total_inactive_file");
}

uint64_t ms_machine_memory_left(void)
{
    return least_of("memory", left_of);
}

Muster__NodeShape *
ms_machine_shape(const char *node, const Muster__NodeShape *told, struct ms_error *err)
{
    MS_CLEANUP(ms_shape_cleanup)
    Muster__NodeShape *s = told ? ms_shape_copy(told) : ms_shape_create(node);
    bool looks = !told || told->look_for_devices;

    if (!s || ms_shape_set_name(s, node) < 0) {
        ms_error_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    if (s->cpus < 0)
        s->cpus = (int32_t)ms_machine_cpus();
    if (s->memory == 0)
        s->memory = ms_machine_memory();
    if (looks ? ms_devices_find(s, err) < 0
              : ms_devices_rename(s, ms_devices_own_variable) < 0)
        return NULL;
    s->look_for_devices = false;
    return MS_TAKE(s);
}
