/* list_objects.h - `muster list objects`: what is in the stores of all nodes */
#ifndef MS_CLI_LIST_OBJECTS_H
#define MS_CLI_LIST_OBJECTS_H

#include "cli/cli.h"

enum ms_exit ms_list_objects(const struct ms_cli *cli);

#endif
