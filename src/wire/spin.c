/* spin.c - leases to poll, in a page that all processes of a session share */
#include "wire/spin.h"
#include "base/cleanup.h"
#include "base/limits.h"

#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { PAGE_SIZE = 4096, SLOTS_MAX = 128 };

/* Longer than a poll and the hand-over after it: a pair in use has renewed its lease. */
#define LEASE_NS (4 * MS_SPIN_NS)

/* Owner and time of last use in one word, so that a lease never has two owners: the
 * high 24 bits name the pair (0: free), the low 40 are microseconds, which wrap. */
struct ms_spin {
    _Atomic uint32_t slots; /* 0: not yet counted */
    uint32_t zero;
    _Atomic uint64_t slot[SLOTS_MAX];
    _Atomic uint64_t changes;
};

enum { TIME_BITS = 40 };
#define TIME_MASK ((UINT64_C(1) << TIME_BITS) - 1)

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

/* The first process to open the page counts: reading the quota of a control group takes longer than
 * the rest. */
static void count_slots(struct ms_spin *s)
{
    uint32_t none = 0, slots = ms_spin_cores() - 1;

    atomic_compare_exchange_strong(
        &s->slots, &none, slots < SLOTS_MAX ? slots : SLOTS_MAX);
}

struct ms_spin *ms_spin_open(const char *path)
{
    MS_CLEANUP(ms_cleanup_fd) int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    struct ms_spin *s;
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0 || st.st_size < PAGE_SIZE)
        return NULL;
    s = mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (s == MAP_FAILED)
        return NULL;
    if (atomic_load(&s->slots) == 0)
        count_slots(s);
    return s;
}

uint64_t ms_spin_changes(const struct ms_spin *s)
{
    return s ? atomic_load(&s->changes) : 0;
}

void ms_spin_add_change(struct ms_spin *s)
{
    if (s)
        atomic_fetch_add(&s->changes, 1);
}

void ms_spin_close(struct ms_spin *s)
{
    if (s)
        munmap(s, PAGE_SIZE);
}

static uint64_t word_of(uint64_t pair, int64_t now_ns)
{
    uint64_t name = pair >> TIME_BITS;

    return (name ? name : 1) << TIME_BITS |
           ((uint64_t)(now_ns / MS_NS_PER_US) & TIME_MASK);
}

static bool is_free(uint64_t word, uint64_t ours)
{
    uint64_t unused_us = (ours - word) & TIME_MASK;

    return word == 0 || unused_us > LEASE_NS / MS_NS_PER_US;
}

bool ms_spin_take(struct ms_spin *s, uint64_t pair, int64_t now_ns)
{
    uint32_t slots = s ? atomic_load_explicit(&s->slots, memory_order_relaxed) : 0;
    uint64_t ours = word_of(pair, now_ns), word;

    if (slots > SLOTS_MAX)
        slots = SLOTS_MAX;
    for (uint32_t i = 0; i < 2 * slots; i++) { /* our own one, and then a free one */
        _Atomic uint64_t *slot = &s->slot[i < slots ? i : i - slots];

        word = atomic_load_explicit(slot, memory_order_relaxed);
        if ((i < slots ? word >> TIME_BITS == ours >> TIME_BITS
                       : is_free(word, ours)) &&
            atomic_compare_exchange_strong(slot, &word, ours))
            return true;
    }
    return false;
}
