/* args.h - the command line, by the table */
#ifndef MS_CLI_ARGS_H
#define MS_CLI_ARGS_H

#include "base/error.h"
#include "cli/cli.h"
#include "proto/muster.pb-c.h"

/* Parse what follows the command's name: --name value, --name=value, -x value, -xvalue,
 * flags together (-fa), options and operands in any order, "--" before operands that
 * begin with a dash. `cli->command` is set; the rest is filled and borrows from args,
 * which ends with NULL. --help ends the parsing: what else is wrong does not matter
 * then. Numbers and sizes are read. 0, or -EINVAL with a sentence that names what was meant, if that can be
 * guessed. */
int ms_args_parse(struct ms_cli *cli, char *const *args, struct ms_error *err);

/* The options about the stores of nodes, of `muster head` and `agent`. `out` borrows from the
 * command line. 0, or -EINVAL. */
int ms_args_store(const struct ms_cli *cli,
                  Muster__StoreConfig *out,
                  struct ms_error *err);

#endif
