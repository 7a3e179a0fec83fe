/* package.c - makes the package for a cluster, or takes it from the cache */
#include "orchestrator/ray/package/package.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "io/tree.h"
#include "orchestrator/ray/job/python.h"
#include "orchestrator/ray/package/files.h"
#include "orchestrator/ray/package/libraries.h"
#include "orchestrator/ray/package/zip.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define PREFIX "muster_"

/* ---- what it is made of ------------------------------------------------------------ */

/* The Python package that was installed with the program. */
static int find_python_dir(const struct ms_ray_site *site,
                           const char *program,
                           char out[PATH_MAX],
                           struct ms_error *err)
{
    static const char *const below[] = {"..", /* the program is in it: a wheel */
                                        "lib/python3*/site-packages",
                                        "lib/python3*/dist-packages",
                                        "lib/python3/dist-packages"};
    const char *slash = strrchr(program, '/');
    char pattern[PATH_MAX];
    glob_t found;

    if (site->python_dir) {
        snprintf(out, PATH_MAX, "%s", site->python_dir);
        return 0;
    }
    for (size_t i = 0; slash && i < MS_COUNT(below); i++) {
        int rc;

        snprintf(pattern,
                 sizeof pattern,
                 "%.*s/../%s/muster/ray_bridge.py",
                 (int)(slash - program),
                 program,
                 below[i]);
        rc = glob(pattern, 0, NULL, &found);
        if (rc == 0) {
            snprintf(out, PATH_MAX, "%s", found.gl_pathv[0]);
            *strrchr(out, '/') = 0;
        }
        globfree(&found);
        if (rc == 0)
            return 0;
    }
    return ms_error_set(err,
                        -ENOENT,
                        "the Python package `muster` is not installed beside %s, and a "
                        "Ray cluster needs it",
                        program);
}

/* The extension needs what the program does. */
static int
add_libraries(struct ms_package_files *c, const char *program, struct ms_error *err)
{
    MS_CLEANUP(ms_libraries_finish) struct ms_libraries needs = {0};
    char name[PATH_MAX];
    int rc = ms_libraries_add(&needs, program, err);

    for (size_t i = 0; i < needs.count && rc == 0; i++) {
        snprintf(name, sizeof name, "lib/%s", needs.at[i].name);
        rc = ms_package_files_add(c, name, needs.at[i].path, err);
    }
    return rc;
}

static int
add_job(struct ms_package_files *c, const char *const *files, struct ms_error *err)
{
    char name[PATH_MAX];
    int rc = 0;

    for (size_t i = 0; files && files[i] && files[i + 1] && rc == 0; i += 2) {
        struct stat st;

        snprintf(name, sizeof name, "job/%s", files[i]);
        rc = stat(files[i + 1], &st) == 0 && S_ISDIR(st.st_mode)
                 ? ms_package_files_add_tree(c, name, files[i + 1], err)
                 : ms_package_files_add(c, name, files[i + 1], err);
    }
    return rc;
}

/* The one module that `muster` needs: a plain Ray does not have it. Where it is not
 * beside `muster`, the Python of the cluster has to bring it. */
static int
add_pickler(struct ms_package_files *c, const char *python_dir, struct ms_error *err)
{
    char path[PATH_MAX];
    struct stat st;

    if (snprintf(path, sizeof path, "%s/../cloudpickle", python_dir) >= PATH_MAX)
        return ms_error_set(err, -ENAMETOOLONG, "%s: too long a path", python_dir);
    if (stat(path, &st) < 0 || !S_ISDIR(st.st_mode))
        return 0;
    return ms_package_files_add_tree(c, "cloudpickle", path, err);
}

static int collect(struct ms_package_files *c,
                   const struct ms_ray_site *site,
                   const char *const *files,
                   struct ms_error *err)
{
    char program[PATH_MAX], python_dir[PATH_MAX];
    int rc = 0;

    if (site->muster)
        snprintf(program, sizeof program, "%s", site->muster);
    else
        rc = ms_ray_find_self(program, err);
    if (rc == 0)
        rc = find_python_dir(site, program, python_dir, err);
    if (rc == 0)
        rc = ms_package_files_add(c, "bin/muster", program, err);
    if (rc == 0)
        rc = ms_package_files_add_tree(c, "muster", python_dir, err);
    if (rc == 0)
        rc = add_pickler(c, python_dir, err);
    if (rc == 0)
        rc = add_libraries(c, program, err);
    return rc < 0 ? rc : add_job(c, files, err);
}

/* ---- the cache --------------------------------------------------------------------- */

/* The folder of packages, made if it is not there; a descriptor or -1: there is none, and
 * nothing is kept. */
static int open_cache(const struct ms_ray_site *site)
{
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char path[PATH_MAX];

    if (site->cache_dir)
        snprintf(path, sizeof path, "%s", site->cache_dir);
    else if (xdg && xdg[0] == '/')
        snprintf(path, sizeof path, "%s/muster", xdg);
    else if (home && home[0] == '/')
        snprintf(path, sizeof path, "%s/.cache/muster", home);
    else
        return -1;
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0755);
        *slash = '/';
    }
    mkdir(path, 0755);
    strncat(path, "/packages", sizeof path - strlen(path) - 1);
    mkdir(path, 0700);
    return ms_tree_open(AT_FDCWD, path);
}

static bool read_kept(int dir, struct ms_package *p)
{
    MS_CLEANUP(ms_cleanup_fd) int fd = openat(dir, p->name, O_RDONLY | O_CLOEXEC);

    if (fd < 0 || ms_package_files_read(fd, MS_PACKAGE_MAX, &p->data, &p->len) < 0)
        return false;
    futimens(fd, NULL); /* it is in use */
    return true;
}

struct oldest {
    char name[NAME_MAX + 1];
    struct timespec at;
    size_t count;
};

static int look_oldest(void *arg, int dir, const char *name)
{
    struct oldest *o = arg;
    struct stat st;

    if (strncmp(name, PREFIX, strlen(PREFIX)) != 0 ||
        fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0;
    o->count++;
    if (!o->name[0] || st.st_mtim.tv_sec < o->at.tv_sec ||
        (st.st_mtim.tv_sec == o->at.tv_sec && st.st_mtim.tv_nsec < o->at.tv_nsec)) {
        snprintf(o->name, sizeof o->name, "%s", name);
        o->at = st.st_mtim;
    }
    return 0;
}

/* Write it under another name and then rename: who reads it finds it whole. */
static void keep(int dir, const struct ms_package *p)
{
    char part[MS_PACKAGE_NAME_MAX + 32];
    struct oldest oldest = {0};

    snprintf(
        part, sizeof part, ".%s.%d.%ld", p->name, (int)getpid(), (long)ms_now_ns());
    if (ms_tree_write(dir, part, p->data, p->len) < 0 ||
        renameat(dir, part, dir, p->name) < 0) {
        unlinkat(dir, part, 0);
        return;
    }
    ms_tree_each(dir, look_oldest, &oldest);
    if (oldest.count > MS_PACKAGES_KEPT && strcmp(oldest.name, p->name) != 0)
        unlinkat(dir, oldest.name, 0);
}

/* ---- making it --------------------------------------------------------------------- */

static int
pack(struct ms_package *p, const struct ms_package_files *c, struct ms_error *err)
{
    struct ms_zip zip;
    int rc = 0;

    ms_zip_init(&zip);
    for (size_t i = 0; i < c->count && rc == 0; i++)
        rc = ms_zip_add(&zip,
                        c->files[i].name,
                        c->files[i].mode,
                        c->files[i].data,
                        c->files[i].len);
    if (rc == 0)
        rc = ms_zip_end(&zip);
    if (rc == 0 && zip.out.len > MS_PACKAGE_MAX)
        rc = -EFBIG;
    if (rc == 0) {
        p->len = zip.out.len;
        p->data = MS_TAKE(zip.out.data);
    } else if (rc == -EFBIG) {
        ms_error_set(err,
                     rc,
                     "the package is bigger than the %zu MiB that Ray takes: are there "
                     "big files in what goes with the job?",
                     MS_PACKAGE_MAX >> 20);
    } else {
        ms_error_sys(err, rc, "cannot pack");
    }
    ms_zip_finish(&zip);
    return rc;
}

int ms_package_make(struct ms_package *p,
                    const struct ms_ray_site *site,
                    const char *const *files,
                    struct ms_error *err)
{
    MS_CLEANUP(ms_package_files_finish) struct ms_package_files c = {0};
    MS_CLEANUP(ms_cleanup_fd) int dir = -1;
    char hash[33];
    int rc = collect(&c, site, files, err);

    *p = (struct ms_package){0};
    if (rc < 0)
        return rc;
    if (ms_package_files_hash(&c, hash) < 0)
        return ms_error_set(err, -ENOMEM, "out of memory");
    snprintf(p->name, sizeof p->name, PREFIX "%s.zip", hash);
    dir = open_cache(site);
    if (dir >= 0 && read_kept(dir, p))
        return 0;
    rc = pack(p, &c, err);
    if (rc == 0 && dir >= 0)
        keep(dir, p);
    return rc;
}

void ms_package_finish(struct ms_package *p)
{
    free(p->data);
    *p = (struct ms_package){0};
}
