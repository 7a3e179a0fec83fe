/* jobs_elsewhere.c - jobs of this user whose head is on other machines */
#include "session/jobs_elsewhere.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/name.h"
#include "io/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FOLDER ".elsewhere" /* in that of sessions */

enum {
    DIGITS = 2 * MS_SESSION_SECRET_SIZE,
    RECORD_MAX = MS_JOBS_ADDRESS_MAX + DIGITS + MS_ELSEWHERE_TEXT_MAX + 4,
};

/* A descriptor, or a negative errno. */
static int open_folder(bool make, struct ms_error *err)
{
    char root[MS_SESSION_DIR_MAX], path[MS_SESSION_DIR_MAX + sizeof FOLDER + 1];
    int rc = ms_session_root(root, err);

    if (rc < 0)
        return rc;
    snprintf(path, sizeof path, "%s/" FOLDER, root);
    if (make && mkdir(path, 0700) < 0 && errno != EEXIST)
        return ms_error_sys(err, -errno, "cannot make '%s'", path);
    rc = ms_tree_open(AT_FDCWD, path);
    return rc < 0 && rc != -ENOENT ? ms_error_sys(err, rc, "cannot open '%s'", path)
                                   : rc;
}

int ms_jobs_elsewhere_add(const struct ms_job_elsewhere *e, struct ms_error *err)
{
    MS_CLEANUP(ms_cleanup_fd) int dir = open_folder(true, err);
    char digits[DIGITS + 1], text[RECORD_MAX];
    int len, rc;

    if (dir < 0)
        return dir;
    ms_hex(e->head.secret, sizeof e->head.secret, digits);
    len =
        snprintf(text, sizeof text, "%s\n%s\n%s\n", e->head.address, digits, e->where);
    rc = ms_tree_write(dir, e->job, text, (size_t)len);
    explicit_bzero(text, sizeof text);
    explicit_bzero(digits, sizeof digits);
    return rc < 0 ? ms_error_sys(err, rc, "cannot note where job '%s' is", e->job) : 0;
}

/* The next line; NULL: there is none. */
static char *take_line(char **text)
{
    char *line = *text, *end = strchr(line, '\n');

    if (!end)
        return NULL;
    *end = 0;
    *text = end + 1;
    return line;
}

static int read_record(int dir, const char *job, struct ms_job_elsewhere *out)
{
    char text[RECORD_MAX], *at = text, *address, *digits, *where;
    int rc = ms_tree_read(dir, job, text, sizeof text);

    if (rc < 0)
        return rc;
    address = take_line(&at);
    digits = address ? take_line(&at) : NULL;
    where = digits ? take_line(&at) : NULL;
    rc = !where || strlen(address) >= sizeof out->head.address ||
                 strlen(where) >= sizeof out->where || strlen(job) > MS_NAME_MAX ||
                 ms_unhex(digits, out->head.secret, sizeof out->head.secret) < 0
             ? -EBADMSG
             : 0;
    if (rc == 0) {
        strcpy(out->job, job);
        strcpy(out->head.address, address);
        strcpy(out->where, where);
        snprintf(out->head.who, sizeof out->head.who, "the head in %s", where);
    }
    explicit_bzero(text, sizeof text);
    return rc;
}

int ms_jobs_elsewhere_find(const char *job, struct ms_job_elsewhere *out)
{
    MS_CLEANUP(ms_cleanup_fd) int dir = -1;

    if (ms_name_check(job, "job", NULL) < 0)
        return -ENOENT;
    dir = open_folder(false, NULL);
    return dir < 0 || read_record(dir, job, out) < 0 ? -ENOENT : 0;
}

void ms_jobs_elsewhere_remove(const char *job)
{
    MS_CLEANUP(ms_cleanup_fd) int dir = open_folder(false, NULL);

    if (dir >= 0 && ms_name_check(job, "job", NULL) == 0)
        ms_tree_remove(dir, job);
}

/* ---- all --------------------------------------------------------------------------- */

struct listing {
    struct ms_job_elsewhere *all;
    size_t count, room;
};

/* What cannot be read is not ours. */
static int add(void *arg, int dir, const char *name)
{
    struct listing *l = arg;

    if (ms_array_reserve(&l->all, &l->room, l->count + 1, sizeof *l->all) < 0)
        return -ENOMEM;
    l->count += read_record(dir, name, &l->all[l->count]) == 0;
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct ms_job_elsewhere *)a)->job,
                  ((const struct ms_job_elsewhere *)b)->job);
}

int ms_jobs_elsewhere_list(struct ms_job_elsewhere **out, struct ms_error *err)
{
    MS_CLEANUP(ms_cleanup_fd) int dir = open_folder(false, err);
    struct listing l = {0};
    int rc = dir < 0 ? dir : ms_tree_each(dir, add, &l);

    *out = l.all;
    if (rc == -ENOENT)
        return 0;
    if (rc < 0) {
        free(l.all);
        *out = NULL;
        return rc == -ENOMEM ? ms_error_set(err, rc, "out of memory") : rc;
    }
    if (l.count)
        qsort(l.all, l.count, sizeof *l.all, by_name);
    return (int)l.count;
}
