/* python.h - the programs of a Ray: its Python, `muster`, and our scripts */
#ifndef MS_ORCHESTRATOR_RAY_JOB_PYTHON_H
#define MS_ORCHESTRATOR_RAY_JOB_PYTHON_H

#include "base/error.h"
#include "orchestrator/ray/site.h"

#include <limits.h>
#include <stddef.h>

/* The Python of the Ray that this process is below of; else the one of VIRTUAL_ENV, of the
 * path, or beside this program. 0, or -ENOENT with the reason. */
int ms_ray_find_python(char out[PATH_MAX], struct ms_error *err);
/* Of one raylet's command line (words with a NUL behind each): its Python. -ENOENT. Pure. */
int ms_ray_python_of(const char *words, size_t len, char out[PATH_MAX]);

/* The program `muster`: the site's, or this one. 0, or why not. */
int ms_ray_find_muster(const struct ms_ray_site *site,
                       char out[PATH_MAX],
                       struct ms_error *err);
/* A script of the Python package `muster`: the site's, or the one beside that program. */
int ms_ray_find_script(const struct ms_ray_site *site,
                       const char *name,
                       char out[PATH_MAX],
                       struct ms_error *err);

#endif
