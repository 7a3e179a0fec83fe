/* progress.h - a sign of life where something takes longer than a second
 *
 * After a second: on a terminal one line on stderr that is updated every second and
 * removed at the end; elsewhere a plain line, and again every ten seconds. A thread of
 * its own does it, so that the command may block.
 */
#ifndef MS_CLI_PROGRESS_H
#define MS_CLI_PROGRESS_H

#include "cli/cli.h"

struct ms_progress;

/* `text` says what is being done: "ending 3 workers". NULL: there is no memory or no
 * thread, and so no sign of life; the other functions take that. */
struct ms_progress *ms_progress_start(const struct ms_cli *cli, const char *text);

/* Before anything else is printed. Takes NULL. */
void ms_progress_stop(struct ms_progress *p);

#endif
