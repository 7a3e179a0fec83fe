/* exit_text.h - how a worker's process ended, in words for errors */
#ifndef MS_WIRE_CLIENT_EXIT_TEXT_H
#define MS_WIRE_CLIENT_EXIT_TEXT_H

#include "proto/muster.pb-c.h"

#include <stddef.h>

enum { MS_EXIT_TEXT_MAX = 64 };

/* "was killed by signal 9 (SIGKILL)", "exited with code 3"; "died" if its end was not seen.
 * Returns `out`. */
const char *ms_exit_describe(const Muster__Exit *e, char out[MS_EXIT_TEXT_MAX]);

#endif
