/* debug.h - `muster debug`: a worker's debugger on this terminal
 *
 * debug.c    which worker, who waits
 * attach.c   the session: one question is always under way, which the worker holds
 * typed.c    lines that are typed or piped
 */
#ifndef MS_CLI_DEBUG_DEBUG_H
#define MS_CLI_DEBUG_DEBUG_H

#include "cli/target.h"
#include "io/loop.h"

#include <stdbool.h>

/* Until the program goes on, the worker ends, or the user leaves. */
enum ms_exit ms_debug_attach(struct ms_target *t,
                             const Muster__ClusterStatus *c,
                             const Muster__WorkerStatus *w);

/* Lines of stdin, asked for one at a time. On a terminal with a library for line editing, if
 * there is one (libedit or readline, loaded now); else as the kernel gives them. */
struct ms_typed;

struct ms_typed_ops {
    /* `line` is borrowed, without its newline. NULL: the end of stdin. */
    void (*on_line)(void *arg, const char *line);
};

/* NULL: out of memory. */
struct ms_typed *
ms_typed_create(struct ms_loop *loop, const struct ms_typed_ops *ops, void *arg);
/* The terminal is as it was. */
void ms_typed_destroy(struct ms_typed *t);

/* Print the prompt and ask for a line: on_line comes once, never before this returns. */
void ms_typed_ask(struct ms_typed *t, const char *prompt);
/* What was typed of this line is dropped, and the prompt printed again. */
void ms_typed_restart(struct ms_typed *t);
/* No line is wanted any more: the cursor is at the beginning of a line. */
void ms_typed_stop(struct ms_typed *t);

#endif
