/* libraries.c - the shared libraries that a program runs with, as its loader lists them */
#include "orchestrator/ray/package/libraries.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/env.h"
#include "io/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ASK_NS (30 * MS_NS_PER_S)

enum { LIST_MAX = 64 << 10 };

/* Of the C library, and of the compiler beside it. */
static const char *const system_libraries[] = {
    "linux-vdso.so",
    "linux-gate.so",
    "ld-linux",
    "ld-musl",
    "libc.so",
    "libm.so",
    "libdl.so",
    "libpthread.so",
    "librt.so",
    "libresolv.so",
    "libutil.so",
    "libanl.so",
    "libnsl.so",
    "libmvec.so",
    "libc_malloc_debug.so",
    "libthread_db.so",
    "libnss_",
    "libBrokenLocale.so",
};

static bool is_system(const char *name)
{
    for (size_t i = 0; i < MS_COUNT(system_libraries); i++)
        if (strncmp(name, system_libraries[i], strlen(system_libraries[i])) == 0)
            return true;
    return false;
}

static bool has(const struct ms_libraries *n, const char *name)
{
    for (size_t i = 0; i < n->count; i++)
        if (strcmp(n->at[i].name, name) == 0)
            return true;
    return false;
}

static int add(struct ms_libraries *n, const char *name, const char *path)
{
    struct ms_library *need = &n->at[n->count];

    if (n->count == MS_LIBRARIES_MAX)
        return -E2BIG;
    need->name = strdup(name);
    need->path = strdup(path);
    if (!need->name || !need->path) {
        free(need->name);
        free(need->path);
        return -ENOMEM;
    }
    n->count++;
    return 1;
}

/* "\tlibssl.so.3 => /lib/libssl.so.3 (0x7f...)", "\t/lib64/ld-linux-x86-64.so.2 (0x...)",
 * "\tlibx.so => not found" */
int ms_libraries_parse(struct ms_libraries *n, const char *line, struct ms_error *err)
{
    char name[256], path[1024];
    int rc;

    if (strstr(line, "=> not found") && sscanf(line, " %255s", name) == 1)
        return ms_error_set(err, -ENOENT, "the library %s is not found", name);
    if (sscanf(line, " %255s => %1023s", name, path) != 2 || path[0] != '/' ||
        is_system(name) || has(n, name))
        return 0;
    rc = add(n, name, path);
    return rc < 0 ? ms_error_sys(err, rc, "the libraries") : rc;
}

/* The loader's list, with a NUL behind it. */
static int run(const char *path, char *out, size_t room, struct ms_error *err)
{
    MS_CLEANUP(ms_env_finish) struct ms_env env = {0};
    MS_CLEANUP(ms_cleanup_fd) int ours = -1, theirs = -1;
    const char *argv[] = {path, NULL};
    struct ms_process p = {.pidfd = -1};
    struct ms_process_end end = {0};
    int ends[2], rc;

    if (pipe2(ends, O_CLOEXEC) < 0)
        return ms_error_sys(err, -errno, "cannot make a pipe");
    ours = ends[0];
    theirs = ends[1];
    if ((rc = ms_env_set_own(&env)) < 0 ||
        (rc = ms_env_set(&env, "LD_TRACE_LOADED_OBJECTS=1")) < 0)
        return ms_error_sys(err, rc, "%s", path);
    rc =
        ms_spawn(&(struct ms_spawn){.path = path,
                                    .argv = argv,
                                    .env = (const char *const *)env.entries,
                                    .fds = &(struct ms_spawn_fd){theirs, STDOUT_FILENO},
                                    .fd_count = 1},
                 &p,
                 err);
    ms_fd_close(&theirs);
    if (rc < 0)
        return rc;
    for (ssize_t got = 1; got > 0 && room > 1; room -= (size_t)got, out += got) {
        got = read(ours, out, room - 1);
        got = got < 0 ? 0 : got;
    }
    *out = 0;
    if (ms_process_wait(p.pidfd, ms_now_ns() + ASK_NS, &end) < 0)
        ms_process_signal(p.pidfd, SIGKILL);
    ms_fd_close(&p.pidfd);
    return 0;
}

int ms_libraries_add(struct ms_libraries *n, const char *program, struct ms_error *err)
{
    MS_CLEANUP(ms_cleanup_free) char *list = malloc(LIST_MAX);
    char *save = NULL;
    int rc = list ? run(program, list, LIST_MAX, err)
                  : ms_error_set(err, -ENOMEM, "out of memory");

    for (char *line = rc < 0 ? NULL : strtok_r(list, "\n", &save); rc >= 0 && line;
         line = strtok_r(NULL, "\n", &save))
        rc = ms_libraries_parse(n, line, err);
    if (rc < 0)
        ms_error_wrap(err, "%s", program);
    return rc < 0 ? rc : 0;
}

void ms_libraries_finish(struct ms_libraries *n)
{
    for (size_t i = 0; i < n->count; i++) {
        free(n->at[i].name);
        free(n->at[i].path);
    }
    *n = (struct ms_libraries){0};
}
