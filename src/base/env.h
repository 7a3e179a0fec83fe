/* env.h - an environment under construction: "NAME=value", each name once */
#ifndef MS_BASE_ENV_H
#define MS_BASE_ENV_H

#include <stddef.h>

struct ms_env {
    char **entries; /* NULL-terminated once there is one; owned */
    size_t count, capacity;
};

void ms_env_init(struct ms_env *e);
void ms_env_finish(struct ms_env *e);

/* Add a copy; an entry of the same name goes. -EINVAL: no "=", or no name before it. */
int ms_env_set(struct ms_env *e, const char *entry);
int ms_env_set_all(struct ms_env *e, char *const *entries, size_t count);
/* All that this process itself has. */
int ms_env_set_own(struct ms_env *e);
/* This variable as this process has it; without it there, it goes. */
int ms_env_inherit(struct ms_env *e, const char *name);
int ms_env_printf(struct ms_env *e, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Take an entry out, if it is there. */
void ms_env_drop(struct ms_env *e, const char *name);

#endif
