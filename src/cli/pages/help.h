/* help.h - --help, from the table */
#ifndef MS_CLI_PAGES_HELP_H
#define MS_CLI_PAGES_HELP_H

#include "cli/cli.h"

#include <stdio.h>

/* All commands that are not hidden. */
void ms_help_print(FILE *f);

/* One command: its line, text, options and exit codes. */
void ms_help_print_command(const struct ms_cli_command *c, FILE *f);

/* "status, logs, ..."; a word that is no command gets the nearest one. Says so on
 * stderr. */
enum ms_exit ms_help_unknown(const char *word);

#endif
