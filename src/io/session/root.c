/* root.c - the folder of all sessions: its checks, names, locks and `latest` */
#include "io/session/root.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/name.h"
#include "io/tree.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

/* "/20261115-203011-4194304-999": what a session adds to the root's path. */
enum { BELOW_ROOT_MAX = 1 + 15 + 1 + 7 + 4 };

/* What separates addresses in a list (addr.h). */
#define NOT_IN_ADDRESSES " ,\t\n\r"

/* How often to look again whether `latest` still is the latest. */
enum { LATEST_TRIES = 4 };

static int root_path(char out[MS_SESSION_DIR_MAX], struct ms_error *err)
{
    const char *home = getenv("MUSTER_HOME");
    char path[4096];
    size_t len;

    if (home && home[0] && home[0] != '/')
        return ms_error_set(err, -EINVAL, "MUSTER_HOME='%s' is not absolute", home);
    if (home && home[0])
        snprintf(path, sizeof path, "%s", home);
    else
        snprintf(path, sizeof path, "/tmp/muster-%u", (unsigned)geteuid());
    if (strpbrk(path, NOT_IN_ADDRESSES))
        return ms_error_set(err,
                            -EINVAL,
                            "MUSTER_HOME='%.100s' has a space or a comma in it, which "
                            "addresses of sockets cannot have",
                            path);
    len = strlen(path);
    while (len > 1 && path[len - 1] == '/')
        path[--len] = 0;
    if (len + BELOW_ROOT_MAX >= MS_SESSION_DIR_MAX)
        return ms_error_set(
            err,
            -ENAMETOOLONG,
            "MUSTER_HOME='%.100s' has %zu characters; more than %d leave "
            "no room for the names of sockets",
            path,
            len,
            MS_SESSION_DIR_MAX - BELOW_ROOT_MAX - 1);
    memcpy(out, path, len + 1);
    return 0;
}

static int root_check(int fd, const char *path, struct ms_error *err)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return ms_error_sys(err, -errno, "cannot look at '%s'", path);
    if (st.st_uid != geteuid())
        return ms_error_set(err,
                            -EPERM,
                            "'%s' belongs to user %u, not to us (%u): set MUSTER_HOME",
                            path,
                            (unsigned)st.st_uid,
                            (unsigned)geteuid());
    if (st.st_mode & 077)
        return ms_error_set(err,
                            -EPERM,
                            "'%s' has mode %03o, others could read the secret: "
                            "chmod 700 it, or set MUSTER_HOME",
                            path,
                            (unsigned)st.st_mode & 0777);
    return 0;
}

int ms_session_root_open(char path[MS_SESSION_DIR_MAX], struct ms_error *err)
{
    MS_CLEANUP(ms_cleanup_fd) int fd = -1;
    char want[MS_SESSION_DIR_MAX];
    int rc = root_path(want, err);

    if (rc < 0)
        return rc;
    if (mkdir(want, 0700) < 0 && errno != EEXIST)
        return ms_error_sys(err, -errno, "cannot make '%s'", want);
    fd = open(want, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && (errno == ELOOP || errno == ENOTDIR))
        return ms_error_set(err, -EPERM, "'%s' is not a folder of ours", want);
    if (fd < 0)
        return ms_error_sys(err, -errno, "cannot open '%s'", want);
    rc = root_check(fd, want, err);
    if (rc < 0)
        return rc;
    memcpy(path, want, sizeof want);
    return MS_TAKE_FD(fd);
}

bool ms_session_name_is_ours(const char *name)
{
    static const char shape[] = "dddddddd-dddddd-d";

    if (strnlen(name, MS_NAME_MAX + 1) < sizeof shape - 1)
        return false;
    for (size_t i = 0; shape[i]; i++)
        if (shape[i] == 'd' ? !isdigit((unsigned char)name[i]) : name[i] != shape[i])
            return false;
    return ms_name_check(name, "session", NULL) == 0;
}

static int names_add(void *arg, int root, const char *name)
{
    struct ms_session_names *n = arg;

    (void)root;
    if (!ms_session_name_is_ours(name))
        return 0;
    if (ms_array_reserve(&n->at, &n->room, n->count + 1, sizeof *n->at) < 0)
        return -ENOMEM;
    snprintf(n->at[n->count++], sizeof *n->at, "%s", name);
    return 0;
}

/* By time; in the same second by pid and then by number, as numbers. */
static int newer_first(const void *a, const void *b)
{
    return strverscmp(b, a);
}

int ms_session_names_init(struct ms_session_names *n, int root)
{
    int rc;

    *n = (struct ms_session_names){0};
    rc = ms_tree_each(root, names_add, n);
    if (rc < 0) {
        ms_session_names_finish(n);
        return rc;
    }
    if (n->count)
        qsort(n->at, n->count, sizeof *n->at, newer_first);
    return 0;
}

void ms_session_names_finish(struct ms_session_names *n)
{
    free(n->at);
    *n = (struct ms_session_names){0};
}

int ms_session_lock(int dir, int flags, int how)
{
    MS_CLEANUP(ms_cleanup_fd)
    int fd =
        openat(dir, "lock", flags | O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);

    if (fd < 0 || flock(fd, how | LOCK_NB) < 0)
        return -errno;
    return MS_TAKE_FD(fd);
}

int ms_session_write_secret(int dir, const uint8_t secret[MS_SESSION_SECRET_SIZE])
{
    char text[2 * MS_SESSION_SECRET_SIZE + 1];
    int rc;

    ms_hex(secret, MS_SESSION_SECRET_SIZE, text);
    rc = ms_tree_write(dir, "secret", text, strlen(text));
    explicit_bzero(text, sizeof text);
    return rc;
}

int ms_session_write_driver(int dir, pid_t pid)
{
    static const char next[] = ".driver";
    char text[16];
    int rc;

    unlinkat(dir, next, 0);
    rc = ms_tree_write(
        dir, next, text, (size_t)snprintf(text, sizeof text, "%d", (int)pid));
    return rc == 0 && renameat(dir, next, dir, "driver") < 0 ? -errno : rc;
}

static int remove_entry(void *arg, int dir, const char *name)
{
    int *first = arg;
    bool stays = strcmp(name, "logs") == 0 || strcmp(name, "lock") == 0;
    int rc = stays ? 0 : ms_tree_remove(dir, name);

    if (rc < 0 && *first == 0)
        *first = rc;
    return 0; /* the others shall go all the same */
}

int ms_session_empty(int dir)
{
    int first = 0, rc = ms_tree_each(dir, remove_entry, &first);

    return rc < 0 ? rc : first;
}

int ms_session_clear(int root, int dir, const char *name)
{
    int rc = ms_session_empty(dir);

    unlinkat(dir, "logs", AT_REMOVEDIR); /* stays if there is something in it */
    if (rc == 0)
        rc = ms_tree_remove(dir, "lock");
    unlinkat(root, name, AT_REMOVEDIR);
    return rc;
}

static bool is_alive(int root, const char *name)
{
    MS_CLEANUP(ms_cleanup_fd) int dir = ms_tree_open(root, name);
    MS_CLEANUP(ms_cleanup_fd)
    int lock = dir < 0 ? -1 : ms_session_lock(dir, 0, LOCK_SH);

    return lock == -EWOULDBLOCK;
}

/* Empty if there is none. */
static void find_latest(int root, char out[MS_NAME_MAX + 1])
{
    MS_CLEANUP(ms_session_names_finish) struct ms_session_names n;

    out[0] = 0;
    if (ms_session_names_init(&n, root) < 0 || n.count == 0)
        return;
    memcpy(out, n.at[0], sizeof n.at[0]);
    for (size_t i = 0; i < n.count; i++)
        if (is_alive(root, n.at[i])) {
            memcpy(out, n.at[i], sizeof n.at[i]);
            return;
        }
}

void ms_session_point_latest(int root)
{
    char want[MS_NAME_MAX + 1], have[MS_NAME_MAX + 1], temporary[32];

    for (int i = 0; i < LATEST_TRIES; i++) {
        ssize_t len = readlinkat(root, "latest", have, sizeof have - 1);

        have[len > 0 ? len : 0] = 0;
        find_latest(root, want);
        if (strcmp(have, want) == 0)
            return;
        if (!want[0]) {
            unlinkat(root, "latest", 0);
            continue;
        }
        snprintf(temporary,
                 sizeof temporary,
                 MS_SESSION_LATEST "%016llx",
                 (unsigned long long)ms_random_id());
        if (symlinkat(want, root, temporary) < 0)
            return;
        if (renameat(root, temporary, root, "latest") < 0) {
            unlinkat(root, temporary, 0);
            return;
        }
    }
}
