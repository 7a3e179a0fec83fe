/* named.c - sessions of daemon heads, with names that people give */
#include "base/cleanup.h"
#include "base/name.h"
#include "io/session/root.h"
#include "io/session/secret.h"
#include "io/session/session.h"
#include "io/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

static const char *const transient[] = {"head.sock", "address", "spin", "w"};

enum { LOOKERS_MAX = 1000 };

static int busy(int dir, const char *name, struct ms_error *err)
{
    char pid[16] = "";

    (void)ms_tree_read(dir, "driver", pid, sizeof pid);
    return ms_error_set(err,
                        -EBUSY,
                        "a head '%s' runs here already%s%s: stop it, or take another "
                        "name",
                        name,
                        pid[0] ? " as process " : "",
                        pid);
}

/* The file's, else the folder's, else a new one; the folder then has it. */
static int
set_secret(int dir, const char *secret_file, struct ms_session *s, struct ms_error *err)
{
    char text[2 * MS_SESSION_SECRET_SIZE + 2];
    int rc = 0, had = ms_tree_read(dir, "secret", text, sizeof text);

    if (secret_file)
        rc = ms_secret_read(secret_file, s->secret, err);
    else if (had > 0 && ms_unhex(text, s->secret, sizeof s->secret) < 0)
        rc = ms_error_set(err, -EINVAL, "'secret' in '%s' is none", s->dir);
    else if (had < 0)
        rc = ms_random_bytes(s->secret, sizeof s->secret);
    if (rc == 0 && (secret_file || had < 0)) {
        ms_tree_remove(dir, "secret");
        rc = ms_session_write_secret(dir, s->secret);
        if (rc < 0)
            ms_error_sys(err, rc, "cannot write '%s/secret'", s->dir);
    }
    explicit_bzero(text, sizeof text);
    return rc;
}

static int fill(int dir, struct ms_session *s)
{
    int rc;

    s->was_left = faccessat(dir, "driver", F_OK, AT_SYMLINK_NOFOLLOW) == 0;
    for (size_t i = 0; i < MS_COUNT(transient); i++)
        ms_tree_remove(dir, transient[i]);
    rc = ms_session_write_driver(dir, s->driver_pid); /* in the place of the last */
    if (rc == 0)
        rc = ms_tree_write(dir, MS_SESSION_DAEMON, "", 0);
    if (rc == -EEXIST)
        rc = 0;
    if (rc == 0 && mkdirat(dir, "logs", 0700) < 0 && errno != EEXIST)
        rc = -errno;
    return rc;
}

/* Who looks whether a session is alive takes its lock for a moment, shared: only a head has
 * it for itself. */
static int lock_named(int dir)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    int fd = -EWOULDBLOCK, shared = 0;

    for (int i = 0; i < LOOKERS_MAX && shared >= 0; i++) {
        fd = ms_session_lock(dir, O_CREAT, LOCK_EX);
        if (fd != -EWOULDBLOCK)
            return fd;
        shared = ms_session_lock(dir, 0, LOCK_SH);
        if (shared >= 0) {
            close(shared);
            nanosleep(&pause, NULL);
        }
    }
    return fd;
}

static int check_name(const char *name, struct ms_error *err)
{
    int rc = ms_name_check(name, "session", err);

    if (rc < 0)
        return rc;
    if (ms_session_name_is_ours(name) || strcmp(name, "latest") == 0)
        return ms_error_set(err, -EINVAL, "session name '%s' is reserved", name);
    if (strlen(name) > MS_SESSION_NAMED_MAX)
        return ms_error_set(err,
                            -ENAMETOOLONG,
                            "session name '%s': at most %d characters are possible",
                            name,
                            MS_SESSION_NAMED_MAX);
    return 0;
}

int ms_session_open(const char *name,
                    const char *secret_file,
                    struct ms_session *s,
                    int *lock_fd,
                    struct ms_error *err)
{
    struct ms_session made = {.driver_pid = getpid(), .alive = true, .is_daemon = true};
    char path[MS_SESSION_DIR_MAX];
    MS_CLEANUP(ms_cleanup_fd) int root = -1;
    MS_CLEANUP(ms_cleanup_fd) int dir = -1;
    MS_CLEANUP(ms_cleanup_fd) int lock = -1;
    int rc = check_name(name, err);

    if (rc < 0)
        return rc;
    root = ms_session_root_open(path, err);
    if (root < 0)
        return root;
    snprintf(made.name, sizeof made.name, "%s", name);
    snprintf(made.dir, sizeof made.dir, "%.43s/%.27s", path, name);
    if (mkdirat(root, name, 0700) < 0 && errno != EEXIST)
        return ms_error_sys(err, -errno, "cannot make '%s'", made.dir);
    dir = ms_tree_open(root, name);
    if (dir < 0)
        return ms_error_sys(err, dir, "cannot open '%s'", made.dir);
    lock = lock_named(dir);
    if (lock == -EWOULDBLOCK)
        return busy(dir, name, err);
    if (lock < 0)
        return ms_error_sys(err, lock, "cannot lock '%s'", made.dir);
    rc = set_secret(dir, secret_file, &made, err);
    if (rc < 0)
        return rc;
    rc = fill(dir, &made);
    if (rc < 0)
        return ms_error_sys(err, rc, "cannot fill '%s'", made.dir);
    ms_session_point_latest(root);
    *s = made;
    explicit_bzero(made.secret, sizeof made.secret);
    *lock_fd = MS_TAKE_FD(lock);
    return 0;
}

int ms_session_mark_daemon(struct ms_session *s, struct ms_error *err)
{
    MS_CLEANUP(ms_cleanup_fd) int dir = ms_tree_open(AT_FDCWD, s->dir);
    int rc = dir < 0 ? dir : ms_tree_write(dir, MS_SESSION_DAEMON, "", 0);

    if (rc < 0)
        return ms_error_sys(err, rc, "cannot write to '%s'", s->dir);
    s->is_daemon = true;
    return 0;
}

void ms_session_close(const struct ms_session *s)
{
    MS_CLEANUP(ms_cleanup_fd) int dir = ms_tree_open(AT_FDCWD, s->dir);

    if (dir >= 0)
        ms_tree_remove(dir, "driver");
    for (size_t i = 0; dir >= 0 && i < MS_COUNT(transient); i++)
        ms_tree_remove(dir, transient[i]);
}

bool ms_session_is_named(int root, const char *name)
{
    MS_CLEANUP(ms_cleanup_fd) int dir = -1;

    if (name[0] == '.' || ms_session_name_is_ours(name) ||
        ms_name_check(name, "session", NULL) < 0)
        return false;
    dir = ms_tree_open(root, name);
    return dir >= 0 &&
           faccessat(dir, MS_SESSION_DAEMON, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}
