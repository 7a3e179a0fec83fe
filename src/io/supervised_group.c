/* supervised_group.c - the control group of an agent */
#include "io/supervised_group.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "io/supervised.h"
#include "io/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

/* How long processes may take to vanish after SIGKILL, and how often that is looked at. */
#define VANISH_NS (1 * MS_NS_PER_S)
#define LOOK_NS   (1 * MS_NS_PER_MS)

/* Our own group, of version 2 or of the first hierarchy of version 1 that is there. Of a
 * driver that is itself below an agent, the groups are beside each other. */
static bool find_base(struct ms_supervised_group *g)
{
    static const char *const hierarchies[] = {"", "pids", "freezer"};

    for (size_t i = 0; i < MS_COUNT(hierarchies); i++)
        if (ms_cgdir_find_own(hierarchies[i], g->dir, &g->is_v2) == 0)
            return true;
    return false;
}

void ms_supervised_group_create(struct ms_supervised_group *g, const char *supervisor)
{
    struct ms_supervised_group base = {0};
    int n;

    *g = (struct ms_supervised_group){0};
    if (!find_base(&base))
        return;
    g->is_v2 = base.is_v2;
    n = snprintf(
        g->dir, sizeof g->dir, "%s/" MS_AGENT_GROUP_PREFIX "%s", base.dir, supervisor);
    if (n < 0 || (size_t)n >= sizeof g->dir || mkdir(g->dir, 0755) < 0)
        g->dir[0] = 0;
}

/* Born in the group. glibc does not know of this fork: it is for a process with one
 * thread, which holds no lock of it. */
static pid_t fork_into(const char *dir)
{
    MS_CLEANUP(ms_cleanup_fd) int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct clone_args args = {
        .flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = (uint64_t)fd};

    if (fd < 0)
        return -errno;
    return (pid_t)syscall(SYS_clone3, &args, sizeof args);
}

static void enter(const struct ms_supervised_group *g)
{
    MS_CLEANUP(ms_cleanup_fd) int fd = ms_cgdir_open_procs(g->dir);

    if (fd >= 0 && write(fd, "0", 1) < 0)
        return; /* it does without */
}

pid_t ms_supervised_group_fork(const struct ms_supervised_group *g)
{
    pid_t pid = g->dir[0] && g->is_v2 ? fork_into(g->dir) : -1;

    if (pid >= 0)
        return pid;
    pid = fork();
    if (pid == 0 && g->dir[0])
        enter(g);
    return pid;
}

void ms_supervised_group_end(struct ms_supervised_group *g)
{
    int64_t until_ns = ms_now_ns() + VANISH_NS;

    while (g->dir[0] && rmdir(g->dir) < 0 && errno == EBUSY && ms_now_ns() < until_ns) {
        ms_cgdir_kill(g->dir);
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
    }
    g->dir[0] = 0;
}

void ms_supervised_groups_sweep(void)
{
    struct ms_supervised_group base = {0};
    MS_CLEANUP(ms_cleanup_dir) DIR *d = find_base(&base) ? opendir(base.dir) : NULL;
    struct dirent *e;

    while (d && (e = readdir(d))) {
        static const char prefix[] = MS_AGENT_GROUP_PREFIX;
        struct ms_supervised_group dead = {.is_v2 = base.is_v2};

        if (strncmp(e->d_name, prefix, sizeof prefix - 1) != 0 ||
            !ms_supervisor_is_dead(e->d_name + sizeof prefix - 1) ||
            snprintf(dead.dir, sizeof dead.dir, "%s/%s", base.dir, e->d_name) >=
                (int)sizeof dead.dir)
            continue;
        ms_supervised_group_end(&dead);
    }
}
