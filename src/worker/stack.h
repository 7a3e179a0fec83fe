/* stack.h - what every thread of this process is doing
 *
 * Native stacks are taken by a signal to each thread, whose handler walks its own frames;
 * Python stacks by the interpreter's own fault handler on another signal. Both work while
 * the interpreter's lock is held by a thread that never lets go. A thread that does not
 * answer (uninterruptible, or with signals blocked) is reported as such.
 */
#ifndef MS_WORKER_STACK_H
#define MS_WORKER_STACK_H

#include "base/buf.h"

#include <sys/types.h>

/* The signal on which the interpreter is to dump its stacks (faulthandler.register with
 * chain=True), after ms_stack_init. */
int ms_stack_python_signal(void);

/* What the first stack of a process takes: a library is loaded, which a signal handler must
 * not do. Once, before a fork or by ms_stack_init. */
void ms_stack_warm(void);
/* Install the handlers. Once, before the interpreter registers its own. */
int ms_stack_init(void);

/* Ask the thread `main_tid` for the interpreter's stacks, which appear in `fd`. */
int ms_stack_python(pid_t main_tid, int fd, struct ms_buf *out);

/* C frames of every thread but the calling one. */
int ms_stack_native(struct ms_buf *out);

#endif
