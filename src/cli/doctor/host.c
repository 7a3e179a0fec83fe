/* host.c - doctor: what the machine gives to workers */
#include "agent/machine/cgroup.h"
#include "agent/machine/machine.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "cli/doctor/doctor.h"
#include "io/spawn.h"
#include "io/tree.h"
#include "resource/amount.h"
#include "resource/shape.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>

/* A worker costs its agent about six descriptors, and the driver one or two. */
enum { DESCRIPTORS_GOOD = 4096, DESCRIPTORS_MIN = 256 };

#define SHM_GOOD    ((uint64_t)1 << 30)
#define TRIED_LIMIT ((uint64_t)1 << 30)

static void check_pidfd(struct ms_finding *f)
{
    MS_CLEANUP(ms_cleanup_fd) int fd = ms_process_open(getpid());
    struct utsname u = {0};

    uname(&u);
    if (fd >= 0)
        ms_finding_ok(f, "Linux %s has pidfd_open", u.release);
    else
        ms_finding_set(f,
                       MS_FINDING_FAIL,
                       "use Linux 5.3 or newer; in a sandbox (gVisor, an old seccomp "
                       "profile) allow pidfd_open",
                       "Linux %s: pidfd_open gives '%s'",
                       u.release,
                       strerror(-fd));
}

static void check_descriptors(struct ms_finding *f)
{
    struct rlimit limit = {0};
    unsigned long long most;

    getrlimit(RLIMIT_NOFILE, &limit);
    most = limit.rlim_max;
    if (limit.rlim_max == RLIM_INFINITY || most >= DESCRIPTORS_GOOD)
        ms_finding_ok(f,
                      "open files: %llu, can be raised to %llu",
                      (unsigned long long)limit.rlim_cur,
                      most);
    else
        ms_finding_set(f,
                       most < DESCRIPTORS_MIN ? MS_FINDING_FAIL : MS_FINDING_WARN,
                       "raise it: `ulimit -Hn 65536` as root, LimitNOFILE= in systemd, "
                       "--ulimit nofile= in Docker",
                       "open files: at most %llu, enough for about %llu workers",
                       most,
                       most / 8);
}

static void check_shm(struct ms_finding *f)
{
    static const char more[] = "NCCL and data loaders want more: `docker run "
                               "--shm-size=16g`, or an emptyDir of medium Memory";
    struct statvfs fs;
    uint64_t bytes;

    if (statvfs("/dev/shm", &fs) < 0 || access("/dev/shm", W_OK) < 0) {
        ms_finding_set(
            f,
            MS_FINDING_WARN,
            "mount a tmpfs there; NCCL and data loaders need it (Muster does not)",
            "/dev/shm cannot be used: %s",
            strerror(errno));
        return;
    }
    bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    ms_finding_set(f,
                   bytes < SHM_GOOD ? MS_FINDING_WARN : MS_FINDING_OK,
                   bytes < SHM_GOOD ? more : NULL,
                   "/dev/shm has %s free",
                   ms_amount_bytes(bytes).text);
}

static void check_clock(struct ms_finding *f)
{
    /* those that a process reads without entering the kernel */
    static const char *const fast[] = {
        "tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"};
    static const char slow[] =
        "each look at the clock enters the kernel; calls get slower by some "
        "microseconds. See /sys/devices/system/clocksource";
    char name[64];
    bool is_fast = false;

    if (ms_file_read("/sys/devices/system/clocksource/clocksource0/current_clocksource",
                     name,
                     sizeof name) <= 0) {
        ms_finding_ok(f, "the clock source is not told");
        return;
    }
    name[strcspn(name, "\n")] = 0;
    for (size_t i = 0; i < MS_COUNT(fast); i++)
        is_fast |= strcmp(name, fast[i]) == 0;
    ms_finding_set(f,
                   is_fast ? MS_FINDING_OK : MS_FINDING_WARN,
                   is_fast ? NULL : slow,
                   "clock source %s",
                   name);
}

/* ---- as the agent sees it -------------------------------------------------------- */

/* "8 x nvidia gpu (NVIDIA A100-SXM4-80GB, 80.0 GiB), in 2 domains" */
static void print_devices(const Muster__NodeShape *s, struct ms_buf *out)
{
    const Muster__Device *first = s->devices[0];
    uint32_t domains = 0;
    size_t alike = 0;

    for (size_t i = 0; i < s->n_devices; i++) {
        alike += strcmp(s->devices[i]->kind, first->kind) == 0;
        if (s->devices[i]->domain >= domains)
            domains = s->devices[i]->domain + 1;
    }
    ms_buf_printf(out,
                  "%zu x %s %s%s%s",
                  alike,
                  first->vendor,
                  first->kind,
                  *first->model ? ", " : "",
                  first->model);
    if (first->memory)
        ms_buf_printf(out, ", %llu GiB", (unsigned long long)(first->memory >> 30));
    if (alike < s->n_devices)
        ms_buf_printf(out, "; %zu of other kinds", s->n_devices - alike);
    if (domains > 1)
        ms_buf_printf(out, "; %u domains", domains);
}

static void check_devices(struct ms_finding *f)
{
    MS_CLEANUP(ms_shape_cleanup)
    Muster__NodeShape *s = ms_machine_shape("localhost", NULL, NULL);
    MS_CLEANUP(ms_buf_finish) struct ms_buf text = {0};

    if (s && s->n_devices)
        print_devices(s, &text);
    ms_finding_ok(f,
                  "%s",
                  text.len ? ms_buf_str(&text)
                           : "no GPUs; muster.init(num_gpus=N) counts N that are not "
                             "there");
}

static void check_cores(struct ms_finding *f)
{
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned cpus = ms_machine_cpus();

    ms_finding_set(f,
                   cpus < 2 ? MS_FINDING_WARN : MS_FINDING_OK,
                   cpus < 2 ? "on one core nobody may spin: calls take longer" : NULL,
                   "%u of %ld cores may be used%s",
                   cpus,
                   online,
                   cpus < online ? " (affinity or a CPU quota)" : "");
}

static void check_memory_limits(struct ms_finding *f)
{
    struct ms_error err = {0};
    struct ms_cgroups groups;
    struct ms_cgroup group;

    ms_cgroups_init(&groups, "doctor");
    if (ms_cgroup_create(&group, &groups, (uint64_t)getpid(), TRIED_LIMIT, &err) == 0) {
        ms_cgroup_remove(&group);
        ms_finding_ok(
            f, "workers can have memory limits (cgroup v%d)", groups.is_v2 ? 2 : 1);
        return;
    }
    ms_finding_set(f,
                   MS_FINDING_WARN,
                   "WorkerConfig(memory=) is refused; try `systemd-run --user --scope "
                   "-p Delegate=yes` before the driver's command",
                   "%s",
                   err.text);
}

const struct ms_check ms_checks_host[] = {
    {"descriptors", check_descriptors},
    {"pidfd", check_pidfd},
    {"memory-limits", check_memory_limits},
    {"cores", check_cores},
    {"shm", check_shm},
    {"devices", check_devices},
    {"clock", check_clock},
    {0},
};
