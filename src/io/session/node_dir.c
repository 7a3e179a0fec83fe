/* node_dir.c - the folder of an agent that has joined a head on another machine */
#include "io/session/node_dir.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/name.h"
#include "io/session/log_limits.h"
#include "io/session/root.h"
#include "io/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

enum { SPIN_PAGE_SIZE = 4096, TAG_LEN = 9 };

/* A sweeper holds a lock for a moment; an agent, for its life. */
#define TAKE_MAX_NS   (MS_NS_PER_S / 4)
#define TAKE_AGAIN_NS (5 * MS_NS_PER_MS)

#define SWEPT "~swept" /* ends the name of a folder that is being removed */

/* FNV-1a: a name, not a secret. */
static uint32_t hash(const char *a, const char *b)
{
    uint32_t h = UINT32_C(2166136261);

    for (; *a; a++)
        h = (h ^ (unsigned char)*a) * UINT32_C(16777619);
    h = (h ^ '@') * UINT32_C(16777619);
    for (; *b; b++)
        h = (h ^ (unsigned char)*b) * UINT32_C(16777619);
    return h;
}

static void make_name(char *out, size_t room, const char *session, const char *node)
{
    size_t half = (room - 1 - TAG_LEN - 1) / 2;
    int cut = (int)half;

    if (snprintf(out, room, "%s@%s", session, node) < (int)room)
        return;
    snprintf(out, room, "%.*s@%.*s~%08x", cut, session, cut, node, hash(session, node));
}

static int make_folder(int at, const char *name)
{
    return mkdirat(at, name, 0700) < 0 && errno != EEXIST ? -errno : 0;
}

static bool is_still_there(int root, const char *name, int dir)
{
    struct stat opened, named;

    return fstat(dir, &opened) == 0 &&
           fstatat(root, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

/* The lock's descriptor. -ENOENT: a sweeper has removed the folder meanwhile; -EWOULDBLOCK:
 * another process holds the lock. */
static int try_take(int root, const char *name, int *out)
{
    MS_CLEANUP(ms_cleanup_fd) int dir = -1;
    MS_CLEANUP(ms_cleanup_fd) int lock = -1;
    int rc = make_folder(root, name);

    dir = rc < 0 ? rc : ms_tree_open(root, name);
    lock = dir < 0 ? dir : ms_session_lock(dir, O_CREAT, LOCK_EX);
    if (lock < 0)
        return lock;
    if (!is_still_there(root, name, dir))
        return -ENOENT;
    *out = MS_TAKE_FD(dir);
    return MS_TAKE_FD(lock);
}

static int take(int root, const char *name, int *dir)
{
    const struct timespec nap = {.tv_nsec = TAKE_AGAIN_NS};
    int64_t deadline_ns = ms_now_ns() + TAKE_MAX_NS;
    int lock;

    while ((lock = try_take(root, name, dir)) == -ENOENT || lock == -EWOULDBLOCK) {
        if (ms_now_ns() > deadline_ns)
            break;
        nanosleep(&nap, NULL); /* flock(2) has no wait with a deadline */
    }
    return lock;
}

/* The lock's descriptor. */
static int fill(int root, const char *name)
{
    static const char zeros[SPIN_PAGE_SIZE];
    MS_CLEANUP(ms_cleanup_fd) int dir = -1;
    MS_CLEANUP(ms_cleanup_fd) int lock = take(root, name, &dir);
    int rc;

    if (lock < 0)
        return lock;
    ms_session_empty(dir);
    ms_log_limits_sweep(dir);
    rc = make_folder(dir, "logs");
    if (rc == 0)
        rc = make_folder(dir, "w");
    if (rc == 0)
        rc = ms_tree_write(dir, "spin", zeros, sizeof zeros);
    return rc < 0 ? rc : MS_TAKE_FD(lock);
}

/* ---- what ended jobs have left ---------------------------------------------------- */

/* Of a session that comes once, unlike one with a name that a person gave. */
static bool is_of_job(const char *name)
{
    char session[MS_NAME_MAX + 1];
    size_t len = strcspn(name, "@");

    return name[len] == '@' && ms_text_copy(session, sizeof session, name, len) == 0 &&
           ms_session_name_is_ours(session);
}

struct job_dirs {
    char (*at)[MS_SESSION_DIR_MAX];
    size_t count, room;
};

static int add_job(void *arg, int root, const char *name)
{
    struct job_dirs *d = arg;

    (void)root;
    if (!is_of_job(name))
        return 0;
    if (ms_array_reserve(&d->at, &d->room, d->count + 1, sizeof *d->at) < 0)
        return -ENOMEM;
    snprintf(d->at[d->count++], sizeof *d->at, "%s", name);
    return 0;
}

static int newer_first(const void *a, const void *b)
{
    return strverscmp(b, a);
}

/* The lock is held. An agent that waits for it sees that the folder no longer has its name,
 * and makes another one: so nothing is removed from under it. */
static void remove_job(int root, const char *name)
{
    char swept[MS_SESSION_DIR_MAX + sizeof SWEPT];
    size_t len = strlen(name), end = sizeof SWEPT - 1;

    if (len > end && strcmp(name + len - end, SWEPT) == 0) {
        ms_tree_remove(root, name); /* the process that began it was killed */
        return;
    }
    snprintf(swept, sizeof swept, "%s" SWEPT, name);
    if (renameat(root, name, root, swept) == 0)
        ms_tree_remove(root, swept);
}

static void sweep_job(int root, const char *name, struct ms_log_limits *kept)
{
    MS_CLEANUP(ms_cleanup_fd) int dir = ms_tree_open(root, name);
    MS_CLEANUP(ms_cleanup_fd)
    int lock = dir < 0 ? -1 : ms_session_lock(dir, 0, LOCK_EX);

    if (lock >= 0 && is_still_there(root, name, dir) &&
        !ms_log_limits_take_dir(kept, dir))
        remove_job(root, name);
}

static void sweep(int root)
{
    struct job_dirs d = {0};
    struct ms_log_limits kept;

    ms_log_limits_init(&kept);
    if (ms_tree_each(root, add_job, &d) == 0 && d.count) {
        qsort(d.at, d.count, sizeof *d.at, newer_first);
        for (size_t i = 0; i < d.count; i++)
            sweep_job(root, d.at[i], &kept);
    }
    free(d.at);
}

/* `out` has the root. */
static void
add_name(char out[MS_SESSION_DIR_MAX], const char *session, const char *node)
{
    char name[MS_SESSION_DIR_MAX];

    make_name(name, MS_SESSION_DIR_MAX - strlen(out) - 1, session, node);
    strcat(out, "/"); /* make_name has left room for all of it */
    strcat(out, name);
}

int ms_node_dir_path(const char *session,
                     const char *node,
                     char out[MS_SESSION_DIR_MAX],
                     struct ms_error *err)
{
    int rc = ms_name_check(session, "session", err);

    if (rc == 0)
        rc = ms_name_check(node, "node", err);
    if (rc == 0)
        rc = ms_session_root(out, err);
    if (rc == 0)
        add_name(out, session, node);
    return rc;
}

int ms_node_dir_open(struct ms_node_dir *d,
                     const char *session,
                     const char *node,
                     struct ms_error *err)
{
    struct ms_node_dir made = {0};
    char root_path[MS_SESSION_DIR_MAX];
    MS_CLEANUP(ms_cleanup_fd) int root = -1;
    int rc = ms_name_check(session, "session", err);

    if (rc == 0)
        rc = ms_name_check(node, "node", err);
    if (rc < 0)
        return rc;
    root = ms_session_root_open(root_path, err);
    if (root < 0)
        return root;
    sweep(root);
    strcpy(made.dir, root_path);
    add_name(made.dir, session, node);
    made.lock_fd = fill(root, strrchr(made.dir, '/') + 1);
    if (made.lock_fd == -EWOULDBLOCK)
        return ms_error_set(err,
                            -EBUSY,
                            "an agent of the name %s runs on this machine already: "
                            "give this one another with --node-name",
                            node);
    if (made.lock_fd < 0)
        return ms_error_sys(err, made.lock_fd, "cannot make '%s'", made.dir);
    *d = made;
    return 0;
}

void ms_node_dir_close(struct ms_node_dir *d)
{
    MS_CLEANUP(ms_cleanup_fd) int dir = -1;

    if (d->lock_fd < 0)
        return;
    dir = ms_tree_open(AT_FDCWD, d->dir);
    if (dir >= 0)
        ms_session_empty(dir);
    ms_fd_close(&d->lock_fd);
}

/* A folder of that session, by its name; a cut one may be of another that begins alike. */
static bool is_of(const char *name, const char *session)
{
    size_t len = strcspn(name, "@");

    return name[len] == '@' && strncmp(name, session, len) == 0 &&
           (!session[len] || strchr(name, '~'));
}

static int sweep_dead(void *arg, int root, const char *name)
{
    const char *session = arg;
    MS_CLEANUP(ms_cleanup_fd) int dir = -1;
    MS_CLEANUP(ms_cleanup_fd) int lock = -1;

    dir = is_of(name, session) ? ms_tree_open(root, name) : -1;
    lock = dir < 0 ? -1 : ms_session_lock(dir, 0, LOCK_EX);
    if (lock >= 0) /* nobody lives there */
        ms_session_empty(dir);
    return 0;
}

void ms_node_dirs_sweep(const char *session)
{
    char path[MS_SESSION_DIR_MAX];
    MS_CLEANUP(ms_cleanup_fd) int root = ms_session_root_open(path, NULL);

    if (root >= 0)
        ms_tree_each(root, sweep_dead, (void *)(uintptr_t)session);
}
