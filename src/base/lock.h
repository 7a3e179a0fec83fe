/* lock.h - a mutex that is held until the end of the block */
#ifndef MS_BASE_LOCK_H
#define MS_BASE_LOCK_H

#include "base/cleanup.h"

#include <pthread.h>

static inline pthread_mutex_t *ms_lock_take(pthread_mutex_t *mutex)
{
    pthread_mutex_lock(mutex);
    return mutex;
}

static inline void ms_lock_release(pthread_mutex_t **mutex)
{
    pthread_mutex_unlock(*mutex);
}

/* Once in a block. The value of a return statement is read before the mutex is released. */
#define MS_LOCK(mutex)                                                                 \
    MS_CLEANUP(ms_lock_release)                                                        \
    pthread_mutex_t *ms_locked_ __attribute__((unused)) = ms_lock_take(mutex)

#endif
