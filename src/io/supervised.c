#include "io/supervised.h"
#include "base/cleanup.h"
#include "io/proc.h"
#include "io/spawn.h"
#include "io/supervised_group.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* One that is killed may have started another just before. */
enum { ROUNDS_MAX = 8, STAT_MAX = 1024, OUTLIVE_MS = 500 };

struct name {
    uint64_t space, start;
    pid_t pid;
};

static uint64_t own_space(void)
{
    struct stat st;

    return stat("/proc/self/ns/pid", &st) == 0 ? st.st_ino : 0;
}

/* When a process began, in ticks since the machine did; 0: it is not there. A zombie
 * does nothing any more. */
static uint64_t start_of(pid_t pid)
{
    char path[32], text[STAT_MAX], state, *at;
    MS_CLEANUP(ms_cleanup_fd) int fd = -1;
    uint64_t ticks;
    ssize_t n;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n <= 0)
        return 0;
    text[n] = 0;
    at = strrchr(text, ')'); /* the command's name may have anything in it */
    if (!at || sscanf(at + 1,
                      " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d"
                      " %*d %*d %*d %" SCNu64,
                      &state,
                      &ticks) != 2)
        return 0;
    return state == 'Z' || state == 'X' ? 0 : ticks;
}

static bool parse(const char *text, struct name *out)
{
    int pid, len = 0;

    if (sscanf(text,
               "%20" SCNu64 "-%10d-%20" SCNu64 "%n",
               &out->space,
               &pid,
               &out->start,
               &len) != 3 ||
        text[len] || pid <= 0)
        return false;
    out->pid = pid;
    return true;
}

int ms_supervisor_name(pid_t pid, char out[MS_SUPERVISOR_NAME_MAX])
{
    uint64_t space = own_space(), start = start_of(pid);

    if (!space || !start)
        return -ESRCH;
    snprintf(
        out, MS_SUPERVISOR_NAME_MAX, "%" PRIu64 "-%d-%" PRIu64, space, (int)pid, start);
    return 0;
}

bool ms_supervisor_is_dead(const char *name)
{
    struct name n;

    return parse(name, &n) && n.space == own_space() && start_of(n.pid) != n.start;
}

/* It was started below a supervisor that is dead. */
static bool is_left(pid_t pid)
{
    char name[MS_SUPERVISOR_NAME_MAX];

    return ms_proc_env(pid, MS_SUPERVISOR_VARIABLE, name, sizeof name) == 0 &&
           ms_supervisor_is_dead(name);
}

static int kill_left(void)
{
    DIR *proc = opendir("/proc");
    struct dirent *e;
    int count = 0;

    while (proc && (e = readdir(proc))) {
        pid_t pid = (pid_t)atoi(e->d_name);

        if (pid > 1 && pid != getpid() && is_left(pid) && kill(pid, SIGKILL) == 0)
            count++;
    }
    if (proc)
        closedir(proc);
    return count;
}

void ms_supervised_sweep(void)
{
    int more = 1;

    for (int round = 0; round < ROUNDS_MAX && more > 0; round++)
        more = kill_left();
    ms_supervised_groups_sweep();
}

/* A supervisor that lives kills us, and one that was killed with the agent may take a
 * moment to be gone. */
static bool outlives_us(const struct name *n)
{
    MS_CLEANUP(ms_cleanup_fd) int fd = ms_process_open(n->pid);
    struct pollfd at = {.fd = fd, .events = POLLIN};

    if (fd < 0 || start_of(n->pid) != n->start)
        return false;
    ms_process_signal(fd, SIGCONT);
    return poll(&at, 1, OUTLIVE_MS) == 0;
}

void ms_supervised_agent_lost(void)
{
    char text[MS_SUPERVISOR_NAME_MAX];
    struct name n;

    if (ms_proc_env(getpid(), MS_SUPERVISOR_VARIABLE, text, sizeof text) < 0 ||
        !parse(text, &n) || n.space != own_space())
        return;
    if (!outlives_us(&n))
        ms_supervised_sweep();
}
