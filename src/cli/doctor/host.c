/* host.c - doctor: what the machine gives to workers */
#include "agent/machine/cgroup.h"
#include "agent/machine/machine.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "cli/doctor/doctor.h"
#include "io/spawn.h"
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

void ms_check_pidfd(struct ms_finding *f)
{
    MS_CLEANUP(ms_cleanup_fd) int fd = ms_process_open(getpid());
    struct utsname u = {0};

    uname(&u);
    ms_finding_set(f, "Linux %s has pidfd_open", u.release);
    if (fd >= 0)
        return;
    ms_finding_set(f, "Linux %s: pidfd_open gives '%s'", u.release, strerror(-fd));
    ms_finding_rate(f,
                    MS_FINDING_FAIL,
                    "use Linux 5.3 or newer; in a sandbox (gVisor, an old seccomp "
                    "profile) allow pidfd_open");
}

void ms_check_descriptors(struct ms_finding *f)
{
    struct rlimit limit = {0};
    unsigned long long most;

    getrlimit(RLIMIT_NOFILE, &limit);
    most = limit.rlim_max;
    ms_finding_set(f,
                   "open files: %llu, can be raised to %llu",
                   (unsigned long long)limit.rlim_cur,
                   most);
    if (limit.rlim_max == RLIM_INFINITY || most >= DESCRIPTORS_GOOD)
        return;
    ms_finding_set(
        f, "open files: at most %llu, enough for about %llu workers", most, most / 8);
    ms_finding_rate(f,
                    most < DESCRIPTORS_MIN ? MS_FINDING_FAIL : MS_FINDING_WARN,
                    "raise it: `ulimit -Hn 65536` as root, LimitNOFILE= in systemd, "
                    "--ulimit nofile= in Docker");
}

void ms_check_shm(struct ms_finding *f)
{
    struct statvfs fs;
    uint64_t bytes;

    if (statvfs("/dev/shm", &fs) < 0 || access("/dev/shm", W_OK) < 0) {
        ms_finding_set(f, "/dev/shm cannot be used: %s", strerror(errno));
        ms_finding_rate(
            f,
            MS_FINDING_WARN,
            "mount a tmpfs there; NCCL and data loaders need it (Muster does "
            "not)");
        return;
    }
    bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    ms_finding_set(f, "/dev/shm has %s free", ms_amount_bytes(bytes).text);
    if (bytes < SHM_GOOD)
        ms_finding_rate(
            f,
            MS_FINDING_WARN,
            "NCCL and data loaders want more: `docker run --shm-size=16g`, or "
            "an emptyDir of medium Memory");
}

/* The first line of a small file; false if there is none. */
static bool read_line(const char *path, char *out, size_t room)
{
    MS_CLEANUP(ms_cleanup_file) FILE *file = fopen(path, "re");

    if (!file || !fgets(out, (int)room, file))
        return false;
    out[strcspn(out, "\n")] = 0;
    return true;
}

void ms_check_clock(struct ms_finding *f)
{
    /* those that a process reads without entering the kernel */
    static const char *const fast[] = {
        "tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"};
    char name[64];

    if (!read_line("/sys/devices/system/clocksource/clocksource0/current_clocksource",
                   name,
                   sizeof name)) {
        ms_finding_set(f, "the clock source is not told");
        return;
    }
    ms_finding_set(f, "clock source %s", name);
    for (size_t i = 0; i < MS_COUNT(fast); i++)
        if (strcmp(name, fast[i]) == 0)
            return;
    ms_finding_rate(
        f,
        MS_FINDING_WARN,
        "each look at the clock enters the kernel; calls get slower by some "
        "microseconds. See /sys/devices/system/clocksource");
}

/* ---- as the agent sees it -------------------------------------------------------- */

/* "8 x nvidia gpu (NVIDIA A100-SXM4-80GB, 80.0 GiB), in 2 domains" */
static int print_devices(const Muster__NodeShape *s, struct ms_buf *out)
{
    const Muster__Device *first = s->devices[0];
    uint32_t domains = 0;
    size_t alike = 0;
    int rc;

    for (size_t i = 0; i < s->n_devices; i++) {
        alike += strcmp(s->devices[i]->kind, first->kind) == 0;
        if (s->devices[i]->domain >= domains)
            domains = s->devices[i]->domain + 1;
    }
    rc = ms_buf_printf(out,
                       "%zu x %s %s%s%s",
                       alike,
                       first->vendor,
                       first->kind,
                       *first->model ? ", " : "",
                       first->model);
    if (rc == 0 && first->memory)
        rc =
            ms_buf_printf(out, ", %llu GiB", (unsigned long long)(first->memory >> 30));
    if (rc == 0 && alike < s->n_devices)
        rc = ms_buf_printf(out, "; %zu of other kinds", s->n_devices - alike);
    return rc == 0 && domains > 1 ? ms_buf_printf(out, "; %u domains", domains) : rc;
}

void ms_check_devices(struct ms_finding *f)
{
    MS_CLEANUP(ms_shape_cleanup)
    Muster__NodeShape *s = ms_machine_shape("localhost", NULL, NULL);
    MS_CLEANUP(ms_buf_finish) struct ms_buf text = {0};

    if (s && s->n_devices && print_devices(s, &text) == 0)
        ms_finding_set(f, "%s", ms_buf_str(&text));
    else
        ms_finding_set(f,
                       "no GPUs; muster.init(num_gpus=N) counts N that are not there");
}

void ms_check_cores(struct ms_finding *f)
{
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned cpus = ms_machine_cpus();

    ms_finding_set(f,
                   "%u of %ld cores may be used%s",
                   cpus,
                   online,
                   cpus < online ? " (affinity or a CPU quota)" : "");
    if (cpus < 2)
        ms_finding_rate(
            f, MS_FINDING_WARN, "on one core nobody may spin: calls take longer");
}

void ms_check_memory_limits(struct ms_finding *f)
{
    struct ms_error err = {0};
    struct ms_cgroups groups;
    struct ms_cgroup group;

    ms_cgroups_init(&groups, "doctor");
    if (ms_cgroup_create(&group, &groups, (uint64_t)getpid(), TRIED_LIMIT, &err) == 0) {
        ms_cgroup_remove(&group);
        ms_finding_set(
            f, "workers can have memory limits (cgroup v%d)", groups.is_v2 ? 2 : 1);
        return;
    }
    ms_finding_set(f, "%s", err.text);
    ms_finding_rate(f,
                    MS_FINDING_WARN,
                    "WorkerConfig(memory=) is refused; try `systemd-run --user --scope "
                    "-p Delegate=yes` before the driver's command");
}
