/* debug.h - a debugger in the engine, and who has attached to it
 *
 * A thread of the worker that stops at a breakpoint writes text and reads lines here; a
 * client on another machine gets the one and sends the other (MS_OP_DEBUG, answered by the
 * I/O thread). The debugger itself is the interpreter's: nothing is known of it here.
 *
 * The session is open from the first prompt until the program goes on. Clients come and go
 * meanwhile, one at a time. A client has one request under way, which is held until there is
 * something to tell (long polling); one that has none for MS_DEBUG_LEASE_NS is gone.
 */
#ifndef MS_WORKER_DEBUG_H
#define MS_WORKER_DEBUG_H

#include "io/loop.h"
#include "wire/server/server.h"

#include <stdbool.h>

struct ms_debug;

/* `main_tid`: the thread that is interrupted by SIGINT. NULL: out of memory. */
struct ms_debug *ms_debug_create(struct ms_loop *loop, pid_t main_tid);
/* On the loop's thread; a request that is held is answered. */
void ms_debug_destroy(struct ms_debug *d);

/* ---- the thread that has stopped ------------------------------------------------- */

/* The program waits at `where`, for the first time or again. True if a client sees it. */
bool ms_debug_open(struct ms_debug *d, const char *where);
void ms_debug_write(struct ms_debug *d, const char *text, size_t len);
/* The program goes on. */
void ms_debug_close(struct ms_debug *d);

/* Ask for a line; what was asked before is no more. */
void ms_debug_prompt(struct ms_debug *d, const char *text);
/* Wait for it: 0, and a malloc'd string; -EINTR after a signal; or another negative errno. */
int ms_debug_read(struct ms_debug *d, char **line);

/* ---- clients ----------------------------------------------------------------------- */

/* The body is a Debug. Loop's thread. */
void ms_debug_ask(struct ms_debug *d, struct ms_request *r);

#endif
