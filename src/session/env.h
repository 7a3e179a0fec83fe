/* env.h - the environment that a driver's workers start from
 *
 * The driver's own, but for what must not travel: MUSTER_SECRET is the key to the job, and
 * a worker's environment can be read by all that it starts. Workers are given the secret on
 * their control socket. What torchrun says of the driver is not true of workers. Numeric
 * libraries of workers have one thread unless the driver has said otherwise.
 */
#ifndef MS_SESSION_ENV_H
#define MS_SESSION_ENV_H

/* "NAME=value", both NULL-terminated; to be freed with ms_session_env_free. NULL: out of
 * memory. */
char **ms_session_env(const char *const *driver);
void ms_session_env_free(char **env);

#endif
