#include "cli/cli.h"

#include <string.h>

#define EXITS_ANY   (1u << MS_EXIT_OK | 1u << MS_EXIT_FAILED | 1u << MS_EXIT_USAGE)
#define EXITS_ASK   (1u << MS_EXIT_NOT_RUNNING | 1u << MS_EXIT_UNREACHABLE)
#define EXITS_FOUND (1u << MS_EXIT_NOT_FOUND)

const struct ms_cli_command ms_cli_commands[] = {
    {
        .name = "status",
        .operands = "",
        .summary = "nodes, clusters and workers of what runs here",
        .text =
            "Shows the newest session that runs on this machine, and names the others. "
            "A session\nbegins with muster.init() in a driver and ends with it.",
        .options =
            MS_OPT(MS_OPT_SESSION) | MS_OPT(MS_OPT_TIMEOUT) | MS_OPT(MS_OPT_JSON),
        .exits = EXITS_ANY | EXITS_ASK,
        .run = ms_cmd_status,
    },
    {
        .name = "logs",
        .operands = "[CLUSTER[/RANK]]",
        .operands_max = 1,
        .summary = "what the workers have printed, also of sessions that have ended",
        .text =
            "Without an operand, all workers in the order of their lines. With a "
            "cluster, each of its\nworkers, every line behind its CLUSTER/RANK. With "
            "a rank, that worker's output as it is.\nIf nothing runs, the newest "
            "session that has ended. With --json, one object a line.",
        .options = MS_OPT(MS_OPT_FOLLOW) | MS_OPT(MS_OPT_LINES) | MS_OPT(MS_OPT_AGENT) |
                   MS_OPT(MS_OPT_SESSION) | MS_OPT(MS_OPT_JSON),
        .exits = EXITS_ANY | 1u << MS_EXIT_NOT_RUNNING | EXITS_FOUND,
        .run = ms_cmd_logs,
    },
    {
        .name = "stack",
        .operands = "[CLUSTER[/RANK]]",
        .operands_max = 1,
        .summary = "where every thread of a worker is right now, in Python and in C",
        .text =
            "A worker answers while its engine computes or hangs. Give a cluster, one "
            "rank of it, or\n--all.",
        .options = MS_OPT(MS_OPT_ALL) | MS_OPT(MS_OPT_SESSION) |
                   MS_OPT(MS_OPT_TIMEOUT) | MS_OPT(MS_OPT_JSON),
        .exits = EXITS_ANY | EXITS_ASK | EXITS_FOUND,
        .run = ms_cmd_stack,
    },
    {
        .name = "doctor",
        .operands = "",
        .summary = "can this machine run Muster, and what would make it better",
        .text = "Each line is a check: ok, warn (it works, with what is said) or fail "
                "(exit code 1), and\nwhat to do.",
        .options = MS_OPT(MS_OPT_PYTHON) | MS_OPT(MS_OPT_JSON),
        .exits = EXITS_ANY,
        .run = ms_cmd_doctor,
    },
    {
        .name = "version",
        .operands = "",
        .summary = "the version of this program and of its protocol",
        .options = MS_OPT(MS_OPT_JSON),
        .exits = EXITS_ANY,
        .run = ms_cmd_version,
    },
    {
        .name = "help",
        .operands = "[COMMAND]",
        .operands_max = 1,
        .summary = "the commands, or one of them",
        .exits = EXITS_ANY,
        .run = ms_cmd_help,
    },
    {
        .name = "agent",
        .operands = "",
        .summary = "start and look after the workers of a node (a head starts this)",
        .options = MS_OPT(MS_OPT_FD),
        .exits = EXITS_ANY,
        .hidden = true,
        .run = ms_cmd_agent,
    },
    {0},
};

const struct ms_cli_command *ms_cli_find(const char *name)
{
    for (const struct ms_cli_command *c = ms_cli_commands; c->name; c++)
        if (strcmp(c->name, name) == 0)
            return c;
    return NULL;
}
