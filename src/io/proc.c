/* proc.c - processes, by what /proc says of them */
#include "io/proc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "io/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { READ_STEP = 4096, ENVIRON_MAX = 4 << 20, STAT_MAX = 2048 };

/* Between two looks at what is left of our children. */
#define LOOK_NS (100 * MS_NS_PER_MS)

/* A whole file of /proc, which has no length before it is read. */
static int read_file(const char *path, struct ms_buf *out)
{
    MS_CLEANUP(ms_cleanup_fd) int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return -errno;
    while (out->len < ENVIRON_MAX) {
        ssize_t n;

        if (ms_buf_reserve(out, READ_STEP) < 0)
            return -ENOMEM;
        n = read(fd, out->data + out->len, READ_STEP);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : 0;
        out->len += (size_t)n;
    }
    return 0;
}

static int add_pid(struct ms_buf *pids, pid_t pid)
{
    return ms_buf_append(pids, &pid, sizeof pid);
}

/* "12 34 56 " */
static int add_listed(struct ms_buf *pids, const char *text)
{
    char *end;

    for (long pid = strtol(text, &end, 10); end != text; pid = strtol(text, &end, 10)) {
        int rc = add_pid(pids, (pid_t)pid);

        if (rc < 0)
            return rc;
        text = end;
    }
    return 0;
}

/* Where the kernel keeps a list for each thread. */
static int children_listed(struct ms_buf *pids)
{
    MS_CLEANUP(ms_cleanup_dir) DIR *tasks = opendir("/proc/self/task");
    MS_CLEANUP(ms_buf_finish) struct ms_buf text = {0};
    struct dirent *e;

    if (!tasks)
        return -errno;
    while ((e = readdir(tasks))) {
        char path[sizeof "/proc/self/task//children" + sizeof e->d_name];
        int rc;

        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/children", e->d_name);
        text.len = 0;
        rc = read_file(path, &text);
        if (rc == 0)
            rc = ms_buf_str(&text) ? add_listed(pids, (char *)text.data) : -ENOMEM;
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* The fields of /proc/<pid>/stat that matter here. */
struct stat_line {
    char state;
    pid_t parent;
    unsigned flags;
    uint64_t user_ticks, system_ticks; /* of processor time */
    uint64_t start_ticks;              /* since the machine began */
    uint64_t resident_pages;
    unsigned long start_code; /* 0: it is within an exec, whose last step this is */
    unsigned long env_start, env_end; /* 0: it has no environment yet */
};

static bool read_stat(pid_t pid, struct stat_line *out)
{
    char path[64], text[STAT_MAX];
    const char *behind_name;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    if (ms_file_read(path, text, sizeof text) <= 0)
        return false;
    behind_name = strrchr(text, ')'); /* the command's name may have anything in it */
    return behind_name && sscanf(behind_name + 1,
                                 " %c %d %*d %*d %*d %*d %u"
                                 " %*s %*s %*s %*s %" SCNu64 " %" SCNu64 " %*s %*s"
                                 " %*s %*s %*s %*s %" SCNu64 " %*s %" SCNu64 " %*s"
                                 " %lu %*s %*s %*s %*s %*s %*s %*s"
                                 " %*s %*s %*s %*s %*s %*s %*s %*s"
                                 " %*s %*s %*s %*s %*s %*s %*s %*s"
                                 " %lu %lu",
                                 &out->state,
                                 &out->parent,
                                 &out->flags,
                                 &out->user_ticks,
                                 &out->system_ticks,
                                 &out->start_ticks,
                                 &out->resident_pages,
                                 &out->start_code,
                                 &out->env_start,
                                 &out->env_end) == 10;
}

uint64_t ms_proc_start(pid_t pid)
{
    struct stat_line stat;

    return read_stat(pid, &stat) && stat.state != 'Z' && stat.state != 'X'
               ? stat.start_ticks
               : 0;
}

bool ms_proc_look(pid_t pid, struct ms_proc_look *out)
{
    struct stat_line stat;
    uint64_t tick_ns = (uint64_t)MS_NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK);

    if (!read_stat(pid, &stat))
        return false;
    *out = (struct ms_proc_look){
        .memory = stat.resident_pages * (uint64_t)sysconf(_SC_PAGESIZE),
        .cpu_ns = (stat.user_ticks + stat.system_ticks) * tick_ns,
        .is_stopped = stat.state == 'T' || stat.state == 't'};
    return true;
}

static bool stat_is_ending(const struct stat_line *stat)
{
    enum { FLAG_EXITING = 4 }; /* the kernel's PF_EXITING */

    return stat->state == 'Z' || stat->state == 'X' || (stat->flags & FLAG_EXITING);
}

static bool has_pid(const struct ms_buf *pids, pid_t pid)
{
    const pid_t *at = (const pid_t *)(const void *)pids->data;

    for (size_t i = 0; i < pids->len / sizeof pid; i++)
        if (at[i] == pid)
            return true;
    return false;
}

/* One pass over /proc, asking every process for its parent: add our children or, `further`,
 * every living process whose parent is us or already found. */
static int add_by_parent(struct ms_buf *found, bool further)
{
    MS_CLEANUP(ms_cleanup_dir) DIR *proc = opendir("/proc");
    const struct dirent *e;
    int rc = 0;

    if (!proc)
        return -errno;
    while (rc == 0 && (e = readdir(proc))) {
        pid_t pid = (pid_t)atoi(e->d_name);
        struct stat_line stat;

        if (pid <= 1 || pid == getpid() || !read_stat(pid, &stat) ||
            (further && (stat.state == 'Z' || has_pid(found, pid))))
            continue;
        if (stat.parent == getpid() || (further && has_pid(found, stat.parent)))
            rc = add_pid(found, pid);
    }
    return rc;
}

int ms_proc_children(pid_t **out)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf pids = {0};
    int rc = children_listed(&pids);

    if (rc < 0 && rc != -ENOMEM) {
        pids.len = 0;
        rc = add_by_parent(&pids, false); /* where the kernel keeps no list */
    }
    if (rc < 0)
        return rc;
    *out = pids.len ? (pid_t *)(void *)MS_TAKE(pids.data) : NULL;
    return (int)(pids.len / sizeof(pid_t));
}

void ms_proc_kill_descendants(void)
{
    enum { ROUNDS_MAX = 8 };

    for (int round = 0; round < ROUNDS_MAX; round++) {
        MS_CLEANUP(ms_buf_finish) struct ms_buf found = {0};
        const pid_t *at;
        size_t before;

        do
            before = found.len;
        while (add_by_parent(&found, true) == 0 && found.len > before);
        if (!found.len)
            return;
        at = (const pid_t *)(const void *)found.data;
        for (size_t i = 0; i < found.len / sizeof *at; i++)
            kill(at[i], SIGKILL);
    }
}

void ms_proc_end_children(int64_t deadline_ns)
{
    sigset_t child;

    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    for (;;) {
        MS_CLEANUP(ms_cleanup_free) pid_t *pids = NULL;
        int count = ms_proc_children(&pids);
        int64_t left_ns = deadline_ns - ms_now_ns();
        pid_t pid;

        for (int i = 0; i < count; i++)
            ms_proc_kill(pids[i]);
        while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
            ;
        if (pid < 0 || left_ns <= 0)
            return;
        left_ns = left_ns < LOOK_NS ? left_ns : LOOK_NS;
        sigtimedwait(&child, NULL, &(struct timespec){.tv_nsec = left_ns});
    }
}

int ms_signals_open(const int *signals, sigset_t *before)
{
    sigset_t mask;
    int fd;

    sigemptyset(&mask);
    for (; *signals; signals++)
        sigaddset(&mask, *signals);
    sigprocmask(SIG_BLOCK, &mask, before);
    fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    return fd < 0 ? -errno : fd;
}

/* It shows no environment: because it has none, or because it is within an exec, where the
 * new one comes only after those who wait for that exec were let go on, and grows from
 * nothing before the code is entered as the last thing. */
static int explain_blank(pid_t pid)
{
    struct stat_line stat;

    if (!read_stat(pid, &stat) || stat_is_ending(&stat))
        return -ENOENT;
    return stat.start_code && stat.env_end && stat.env_start == stat.env_end ? -ENOENT
                                                                             : -EAGAIN;
}

int ms_proc_env(pid_t pid, const char *name, char *out, size_t room)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf env = {0};
    size_t name_len = strlen(name);
    char path[64];
    int rc;

    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    rc = read_file(path, &env);
    if (rc < 0)
        return rc == -ESRCH ? -ENOENT : rc;
    if (env.len == 0)
        return explain_blank(pid);
    if (!ms_buf_str(&env))
        return -ENOMEM;
    for (size_t at = 0; at < env.len;) {
        const char *entry = (char *)env.data + at;
        size_t len = strlen(entry);

        if (len > name_len && entry[name_len] == '=' && !memcmp(entry, name, name_len))
            return ms_text_copy(out, room, entry + name_len + 1, len - name_len - 1);
        at += len + 1;
    }
    return -ENOENT;
}

bool ms_proc_is_ending(pid_t pid)
{
    struct stat_line stat;

    return !read_stat(pid, &stat) || stat_is_ending(&stat);
}

int ms_proc_threads(void)
{
    MS_CLEANUP(ms_cleanup_dir) DIR *tasks = opendir("/proc/self/task");
    struct dirent *e;
    int count = 0;

    if (!tasks)
        return -errno;
    while ((e = readdir(tasks)))
        if (e->d_name[0] != '.')
            count++;
    return count;
}

int ms_proc_group_kill(pid_t group, int sig)
{
    if (group <= 1 || group == getpgrp())
        return -EINVAL;
    return kill(-group, sig) < 0 ? -errno : 0;
}

void ms_proc_kill(pid_t pid)
{
    if (getpgid(pid) == pid)
        ms_proc_group_kill(pid, SIGKILL);
    kill(pid, SIGKILL);
}

void ms_proc_set_name(const char *name)
{
    prctl(PR_SET_NAME, name, 0, 0, 0);
}

static void close_range_of(int first, int last)
{
    if (first <= last)
        syscall(SYS_close_range, (unsigned)first, (unsigned)last, 0);
}

void ms_proc_close_others(const int *keep, size_t count)
{
    int first = 3;

    for (;;) {
        int next = INT32_MAX;

        for (size_t i = 0; i < count; i++)
            if (keep[i] >= first && keep[i] < next)
                next = keep[i];
        if (next == INT32_MAX) {
            close_range_of(first, INT32_MAX);
            return;
        }
        close_range_of(first, next - 1);
        first = next + 1;
    }
}

int ms_fd_set_cloexec(int fd, bool on)
{
    int flags = fcntl(fd, F_GETFD);

    if (flags < 0)
        return -errno;
    flags = on ? flags | FD_CLOEXEC : flags & ~FD_CLOEXEC;
    return fcntl(fd, F_SETFD, flags) < 0 ? -errno : 0;
}

int ms_nofile_raise(struct rlimit *original)
{
    struct rlimit now;

    if (getrlimit(RLIMIT_NOFILE, &now) < 0)
        return -errno;
    *original = now;
    now.rlim_cur = now.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &now) < 0 ? -errno : 0;
}
