/* inside.c - what processes of a job find in a Ray job: its Python, and Muster's package */
#include "base/env.h"
#include "cli/run/run.h"
#include "orchestrator/ray/job/python.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* "NAME=first:what it is now" */
static int set_first(struct ms_env *e, const char *name, const char *first)
{
    const char *before = getenv(name);

    return ms_env_printf(e,
                         "%s=%s%s%s",
                         name,
                         first,
                         before && before[0] ? ":" : "",
                         before ? before : "");
}

/* The folder above. */
static void go_up(char path[PATH_MAX])
{
    char *slash = strrchr(path, '/');

    if (slash)
        *slash = 0;
}

int ms_run_inside_env(const char *muster, struct ms_env *e)
{
    char python[PATH_MAX], package[PATH_MAX];
    int rc;

    snprintf(package, sizeof package, "%s", muster);
    go_up(package);
    go_up(package);
    rc = set_first(e, "PYTHONPATH", package);
    if (rc == 0)
        rc = ms_env_printf(e, "MUSTER_BIN=%s", muster);
    if (rc < 0 || ms_ray_find_python(python, NULL) < 0)
        return rc;
    go_up(python);
    return set_first(e, "PATH", python);
}
