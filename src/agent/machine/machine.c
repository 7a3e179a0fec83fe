/* machine.c - the CPUs and the memory that this node may use */
#include "agent/machine/machine.h"
#include "agent/machine/devices.h"
#include "base/cleanup.h"
#include "io/cgdir.h"
#include "io/cgpath.h"
#include "resource/shape.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { STAT_MAX = 8192 };

/* Any group above us may limit us too: walk up while it is below a mount. */
static bool go_up(char dir[MS_CGROUP_PATH_MAX])
{
    char *slash = strrchr(dir, '/');

    if (!slash || slash == dir)
        return false;
    *slash = 0;
    return access(dir, R_OK) == 0 && strncmp(dir, "/sys/fs/cgroup", 14) == 0;
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

static unsigned quota_of(const char *dir, bool is_v2)
{
    char quota[64], period[64];

    if (is_v2)
        return ms_cgdir_read(dir, "cpu.max", quota, sizeof quota) < 0
                   ? 0
                   : ms_machine_quota_v2(quota);
    if (ms_cgdir_read(dir, "cpu.cfs_quota_us", quota, sizeof quota) < 0 ||
        ms_cgdir_read(dir, "cpu.cfs_period_us", period, sizeof period) < 0)
        return 0;
    return ms_machine_quota_v1(quota, period);
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
    char dir[MS_CGROUP_PATH_MAX];
    bool is_v2;

    if (ms_cgdir_find_own("cpu", dir, &is_v2) < 0)
        return cpus ? cpus : 1;
    do {
        unsigned quota = quota_of(dir, is_v2);

        if (quota && quota < cpus)
            cpus = quota;
    } while (go_up(dir));
    return cpus ? cpus : 1;
}

uint64_t ms_machine_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGE_SIZE);
    uint64_t memory = pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : 0;
    char dir[MS_CGROUP_PATH_MAX], text[64];
    bool is_v2;

    if (ms_cgdir_find_own("memory", dir, &is_v2) < 0)
        return memory;
    do {
        const char *name = is_v2 ? "memory.max" : "memory.limit_in_bytes";
        unsigned long long limit = 0;

        if (ms_cgdir_read(dir, name, text, sizeof text) == 0 &&
            isdigit((unsigned char)text[0]))
            limit = strtoull(text, NULL, 10);
        if (limit && limit < memory)
            memory = limit;
    } while (go_up(dir));
    return memory;
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
    uint64_t least = UINT64_MAX;
    char dir[MS_CGROUP_PATH_MAX];
    bool is_v2;

    if (ms_cgdir_find_own("memory", dir, &is_v2) < 0)
        return least;
    do {
        uint64_t left = left_of(dir, is_v2);

        least = left < least ? left : least;
    } while (go_up(dir));
    return least;
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
