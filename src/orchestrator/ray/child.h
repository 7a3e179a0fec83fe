/* child.h - a bridge (ray_bridge.py) as a child process of ours, by lines
 *
 * It runs with the Python that Ray runs with, has pipes for stdin and stdout, and prints
 * where we do. All on the thread of one loop; on_ended comes once and last, and nothing
 * comes from inside of a call.
 */
#ifndef MS_ORCHESTRATOR_RAY_CHILD_H
#define MS_ORCHESTRATOR_RAY_CHILD_H

#include "base/error.h"
#include "io/loop.h"

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#define MS_RAY_LINE_MAX ((size_t)8 << 20) /* one that is longer ends it */

struct ms_ray_child;

struct ms_ray_child_spec {
    struct ms_loop *loop;
    const char *python; /* NULL: ms_ray_find_python */
    const char *script; /* NULL: beside this program, or in python_dir */
    const char *python_dir;
    const char *name;
    int64_t grace_ns;
};

struct ms_ray_child_events {
    void (*on_line)(void *arg, const char *line, size_t len); /* with a NUL behind it */
    /* The code is 0 if it ended as it should, with exit code 0. */
    void (*on_ended)(void *arg, const struct ms_error *why);
};

/* The Python of the Ray that this process is below of; else the one of VIRTUAL_ENV or of
 * the path. */
int ms_ray_find_python(char out[PATH_MAX], struct ms_error *err);
/* Of one raylet's command line (words with a NUL behind each): its Python. -ENOENT. Pure. */
int ms_ray_python_of(const char *words, size_t len, char out[PATH_MAX]);

struct ms_ray_child *ms_ray_child_start(const struct ms_ray_child_spec *spec,
                                        const struct ms_ray_child_events *events,
                                        void *arg,
                                        struct ms_error *err);
/* A line without its newline. -ENOMEM, -EPIPE. */
int ms_ray_child_send(struct ms_ray_child *c, const char *line, size_t len);
/* Nothing more is sent; it is to end by itself. */
void ms_ray_child_end(struct ms_ray_child *c);
/* The same, and wait for it; by force at `until_ns`. NULL is nothing. */
void ms_ray_child_destroy(struct ms_ray_child *c, int64_t until_ns);

#endif
