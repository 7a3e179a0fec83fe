/* keeper.c - a child that holds a worker's memory, so that its death is known at once */
#include "worker/keeper.h"
#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { STACK_SIZE = 16384 };

/* Those who are told of the death run first: freeing would take a core from them. */
#define DELAY_NS (5 * MS_NS_PER_MS)

#if defined(__x86_64__)

/* The keeper shares the worker's thread-local storage, errno and what a sanitizer knows of
 * the thread included: it must not go through the C library, and is not instrumented. */
#define UNINSTRUMENTED __attribute__((no_sanitize("all")))

static UNINSTRUMENTED long raw_syscall(long number, long a, long b, long c)
{
    long result;

    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c)
                     : "rcx", "r11", "memory");
    return result;
}

/* Sleep until the whole worker is dead: a parent-death signal would come with the end of
 * its main thread, while another one still has the memory to free. */
static UNINSTRUMENTED int keep(void *arg)
{
    struct pollfd worker = {.events = POLLIN};
    struct timespec delay = {.tv_nsec = DELAY_NS};
    struct sched_param no_priority = {0};

    raw_syscall(SYS_close_range, 0, (long)UINT32_MAX, 0);
    raw_syscall(SYS_prctl, PR_SET_NAME, (long)(intptr_t) "muster-keeper", 0);
    worker.fd = (int)raw_syscall(SYS_pidfd_open, (long)(intptr_t)arg, 0, 0);
    while (worker.fd >= 0 &&
           raw_syscall(SYS_poll, (long)(intptr_t)&worker, 1, -1) == -EINTR)
        ;
    raw_syscall(SYS_sched_setscheduler, 0, SCHED_IDLE, (long)(intptr_t)&no_priority);
    raw_syscall(SYS_nanosleep, (long)(intptr_t)&delay, 0, 0);
    raw_syscall(SYS_exit, 0, 0, 0);
    return 0;
}

/* The C library's clone by its other name, which the thread sanitizer does not intercept.
 * Its wrapper of clone takes the child for a fork of a process with threads, and in the
 * child ignores all calls and locks of the thread from then on. Here the memory is shared,
 * so this happens to the worker's thread that called: its locks are no longer seen, races
 * are reported where a lock is held, and real ones are missed. */
extern __typeof__(clone) __clone;

/* All signals but the ones that cannot be are blocked in it: handlers are the worker's. */
static pid_t clone_blocked(char *top)
{
    sigset_t all, before;
    int pid;

    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    pid = __clone(keep, top, CLONE_VM, (void *)(intptr_t)getpid());
    if (pid < 0)
        pid = -errno;
    sigprocmask(SIG_SETMASK, &before, NULL);
    return pid;
}

pid_t ms_keeper_start(void)
{
    char *stack = mmap(NULL,
                       STACK_SIZE,
                       PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK,
                       -1,
                       0);
    pid_t pid;

    if (stack == MAP_FAILED)
        return -errno;
    pid = clone_blocked(stack + STACK_SIZE);
    if (pid < 0)
        munmap(stack, STACK_SIZE);
    return pid;
}

#else

pid_t ms_keeper_start(void)
{
    return -ENOSYS;
}

#endif
