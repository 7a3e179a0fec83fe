/* session.c - sessions: made, swept, removed and listed */
#include "io/session/session.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/name.h"
#include "io/session/log_limits.h"
#include "io/session/root.h"
#include "io/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

enum {
    NAME_TRIES = 999,       /* sessions that one process can begin in one second */
    UNFINISHED_KEPT_S = 60, /* what begins with a dot and is older was left behind */
    PATH_ROOM = 4096,
};

int ms_session_root(char out[MS_SESSION_DIR_MAX], struct ms_error *err)
{
    MS_CLEANUP(ms_cleanup_fd) int fd = ms_session_root_open(out, err);

    return fd < 0 ? fd : 0;
}

/* ---- sweep ----------------------------------------------------------------------- */

static int sweep_unfinished(void *arg, int root, const char *name)
{
    MS_CLEANUP(ms_cleanup_fd) int dir = -1;
    MS_CLEANUP(ms_cleanup_fd) int lock = -1;
    struct stat st;

    (void)arg;
    if (strncmp(name, MS_SESSION_NEW, strlen(MS_SESSION_NEW)) != 0 &&
        strncmp(name, MS_SESSION_LATEST, strlen(MS_SESSION_LATEST)) != 0)
        return 0;
    if (fstatat(root, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
        st.st_mtime > time(NULL) - UNFINISHED_KEPT_S)
        return 0;
    dir = ms_tree_open(root, name);
    if (dir >= 0)
        lock = ms_session_lock(dir, 0, LOCK_EX);
    if (lock != -EWOULDBLOCK)
        ms_tree_remove(root, name);
    return 0;
}

/* Nobody can come to hold a lock that was free: a session appears with it held. So what
 * is taken here is dead, and another sweeper passes by. */
static void sweep_session(int root, const char *name, struct ms_log_limits *kept)
{
    MS_CLEANUP(ms_cleanup_fd) int dir = ms_tree_open(root, name);
    MS_CLEANUP(ms_cleanup_fd)
    int lock = dir < 0 ? dir : ms_session_lock(dir, 0, LOCK_EX);

    if (dir < 0 || (lock < 0 && lock != -ENOENT))
        return;
    ms_session_clear(root, dir, name);
    if (!ms_log_limits_take_dir(kept, dir)) { /* another may have its name by now */
        ms_tree_remove(dir, "logs");
        unlinkat(root, name, AT_REMOVEDIR);
    }
}

static void sweep(int root)
{
    MS_CLEANUP(ms_session_names_finish) struct ms_session_names n;
    struct ms_log_limits kept;

    ms_log_limits_init(&kept);
    ms_tree_each(root, sweep_unfinished, NULL);
    if (ms_session_names_init(&n, root) < 0)
        return;
    for (size_t i = 0; i < n.count; i++)
        sweep_session(root, n.at[i], &kept);
}

/* ---- create ---------------------------------------------------------------------- */

/* Everything below the folder; the lock's descriptor. */
static int fill_folder(int dir, struct ms_session *s, const uint8_t *given)
{
    MS_CLEANUP(ms_cleanup_fd)
    int lock = ms_session_lock(dir, O_CREAT | O_EXCL, LOCK_EX);
    int rc = lock < 0 ? lock : 0;

    if (given)
        memcpy(s->secret, given, sizeof s->secret);
    else if (rc == 0)
        rc = ms_random_bytes(s->secret, sizeof s->secret);
    if (rc == 0)
        rc = ms_session_write_secret(dir, s->secret);
    if (rc == 0)
        rc = ms_session_write_driver(dir, s->driver_pid);
    if (rc == 0 && (mkdirat(dir, "logs", 0700) < 0 || mkdirat(dir, "w", 0700) < 0))
        rc = -errno;
    return rc < 0 ? rc : MS_TAKE_FD(lock);
}

static int rename_new(int root, const char *from, const char *to)
{
    if (renameat2(root, from, root, to, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -errno;
    /* a file system without that flag: a session that is there is never empty */
    if (renameat(root, from, root, to) == 0)
        return 0;
    return errno == ENOTEMPTY ? -EEXIST : -errno;
}

/* Give it its name; from now on others see it. */
static int publish(int root, const char *temporary, struct ms_session *s)
{
    time_t now = time(NULL);
    struct tm tm;
    char at[32];
    int rc = -EEXIST;

    gmtime_r(&now, &tm);
    strftime(at, sizeof at, "%Y%m%d-%H%M%S", &tm);
    for (int i = 1; i <= NAME_TRIES && rc == -EEXIST; i++) {
        snprintf(s->name, sizeof s->name, "%s-%d", at, (int)s->driver_pid);
        if (i > 1)
            snprintf(s->name, sizeof s->name, "%s-%d-%d", at, (int)s->driver_pid, i);
        rc = rename_new(root, temporary, s->name);
    }
    return rc;
}

static int create_in(int root, struct ms_session *s, const uint8_t *secret)
{
    MS_CLEANUP(ms_cleanup_fd) int dir = -1;
    MS_CLEANUP(ms_cleanup_fd) int lock = -1;
    char temporary[32];
    int rc;

    snprintf(temporary,
             sizeof temporary,
             MS_SESSION_NEW "%016llx",
             (unsigned long long)ms_random_id());
    if (mkdirat(root, temporary, 0700) < 0)
        return -errno;
    dir = ms_tree_open(root, temporary);
    lock = dir < 0 ? dir : fill_folder(dir, s, secret);
    rc = lock < 0 ? lock : publish(root, temporary, s);
    if (rc < 0) {
        ms_tree_remove(root, temporary);
        return rc;
    }
    return MS_TAKE_FD(lock);
}

int ms_session_create(struct ms_session *s,
                      const uint8_t *secret,
                      int *lock_fd,
                      struct ms_error *err)
{
    struct ms_session made = {.driver_pid = getpid(), .alive = true};
    char path[MS_SESSION_DIR_MAX];
    MS_CLEANUP(ms_cleanup_fd) int root = ms_session_root_open(path, err);
    int lock;

    if (root < 0)
        return root;
    sweep(root);
    lock = create_in(root, &made, secret);
    if (lock < 0)
        return ms_error_sys(err, lock, "cannot make a session in '%s'", path);
    ms_session_point_latest(root);
    snprintf(made.dir, sizeof made.dir, "%.43s/%.27s", path, made.name);
    *s = made;
    *lock_fd = lock;
    return 0;
}

/* ---- remove ---------------------------------------------------------------------- */

int ms_session_remove(const char *dir)
{
    MS_CLEANUP(ms_cleanup_fd) int root = -1;
    MS_CLEANUP(ms_cleanup_fd) int fd = -1;
    char parent[PATH_ROOM];
    const char *slash = strrchr(dir, '/');
    int rc = 0;

    if (!slash || slash == dir || (size_t)(slash - dir) >= sizeof parent ||
        !ms_session_name_is_ours(slash + 1))
        return -EINVAL; /* nothing that we ever made */
    snprintf(parent, sizeof parent, "%.*s", (int)(slash - dir), dir);
    root = ms_tree_open(AT_FDCWD, parent);
    if (root == -ENOENT)
        return 0;
    if (root < 0)
        return root;
    fd = ms_tree_open(root, slash + 1);
    if (fd >= 0)
        rc = ms_session_clear(root, fd, slash + 1);
    else if (fd != -ENOENT)
        rc = fd;
    ms_session_point_latest(root);
    return rc;
}

/* ---- list ------------------------------------------------------------------------ */

/* False if it has gone meanwhile or is none. */
static bool look_at(int root, const char *path, const char *name, struct ms_session *s)
{
    MS_CLEANUP(ms_cleanup_fd) int dir = ms_tree_open(root, name);
    MS_CLEANUP(ms_cleanup_fd)
    int lock = dir < 0 ? -1 : ms_session_lock(dir, 0, LOCK_SH);
    char secret[2 * MS_SESSION_SECRET_SIZE + 2], pid[16];

    if (dir < 0)
        return false;
    *s = (struct ms_session){.alive = lock == -EWOULDBLOCK};
    snprintf(s->name, sizeof s->name, "%s", name);
    if (snprintf(s->dir, sizeof s->dir, "%s/%s", path, name) >= (int)sizeof s->dir)
        return false;
    if (ms_tree_read(dir, "secret", secret, sizeof secret) > 0)
        (void)ms_unhex(secret, s->secret, sizeof s->secret);
    explicit_bzero(secret, sizeof secret);
    if (ms_tree_read(dir, "driver", pid, sizeof pid) > 0)
        s->driver_pid = (pid_t)strtol(pid, NULL, 10);
    s->is_daemon = !ms_session_name_is_ours(name) ||
                   faccessat(dir, MS_SESSION_DAEMON, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
    return true;
}

struct listed {
    const char *path;
    struct ms_session *at;
    size_t count, room;
};

static int add_listed(void *arg, int root, const char *name)
{
    struct listed *n = arg;

    if (ms_array_reserve(&n->at, &n->room, n->count + 1, sizeof *n->at) < 0)
        return -ENOMEM;
    if (look_at(root, n->path, name, &n->at[n->count]))
        n->count++;
    return 0;
}

static int add_named(void *arg, int root, const char *name)
{
    return ms_session_is_named(root, name) ? add_listed(arg, root, name) : 0;
}

int ms_session_list(struct ms_session **out, struct ms_error *err)
{
    MS_CLEANUP(ms_session_names_finish) struct ms_session_names n = {0};
    char path[MS_SESSION_DIR_MAX];
    MS_CLEANUP(ms_cleanup_fd) int root = ms_session_root_open(path, err);
    struct listed all = {.path = path};
    int rc;

    if (root < 0)
        return root;
    rc = ms_session_names_init(&n, root);
    for (size_t i = 0; rc == 0 && i < n.count; i++)
        rc = add_listed(&all, root, n.at[i]);
    if (rc == 0)
        rc = ms_tree_each(root, add_named, &all);
    if (rc < 0) {
        free(all.at);
        return ms_error_sys(err, rc, "cannot read '%s'", path);
    }
    *out = all.at;
    return (int)all.count;
}
