#include "orchestrator/ray/needs.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/env.h"
#include "io/spawn.h"

#include <errno.h>
#include <fcntl.h>
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

bool ms_need_is_system(const char *name)
{
    const char *slash = strrchr(name, '/');

    name = slash ? slash + 1 : name;
    for (size_t i = 0; i < MS_COUNT(system_libraries); i++)
        if (strncmp(name, system_libraries[i], strlen(system_libraries[i])) == 0)
            return true;
    return false;
}

static bool has(const struct ms_needs *n, const char *name)
{
    for (size_t i = 0; i < n->count; i++)
        if (strcmp(n->at[i].name, name) == 0)
            return true;
    return false;
}

static int add(struct ms_needs *n, const char *name, const char *path)
{
    struct ms_need *need = &n->at[n->count];

    if (n->count == MS_NEEDS_MAX)
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
int ms_needs_read(struct ms_needs *n, const char *line, struct ms_error *err)
{
    char name[256], path[1024];
    int rc;

    if (strstr(line, "=> not found") && sscanf(line, " %255s", name) == 1)
        return ms_error_set(err, -ENOENT, "the library %s is not found", name);
    if (sscanf(line, " %255s => %1023s", name, path) != 2) {
        if (!n->loader && sscanf(line, " %1023s (", path) == 1 && path[0] == '/' &&
            strstr(path, "/ld-") && !(n->loader = strdup(path)))
            return ms_error_set(err, -ENOMEM, "out of memory");
        return 0;
    }
    if (path[0] != '/' || ms_need_is_system(name) || has(n, name))
        return 0;
    rc = add(n, name, path);
    return rc < 0 ? ms_error_sys(err, rc, "the libraries") : rc;
}

/* Until it ends, or that time. */
static int read_all(int fd, char *out, size_t room)
{
    size_t len = 0;
    ssize_t got = 1;

    while (got > 0 && len < room - 1) {
        got = read(fd, out + len, room - 1 - len);
        len += got > 0 ? (size_t)got : 0;
    }
    out[len] = 0;
    return got < 0 ? -errno : 0;
}

static int run(const char *const *argv, char *out, size_t room, struct ms_error *err)
{
    struct ms_spawn s = {.path = argv[0], .argv = argv};
    struct ms_process p = {.pidfd = -1};
    struct ms_process_end end = {0};
    struct ms_spawn_fd fds[] = {{-1, STDOUT_FILENO}};
    struct ms_env env;
    int ends[2], rc;

    if (pipe2(ends, O_CLOEXEC) < 0)
        return ms_error_sys(err, -errno, "cannot make a pipe");
    ms_env_init(&env);
    rc = ms_env_set_own(&env);
    if (rc == 0)
        rc = ms_env_set(&env, "LD_TRACE_LOADED_OBJECTS=1");
    fds[0].from = ends[1];
    s.env = (const char *const *)env.entries;
    s.fds = fds;
    s.fd_count = 1;
    rc = rc < 0 ? ms_error_sys(err, rc, "%s", argv[0]) : ms_spawn(&s, &p, err);
    close(ends[1]);
    if (rc == 0) {
        read_all(ends[0], out, room);
        if (ms_process_wait(p.pidfd, ms_now_ns() + ASK_NS, &end) < 0)
            ms_process_signal(p.pidfd, 9);
        ms_fd_close(&p.pidfd);
    }
    close(ends[0]);
    ms_env_finish(&env);
    return rc;
}

int ms_needs_add(struct ms_needs *n, const char *path, struct ms_error *err)
{
    const char *program[] = {path, NULL};
    const char *library[] = {n->loader, path, NULL};
    char *list = malloc(LIST_MAX);
    char *save = NULL;
    int rc;

    if (!list)
        return ms_error_set(err, -ENOMEM, "out of memory");
    rc = run(n->loader ? library : program, list, LIST_MAX, err);
    for (char *line = strtok_r(list, "\n", &save); rc >= 0 && line;
         line = strtok_r(NULL, "\n", &save))
        rc = ms_needs_read(n, line, err);
    free(list);
    if (rc < 0)
        ms_error_wrap(err, "%s", path);
    return rc < 0 ? rc : 0;
}

void ms_needs_finish(struct ms_needs *n)
{
    for (size_t i = 0; i < n->count; i++) {
        free(n->at[i].name);
        free(n->at[i].path);
    }
    free(n->loader);
    *n = (struct ms_needs){0};
}
