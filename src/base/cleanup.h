/* cleanup.h - locals that own
 *
 * A local that owns something carries MS_CLEANUP(fn) and gives it away with MS_TAKE
 * (pointers) or MS_TAKE_FD (descriptors). The cleanup functions take a pointer to the
 * variable and accept "nothing there": NULL, or -1.
 */
#ifndef MS_BASE_CLEANUP_H
#define MS_BASE_CLEANUP_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MS_CLEANUP(fn) __attribute__((cleanup(fn)))

#define MS_TAKE(ptr)                                                                   \
    ({                                                                                 \
        __typeof__(ptr) *ms_take_at_ = &(ptr);                                         \
        __typeof__(ptr) ms_taken_ = *ms_take_at_;                                      \
        *ms_take_at_ = NULL;                                                           \
        ms_taken_;                                                                     \
    })

#define MS_TAKE_FD(fd)                                                                 \
    ({                                                                                 \
        int *ms_take_at_ = &(fd);                                                      \
        int ms_taken_ = *ms_take_at_;                                                  \
        *ms_take_at_ = -1;                                                             \
        ms_taken_;                                                                     \
    })

#define MS_COUNT(array) (sizeof(array) / sizeof((array)[0]))

#define MS_CONTAINER(ptr, type, member)                                                \
    ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

static inline void ms_cleanup_free(void *at)
{
    free(*(void **)at);
}

static inline void ms_cleanup_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

static inline void ms_cleanup_file(FILE **f)
{
    if (*f)
        fclose(*f);
}

/* Close and forget; -1 is nothing. */
static inline void ms_fd_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

#endif
