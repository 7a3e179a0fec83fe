/* store_args.h - the options about the stores of nodes: of `muster head` and `agent` */
#ifndef MS_CLI_STORE_ARGS_H
#define MS_CLI_STORE_ARGS_H

#include "base/error.h"
#include "cli/cli.h"
#include "proto/muster.pb-c.h"

/* Fills `out`, which borrows from the command line. 0, or -EINVAL. */
int ms_store_args(const struct ms_cli *cli,
                  Muster__StoreConfig *out,
                  struct ms_error *err);

#endif
