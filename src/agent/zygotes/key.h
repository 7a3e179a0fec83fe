/* key.h - which workers can come from which zygote
 *
 * A worker can be forked from an interpreter that has what a fresh one would have when it
 * imports: the same command, module path, working folder and environment; and that has
 * imported what the worker asks for. Who asked for that interpreter does not matter. Pure.
 *
 * Of the environment all counts but what is each rank's own (its number, the cluster's
 * name, the master's address, the devices that it may see, our own variables of one
 * process) and what only tells one terminal from another: those are given to a worker
 * after the fork. So a worker that makes a cluster, whose environment is its driver's with
 * a rank's variables, asks for the key that its driver asked for.
 *
 * Where they are not set, a zygote has OMP_NUM_THREADS=1 (many workers on one machine
 * must not each start a thread for every core) and JE_ARROW_MALLOC_CONF with
 * background_thread:false (the thread of pyarrow's allocator forbids a fork).
 *
 * A key is a DriverContext of its own (freed with muster__driver_context__free_unpacked):
 * the interpreter's command, module path, working folder, environment (sorted) and modules
 * (in the order of their imports, each once).
 */
#ifndef MS_AGENT_ZYGOTES_KEY_H
#define MS_AGENT_ZYGOTES_KEY_H

#include "proto/muster.pb-c.h"

#include <stdbool.h>
#include <stddef.h>

/* What a worker-to-be needs. All is borrowed. */
struct ms_zygote_need {
    const Muster__DriverContext *context;
    const Muster__ZygoteKey
        *asked;       /* NULL: the interpreter and modules of the context */
    char *const *env; /* all of the worker's, each name once */
    size_t n_env;
    const char *working_dir;        /* NULL or "": the context's */
    const Muster__NodeShape *shape; /* where it runs; NULL: not known */
};

/* NULL: out of memory. */
Muster__DriverContext *ms_zygote_key_create(const struct ms_zygote_need *need);
Muster__DriverContext *ms_zygote_key_copy(const Muster__DriverContext *key);
void ms_zygote_key_destroy(Muster__DriverContext *key); /* NULL is nothing */
static inline void ms_zygote_key_cleanup(Muster__DriverContext **key)
{
    ms_zygote_key_destroy(*key);
}

/* Whether a variable is part of keys: "NAME=value" as a worker on `shape` has it. */
bool ms_zygote_key_counts(const char *entry, const Muster__NodeShape *shape);

/* Set a variable ("NAME=value") or take it out ("NAME"). 0 or -ENOMEM. */
int ms_zygote_key_change_env(Muster__DriverContext *key, const char *entry);

bool ms_zygote_key_has_env(const Muster__DriverContext *key, const char *entry);

bool ms_zygote_key_equal(const Muster__DriverContext *a,
                         const Muster__DriverContext *b);

/* Whether `base`, with more imports (or none), becomes `key`. */
bool ms_zygote_key_extends(const Muster__DriverContext *key,
                           const Muster__DriverContext *base);

/* The modules of `key` that `base` lacks, borrowed, into `out` (room for all of key's);
 * how many. */
size_t ms_zygote_key_missing(const Muster__DriverContext *key,
                             const Muster__DriverContext *base,
                             char **out);

#endif
