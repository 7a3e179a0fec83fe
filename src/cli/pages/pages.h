/* pages.h - --help, manual pages, a reference, and completion scripts, from the table
 *
 * The build asks the program for these (`muster help --format man status`) and installs
 * what it prints. The scripts know nothing themselves: they ask `muster complete`.
 */
#ifndef MS_CLI_PAGES_PAGES_H
#define MS_CLI_PAGES_PAGES_H

#include "cli/cli.h"

#include <stdio.h>

/* All commands that are not hidden. */
void ms_help_print(FILE *f);
/* One command: its line, text, options and exit codes. */
void ms_help_print_command(const struct ms_cli_command *c, FILE *f);
/* Say on stderr that this is no command, and which one is nearest. */
enum ms_exit ms_help_unknown(const char *word);

/* `c` NULL: of the program, not of one command. */
void ms_page_man(const struct ms_cli_command *c, FILE *f);
void ms_page_markdown(const struct ms_cli_command *c, FILE *f);

/* "bash", "zsh", "fish"; NULL for others. */
const char *ms_page_script(const char *shell);

#endif
