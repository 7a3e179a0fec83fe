/* program.c - where the muster program is */
#include "base/cleanup.h"
#include "capi/capi.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#ifndef MS_BINDIR
#define MS_BINDIR "/usr/local/bin"
#endif

static bool can_run(const char *path)
{
    return path && access(path, X_OK) == 0;
}

/* <prefix>/bin/muster, where this library is <prefix>/lib*.../libmuster.so: it may have
 * been moved since it was built. */
static char *beside_library(void)
{
    Dl_info info;
    char *path = NULL;

    if (dladdr((void *)(uintptr_t)muster_init, &info) == 0 || !info.dli_fname)
        return NULL;
    for (const char *end = strrchr(info.dli_fname, '/'); end && end > info.dli_fname;
         end = memrchr(info.dli_fname, '/', (size_t)(end - info.dli_fname))) {
        free(path);
        if (asprintf(
                &path, "%.*s/bin/muster", (int)(end - info.dli_fname), info.dli_fname) <
            0)
            return NULL;
        if (can_run(path))
            return path;
    }
    free(path);
    return NULL;
}

static char *in_path(void)
{
    MS_CLEANUP(ms_cleanup_free) char *folders = NULL;
    const char *list = getenv("PATH");
    char *rest, *folder, *path;

    folders = rest = list ? strdup(list) : NULL;
    while ((folder = strsep(&rest, ":"))) {
        if (asprintf(&path, "%s/muster", *folder ? folder : ".") < 0)
            return NULL;
        if (can_run(path))
            return path;
        free(path);
    }
    return NULL;
}

char *ms_capi_find_program(const char *told, struct muster_error *err)
{
    char *found;

    if (!told)
        told = getenv("MUSTER_BIN");
    if (told) {
        found = can_run(told) ? strdup(told) : NULL;
        if (!found)
            muster_error_set(err, -ENOENT, NULL, "'%s' cannot be executed", told);
        return found;
    }
    found = beside_library();
    if (!found && can_run(MS_BINDIR "/muster"))
        found = strdup(MS_BINDIR "/muster");
    if (!found)
        found = in_path();
    if (!found)
        muster_error_set(
            err,
            -ENOENT,
            NULL,
            "the muster program was not found beside its library, in %s or "
            "in PATH: name it in MUSTER_BIN",
            MS_BINDIR);
    return found;
}
