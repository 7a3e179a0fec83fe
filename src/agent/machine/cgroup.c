/* cgroup.c - control groups that limit the memory of workers */
#include "agent/machine/cgroup.h"
#include "base/cleanup.h"
#include "io/cgpath.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { NEW_S = 60, PATH_ROOM = MS_CGROUP_PATH_MAX + 64 };

static int write_of(const char *dir, const char *name, const char *text)
{
    MS_CLEANUP(ms_cleanup_fd) int fd = -1;
    char path[PATH_ROOM];

    snprintf(path, sizeof path, "%s/%s", dir, name);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    return write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

/* ---- where ----------------------------------------------------------------------- */

static long long kills_of(const char *dir, bool is_v2)
{
    char text[1024];

    if (!*dir)
        return 0;
    if (ms_cgdir_read(
            dir, is_v2 ? "memory.events" : "memory.oom_control", text, sizeof text) < 0)
        return 0;
    return ms_cgpath_number(text, "oom_kill");
}

/* Whether groups with a memory limit can be made in this folder; if not, why not. */
static bool can_hold(struct ms_cgroups *g, const char *dir)
{
    char text[1024];

    if (access(dir, W_OK) < 0) {
        snprintf(g->why_not,
                 sizeof g->why_not,
                 "%.160s may not be written: %s",
                 dir,
                 strerrordesc_np(errno));
        return false;
    }
    if (!g->is_v2)
        return true;
    if (ms_cgdir_read(dir, "cgroup.subtree_control", text, sizeof text) == 0 &&
        strstr(text, "memory"))
        return true;
    if (write_of(dir, "cgroup.subtree_control", "+memory") == 0)
        return true;
    snprintf(
        g->why_not,
        sizeof g->why_not,
        "%.160s gives its children no memory controller (it has processes of its own)",
        dir);
    return false;
}

static void find_base(struct ms_cgroups *g)
{
    char dir[MS_CGROUP_PATH_MAX];
    char *slash;

    if (!g->own[0]) {
        snprintf(g->why_not, sizeof g->why_not, "no memory control group is mounted");
        return;
    }
    memcpy(dir, g->own, sizeof dir);
    if (can_hold(g, dir)) {
        memcpy(g->base, dir, sizeof dir);
        return;
    }
    slash = strrchr(dir, '/');
    if (!g->is_v2 || !slash || slash == dir)
        return;
    *slash = 0;
    if (can_hold(g, dir))
        memcpy(g->base, dir, sizeof dir);
}

void ms_cgroups_init(struct ms_cgroups *g, const char *session)
{
    *g = (struct ms_cgroups){0};
    snprintf(g->session, sizeof g->session, "%s", session);
    if (ms_cgdir_find_own("memory", g->own, &g->is_v2) < 0)
        g->own[0] = 0;
    find_base(g);
    g->own_kills = kills_of(g->own, g->is_v2);
}

bool ms_cgroups_killed_here(struct ms_cgroups *g)
{
    long long kills = kills_of(g->own, g->is_v2);

    if (kills <= g->own_kills)
        return false;
    g->own_kills++; /* one worker each */
    return true;
}

/* ---- one ------------------------------------------------------------------------- */

static int set_limit(const struct ms_cgroup *c, uint64_t limit)
{
    char text[32];
    int rc;

    snprintf(text, sizeof text, "%" PRIu64, limit);
    if (c->is_v2) {
        rc = write_of(c->dir, "memory.max", text);
        write_of(c->dir, "memory.swap.max", "0"); /* absent without swap */
        return rc;
    }
    rc = write_of(c->dir, "memory.limit_in_bytes", text);
    write_of(c->dir, "memory.memsw.limit_in_bytes", text);
    return rc;
}

int ms_cgroup_create(struct ms_cgroup *c,
                     const struct ms_cgroups *g,
                     uint64_t uid,
                     uint64_t memory_limit,
                     struct ms_error *err)
{
    struct ms_cgroup made = {.is_v2 = g->is_v2};
    int rc, n;

    if (!g->base[0])
        return ms_error_set(
            err, -EOPNOTSUPP, "memory limits cannot be had here: %s", g->why_not);
    n = snprintf(made.dir,
                 sizeof made.dir,
                 "%s/muster-%s-%016" PRIx64,
                 g->base,
                 g->session,
                 uid);
    if (n < 0 || (size_t)n >= sizeof made.dir)
        return ms_error_set(
            err, -ENAMETOOLONG, "the path of its control group is too long");
    if (mkdir(made.dir, 0755) < 0)
        return ms_error_sys(err,
                            -errno,
                            "memory limits cannot be had here: cannot make '%s'",
                            made.dir);
    rc = set_limit(&made, memory_limit);
    if (rc < 0) {
        rmdir(made.dir);
        return ms_error_sys(err,
                            rc,
                            "cannot limit memory to %" PRIu64 " bytes in '%s'",
                            memory_limit,
                            made.dir);
    }
    *c = made;
    return 0;
}

long long ms_cgroup_kill_count(const struct ms_cgroup *c)
{
    return kills_of(c->dir, c->is_v2);
}

void ms_cgroup_kill(const struct ms_cgroup *c)
{
    if (c->dir[0])
        ms_cgdir_kill(c->dir);
}

int ms_cgroup_remove(struct ms_cgroup *c)
{
    if (c->dir[0] && rmdir(c->dir) < 0 && errno == EBUSY)
        return -EBUSY;
    c->dir[0] = 0;
    return 0;
}

/* ---- what others left ------------------------------------------------------------ */

/* "muster-<session>-<16 digits>" */
static bool session_of(const char *name, char *session, size_t room)
{
    const char *prefix = "muster-";
    size_t skip = strlen(prefix), len = strlen(name), tail = 17;

    if (len <= skip + tail || strncmp(name, prefix, skip) != 0 ||
        name[len - tail] != '-' || strspn(name + len - 16, "0123456789abcdef") != 16 ||
        len - skip - tail >= room)
        return false;
    memcpy(session, name + skip, len - skip - tail);
    session[len - skip - tail] = 0;
    return true;
}

static bool is_new(const char *dir)
{
    struct stat st;

    return stat(dir, &st) == 0 && time(NULL) - st.st_mtime < NEW_S;
}

static void sweep_one(const char *dir, int alive)
{
    if (alive > 0 || (alive < 0 && is_new(dir)))
        return;
    if (alive == 0)
        ms_cgdir_kill(dir);
    rmdir(dir);
}

void ms_cgroups_sweep(const struct ms_cgroups *g, int (*is_alive)(const char *session))
{
    DIR *d = g->base[0] ? opendir(g->base) : NULL;
    struct dirent *e;

    if (!d)
        return;
    while ((e = readdir(d))) {
        char session[MS_NAME_MAX + 1], dir[MS_CGROUP_PATH_MAX + sizeof e->d_name];

        if (!session_of(e->d_name, session, sizeof session) ||
            !strcmp(session, g->session))
            continue;
        snprintf(dir, sizeof dir, "%s/%s", g->base, e->d_name);
        sweep_one(dir, is_alive(session));
    }
    closedir(d);
}
