/* out.h - what people and programs read
 *
 * Answers go to stdout, failures as one sentence to stderr. With --json a failure is
 * also an object on stdout: {"error": {"exit_code": 3, "message": "..."}}. Colours are
 * printed on a terminal only, and not if NO_COLOR is set or TERM is "dumb".
 */
#ifndef MS_CLI_OUT_H
#define MS_CLI_OUT_H

#include "cli/cli.h"
#include "resource/grid.h"

#include "base/json.h"

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

/* SGR numbers for ms_grid_add and ms_out_style. */
#define MS_STYLE_GOOD  "32"
#define MS_STYLE_BAD   "31"
#define MS_STYLE_WARN  "33"
#define MS_STYLE_FAINT "2"
#define MS_STYLE_BOLD  "1"

bool ms_out_is_colour(FILE *f);

/* The other end of this pipe, socket or terminal was closed. */
bool ms_out_is_closed(int fd);

/* Begin and end a style on stdout; nothing where there are no colours. */
void ms_out_style(const char *style);
void ms_out_plain(void);

/* Print a table, with colours if there are any. Finishes the grid. */
enum ms_exit ms_out_grid(struct ms_grid *g);

/* Print a value, indented, with a newline behind. Takes `value`; NULL means out of
 * memory and is said so. */
enum ms_exit ms_out_json(json_t *value);

/* Say on stderr why the command failed, and return `code`. */
enum ms_exit
ms_out_fail(const struct ms_cli *cli, enum ms_exit code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Replace what would disturb a terminal or a line (control characters) by '?'. Returns
 * `text`. */
char *ms_out_clean(char *text);

/* "3m12s", "2h05m", "4d03h"; returns `out`. */
const char *ms_out_duration(uint64_t ns, char out[24]);
/* The same, and below ten seconds "40us", "250ms", "3.2s". */
const char *ms_out_moment(uint64_t ns, char out[24]);

#endif
