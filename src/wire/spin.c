#include "wire/spin.h"
#include "base/cleanup.h"
#include "base/limits.h"

#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE_SIZE = 4096, SLOTS_MAX = 128 };

/* Longer than a poll and the hand-over after it: whoever still uses it has renewed it. */
#define LEASE_NS (4 * MS_SPIN_NS)

struct slot {
    _Atomic uint64_t pair; /* 0: nobody's */
    _Atomic int64_t used_ns;
};

struct ms_spin {
    _Atomic uint32_t slots; /* 0: not yet counted */
    uint32_t zero;
    struct slot slot[SLOTS_MAX];
};

_Static_assert(sizeof(struct ms_spin) <= PAGE_SIZE, "the leases fit into a page");

/* The two numbers "quota period" of cgroup v2, or one number a file of v1. */
static bool read_numbers(const char *path, long long *first, long long *second)
{
    MS_CLEANUP(ms_cleanup_file) FILE *f = fopen(path, "re");

    if (!f)
        return false;
    *second = 0;
    return fscanf(f, "%lld %lld", first, second) >= 1;
}

static unsigned quota_cores(void)
{
    long long quota, period, unused;

    if (!read_numbers("/sys/fs/cgroup/cpu.max", &quota, &period)) {
        if (!read_numbers("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", &quota, &unused) ||
            !read_numbers("/sys/fs/cgroup/cpu/cpu.cfs_period_us", &period, &unused))
            return UINT32_MAX;
    }
    if (quota <= 0 || period <= 0)
        return UINT32_MAX;
    return quota < period ? 1u : (unsigned)(quota / period);
}

unsigned ms_spin_cores(void)
{
    cpu_set_t set;
    unsigned cores = 1, quota = quota_cores();

    if (sched_getaffinity(0, sizeof set, &set) == 0)
        cores = (unsigned)CPU_COUNT(&set);
    return cores < quota ? cores : quota;
}

struct ms_spin *ms_spin_open(const char *path)
{
    MS_CLEANUP(ms_cleanup_fd) int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    struct ms_spin *s;
    uint32_t none = 0, slots = ms_spin_cores() - 1;

    if (fd < 0)
        return NULL;
    s = mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (s == MAP_FAILED)
        return NULL;
    if (slots > SLOTS_MAX)
        slots = SLOTS_MAX;
    atomic_compare_exchange_strong(&s->slots, &none, slots);
    return s;
}

void ms_spin_close(struct ms_spin *s)
{
    if (s)
        munmap(s, PAGE_SIZE);
}

static bool slot_take(struct slot *slot, uint64_t pair, int64_t now_ns)
{
    uint64_t owner = atomic_load_explicit(&slot->pair, memory_order_relaxed);

    if (owner != pair) {
        int64_t used = atomic_load_explicit(&slot->used_ns, memory_order_relaxed);

        if (owner != 0 && now_ns - used < LEASE_NS)
            return false;
        if (!atomic_compare_exchange_strong(&slot->pair, &owner, pair))
            return false;
    }
    atomic_store_explicit(&slot->used_ns, now_ns, memory_order_relaxed);
    return true;
}

bool ms_spin_take(struct ms_spin *s, uint64_t pair, int64_t now_ns)
{
    uint32_t slots = s ? atomic_load_explicit(&s->slots, memory_order_relaxed) : 0;

    if (slots > SLOTS_MAX)
        slots = SLOTS_MAX;
    for (uint32_t i = 0; i < slots; i++)
        if (slot_take(&s->slot[i], pair, now_ns))
            return true;
    return false;
}
