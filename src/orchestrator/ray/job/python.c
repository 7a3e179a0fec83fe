/* python.c - finds the Python of a Ray, and our scripts that run with it */
#include "orchestrator/ray/job/python.h"

#include "base/cleanup.h"
#include "io/session/program.h"

#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <string.h>

int ms_ray_python_of(const char *words, size_t len, char out[PATH_MAX])
{
    static const char mark[] = "--python_worker_command=";

    for (size_t at = 0; at < len; at += strnlen(words + at, len - at) + 1) {
        const char *python = words + at + strlen(mark);
        size_t n;

        if (strncmp(words + at, mark, strlen(mark)) != 0)
            continue;
        n = strcspn(python, " ");
        if (n == 0 || n >= PATH_MAX || python[0] != '/')
            return -ENOENT;
        memcpy(out, python, n);
        out[n] = 0;
        return 0;
    }
    return -ENOENT;
}

static ssize_t read_proc(int pid, const char *file, char *out, size_t room)
{
    char path[64];
    MS_CLEANUP(ms_cleanup_file) FILE *f = NULL;
    size_t len;

    snprintf(path, sizeof path, "/proc/%d/%s", pid, file);
    f = fopen(path, "re");
    len = f ? fread(out, 1, room - 1, f) : 0;
    out[len] = 0;
    return (ssize_t)len;
}

static int parent_of(int pid)
{
    char stat[1024];
    const char *behind;
    int parent = 0;

    read_proc(pid, "stat", stat, sizeof stat);
    behind = strrchr(stat, ')');
    return behind && sscanf(behind, ") %*c %d", &parent) == 1 ? parent : 0;
}

/* The Python of a raylet that we are below of. */
static int python_above(char out[PATH_MAX])
{
    enum { COMMAND_MAX = 256 << 10, ANCESTORS_MAX = 64 };
    MS_CLEANUP(ms_cleanup_free) char *words = malloc(COMMAND_MAX);
    int rc = -ENOENT, pid = parent_of(getpid());

    for (int i = 0; words && rc < 0 && pid > 1 && i < ANCESTORS_MAX; i++) {
        ssize_t len = read_proc(pid, "cmdline", words, COMMAND_MAX);

        rc = ms_ray_python_of(words, (size_t)len, out);
        pid = parent_of(pid);
    }
    return rc;
}

/* python3 of VIRTUAL_ENV, of the path, or of where this program is installed. */
static int python_here(char out[PATH_MAX])
{
    const char *venv = getenv("VIRTUAL_ENV"), *path = getenv("PATH");

    if (venv && snprintf(out, PATH_MAX, "%s/bin/python3", venv) < PATH_MAX &&
        access(out, X_OK) == 0)
        return 0;
    while (path && *path) {
        int len = (int)strcspn(path, ":");

        if (snprintf(out, PATH_MAX, "%.*s/python3", len, path) < PATH_MAX &&
            access(out, X_OK) == 0)
            return 0;
        path += len + (path[len] == ':');
    }
    return ms_program_find_python(out);
}

int ms_ray_find_python(char out[PATH_MAX], struct ms_error *err)
{
    if (python_above(out) == 0 || python_here(out) == 0)
        return 0;
    return ms_error_set(err, -ENOENT, "there is no python3 to speak to Ray with");
}

int ms_ray_find_muster(const struct ms_ray_site *site,
                       char out[PATH_MAX],
                       struct ms_error *err)
{
    int rc = site->muster ? 0 : ms_program_find(out);

    if (site->muster)
        snprintf(out, PATH_MAX, "%s", site->muster);
    return rc < 0 ? ms_error_sys(err, rc, "cannot find this program") : 0;
}

int ms_ray_find_script(const struct ms_ray_site *site,
                       const char *name,
                       char out[PATH_MAX],
                       struct ms_error *err)
{
    /* in a package for a cluster, in a wheel, and as it is installed */
    static const char *const below[] = {"muster",
                                        "../muster",
                                        "lib/python3*/site-packages/muster",
                                        "lib/python3*/dist-packages/muster",
                                        "lib/python3/dist-packages/muster"};
    char program[PATH_MAX], pattern[PATH_MAX];
    const char *slash;
    int rc = -ENOENT;

    if (site->python_dir &&
        snprintf(out, PATH_MAX, "%s/%s", site->python_dir, name) < PATH_MAX &&
        access(out, R_OK) == 0)
        return 0;
    if (ms_ray_find_muster(site, program, err) < 0 || !(slash = strrchr(program, '/')))
        return -ENOENT;
    for (size_t i = 0; i < MS_COUNT(below) && rc != 0; i++) {
        glob_t found;

        snprintf(pattern,
                 sizeof pattern,
                 "%.*s/../%s/%s",
                 (int)(slash - program),
                 program,
                 below[i],
                 name);
        rc = glob(pattern, 0, NULL, &found);
        if (rc == 0)
            snprintf(out, PATH_MAX, "%s", found.gl_pathv[0]);
        globfree(&found);
    }
    return rc == 0 ? 0
                   : ms_error_set(err,
                                  -ENOENT,
                                  "the Python package `muster` is not installed beside "
                                  "%s, and a Ray cluster needs it",
                                  program);
}
