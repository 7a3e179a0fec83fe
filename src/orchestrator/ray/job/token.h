/* token.h - the token of a Ray cluster, found as Ray finds it */
#ifndef MS_ORCHESTRATOR_RAY_JOB_TOKEN_H
#define MS_ORCHESTRATOR_RAY_JOB_TOKEN_H

#include "base/error.h"

#define MS_RAY_TOKEN_MAX 4096

/* RAY_AUTH_TOKEN, then the file RAY_AUTH_TOKEN_PATH, then ~/.ray/auth_token; white space
 * around it is not part of it. 0, and *out is malloc'd; -ENOENT: there is none; others:
 * it cannot be read, or holds something that is no token. No error shows it. */
int ms_ray_find_token(char **out, struct ms_error *err);

#endif
