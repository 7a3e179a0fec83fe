/* keeper.h - a death that is known before the memory is freed
 *
 * The kernel tears down the address space of a dying process before it closes its
 * sockets and before it tells the parent: a millisecond for an interpreter, seconds for a
 * trainer with a hundred gigabytes. Its callers wait so much longer.
 *
 * The keeper is a tiny child that shares the address space and nothing else. While it
 * lives, a dying worker only lets go of the memory, so that its callers learn of the
 * death at once; the keeper then sees the end of the worker (its pidfd) and ends too, and
 * the memory is freed in its time. It holds no other descriptor, runs no code but a wait,
 * cannot be found by wait(2) (it sends no SIGCHLD), and is in the worker's process group,
 * which is killed with it.
 */
#ifndef MS_WORKER_KEEPER_H
#define MS_WORKER_KEEPER_H

#include <sys/types.h>

/* Once, on any thread that is as long as the process. The keeper's pid, or a negative errno: the worker is then
 * like any other process. */
pid_t ms_keeper_start(void);

#endif
