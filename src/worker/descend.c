#include "worker/descend.h"
#include "base/cleanup.h"

#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/types.h>

enum { ROUNDS_MAX = 8 };

struct pids {
    pid_t *at;
    size_t count, room;
};

static void pids_add(struct pids *p, pid_t pid)
{
    if (p->count == p->room) {
        size_t room = p->room ? p->room * 2 : 64;
        pid_t *more = realloc(p->at, room * sizeof *more);

        if (!more)
            return;
        p->at = more;
        p->room = room;
    }
    p->at[p->count++] = pid;
}

/* The fields after the name, which may contain anything, begin behind the last ')'. */
static pid_t parent_of(pid_t pid, char *state)
{
    char path[64], text[512];
    MS_CLEANUP(ms_cleanup_file) FILE *f = NULL;
    const char *rest;
    size_t n;
    int parent = 0;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    f = fopen(path, "re");
    if (!f)
        return 0;
    n = fread(text, 1, sizeof text - 1, f);
    text[n] = 0;
    rest = strrchr(text, ')');
    if (!rest || sscanf(rest + 1, " %c %d", state, &parent) != 2)
        return 0;
    return parent;
}

static bool is_in(const struct pids *p, pid_t pid)
{
    for (size_t i = 0; i < p->count; i++)
        if (p->at[i] == pid)
            return true;
    return false;
}

/* One pass over /proc: add every living process whose parent is us or already found. */
static size_t collect(struct pids *found)
{
    DIR *d = opendir("/proc");
    struct dirent *e;
    size_t before = found->count;

    while (d && (e = readdir(d))) {
        pid_t pid = (pid_t)atoi(e->d_name), parent;
        char state = 0;

        if (pid <= 1 || pid == getpid() || is_in(found, pid))
            continue;
        parent = parent_of(pid, &state);
        if (state != 'Z' && (parent == getpid() || is_in(found, parent)))
            pids_add(found, pid);
    }
    if (d)
        closedir(d);
    return found->count - before;
}

void ms_descend_kill(void)
{
    for (int round = 0; round < ROUNDS_MAX; round++) {
        struct pids found = {0};

        while (collect(&found) > 0)
            ;
        for (size_t i = 0; i < found.count; i++)
            kill(found.at[i], SIGKILL);
        free(found.at);
        if (found.count == 0)
            return;
    }
}
