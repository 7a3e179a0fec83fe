/* library.c - where the library of a class is */
#include "worker/native/library.h"
#include "base/cleanup.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

char *ms_library_find(const char *worker_cls, const char *folder)
{
    const char *symbol = strrchr(worker_cls, ':');
    MS_CLEANUP(ms_cleanup_free) char *path = NULL;
    bool is_full = *worker_cls == '/';

    if (!symbol || asprintf(&path,
                            "%s%s%.*s",
                            is_full ? "" : folder,
                            is_full ? "" : "/",
                            (int)(symbol - worker_cls),
                            worker_cls) < 0)
        return path = NULL;
    return access(path, F_OK) == 0 ? MS_TAKE(path) : NULL;
}
