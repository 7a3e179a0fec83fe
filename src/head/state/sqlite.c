/* sqlite.c - opens libsqlite3 and finds the functions that the journal uses */
#include "head/state/sqlite.h"
#include "base/cleanup.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#define LIBRARY "libsqlite3.so.0"

#define FUNCTION(name)                                                                 \
    {                                                                                  \
        "sqlite3_" #name, offsetof(struct ms_sqlite, name)                             \
    }

static const struct {
    const char *name;
    size_t offset;
} functions[] = {
    FUNCTION(open_v2),
    FUNCTION(close_v2),
    FUNCTION(exec),
    FUNCTION(prepare_v2),
    FUNCTION(finalize),
    FUNCTION(step),
    FUNCTION(reset),
    FUNCTION(clear_bindings),
    FUNCTION(bind_blob),
    FUNCTION(bind_text),
    FUNCTION(bind_int64),
    FUNCTION(column_blob),
    FUNCTION(column_bytes),
    FUNCTION(column_int64),
    FUNCTION(column_text),
    FUNCTION(errmsg),
    FUNCTION(errstr),
    FUNCTION(extended_errcode),
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct ms_sqlite table;
static char problem[256];

static void load(void)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

    if (!library) {
        snprintf(problem, sizeof problem, "%s", dlerror());
        return;
    }
    for (size_t i = 0; i < MS_COUNT(functions); i++) {
        void *found = dlsym(library, functions[i].name);

        if (!found) {
            snprintf(problem, sizeof problem, "%s", dlerror());
            return;
        }
        memcpy((char *)&table + functions[i].offset, &found, sizeof found);
    }
}

const struct ms_sqlite *ms_sqlite_load(struct ms_error *err)
{
    pthread_once(&once, load);
    if (!problem[0])
        return &table;
    ms_error_set(
        err,
        -ELIBACC,
        "a head keeps its journal with SQLite, which cannot be loaded: %.150s; "
        "install libsqlite3-0 (Debian, Ubuntu) or sqlite-libs (Fedora)",
        problem);
    return NULL;
}
