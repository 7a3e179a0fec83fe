/* python.h - the programs of a Ray: its Python, `ray`, and the bridge's script */
#ifndef MS_ORCHESTRATOR_RAY_JOB_PYTHON_H
#define MS_ORCHESTRATOR_RAY_JOB_PYTHON_H

#include "base/error.h"

#include <limits.h>
#include <stddef.h>

/* The Python of the Ray that this process is below of; else the one of VIRTUAL_ENV or of
 * the path. 0, or -ENOENT with the reason. */
int ms_ray_find_python(char out[PATH_MAX], struct ms_error *err);
/* Of one raylet's command line (words with a NUL behind each): its Python. -ENOENT. Pure. */
int ms_ray_python_of(const char *words, size_t len, char out[PATH_MAX]);

/* A program of VIRTUAL_ENV, or of the path. 0, -ENOENT. */
int ms_ray_find_program(const char *name, char out[PATH_MAX]);
/* This program itself. 0, or why not. */
int ms_ray_find_self(char out[PATH_MAX], struct ms_error *err);
/* ray_bridge.py in python_dir (may be NULL), or beside this program. */
int ms_ray_find_script(const char *python_dir,
                       char out[PATH_MAX],
                       struct ms_error *err);

#endif
