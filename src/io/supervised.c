/* supervised.c - find and end the processes whose supervisor is dead */
#include "io/supervised.h"
#include "base/cleanup.h"
#include "io/proc.h"
#include "io/spawn.h"
#include "io/supervised_group.h"
#include "io/tree.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <sys/stat.h>

/* One that is killed may have started another just before. */
enum { ROUNDS_MAX = 8, OUTLIVE_MS = 500 };

struct name {
    uint64_t space, start;
    pid_t pid;
};

static uint64_t own_space(void)
{
    struct stat st;

    return stat("/proc/self/ns/pid", &st) == 0 ? st.st_ino : 0;
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
    uint64_t space = own_space(), start = ms_proc_start(pid);

    if (!space || !start)
        return -ESRCH;
    snprintf(
        out, MS_SUPERVISOR_NAME_MAX, "%" PRIu64 "-%d-%" PRIu64, space, (int)pid, start);
    return 0;
}

bool ms_supervisor_is_dead(const char *name)
{
    struct name n;

    return parse(name, &n) && n.space == own_space() && ms_proc_start(n.pid) != n.start;
}

pid_t ms_supervisor_find(const char *name)
{
    struct name n;

    return parse(name, &n) && n.space == own_space() && ms_proc_start(n.pid) == n.start
               ? n.pid
               : 0;
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
    MS_CLEANUP(ms_cleanup_dir) DIR *proc = opendir("/proc");
    struct dirent *e;
    int count = 0;

    while (proc && (e = readdir(proc))) {
        pid_t pid = (pid_t)atoi(e->d_name);

        if (pid > 1 && pid != getpid() && is_left(pid) && kill(pid, SIGKILL) == 0)
            count++;
    }
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

    if (fd < 0 || ms_proc_start(n->pid) != n->start)
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
