/* screen.h - a terminal that is drawn anew again and again, and its keys
 *
 * While it is open keys are not echoed and come at once, and the cursor is hidden. However
 * the program ends, also by a signal, the terminal is as it was. There is one in a process.
 */
#ifndef MS_CLI_TOP_SCREEN_H
#define MS_CLI_TOP_SCREEN_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Is there a terminal that can be drawn on? */
bool ms_screen_is_there(void);

void ms_screen_open(void);
/* The cursor is below what was drawn last. */
void ms_screen_close(void);

void ms_screen_size(size_t *lines, size_t *columns);
/* Replace what is shown. 0, or a negative errno: nobody looks any more. */
int ms_screen_draw(const struct ms_buf *frame);

enum { MS_KEY_UP = 256, MS_KEY_DOWN, MS_KEY_PAGE_UP, MS_KEY_PAGE_DOWN, MS_KEY_NONE };

/* Wait for a key; MS_KEY_NONE: at until_ns, or because the size has changed. */
int ms_screen_key(int64_t until_ns);

#endif
