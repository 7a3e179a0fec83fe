#include "cli/cli.h"

const char *const ms_cli_exits[MS_EXIT_COUNT] = {
    [MS_EXIT_OK] = "done",
    [MS_EXIT_FAILED] = "it failed (doctor: a check did)",
    [MS_EXIT_USAGE] = "the command line is wrong",
    [MS_EXIT_NOT_RUNNING] = "nothing runs, or not that session (logs: nothing has run)",
    [MS_EXIT_UNREACHABLE] = "the head or a worker is there but does not answer",
    [MS_EXIT_NOT_FOUND] = "there is no such cluster, rank or log",
};

const struct ms_cli_option ms_cli_options[MS_OPT_COUNT] = {
    [MS_OPT_JSON] = {.name = "json", .help = "print JSON instead of text"},
    [MS_OPT_HELP] = {.name = "help", .letter = 'h', .help = "print this"},
    [MS_OPT_SESSION] = {.name = "session",
                        .letter = 's',
                        .value = "NAME",
                        .help = "this session, not the newest one that runs"},
    [MS_OPT_FOLLOW] = {.name = "follow",
                       .letter = 'f',
                       .help = "go on printing new lines until the session ends"},
    [MS_OPT_LINES] = {.name = "lines",
                      .letter = 'n',
                      .value = "LINES",
                      .help = "only the last LINES lines (of each worker)"},
    [MS_OPT_AGENT] = {.name = "agent", .help = "the agent's own log"},
    [MS_OPT_ALL] = {.name = "all", .letter = 'a', .help = "all workers that run"},
    [MS_OPT_TIMEOUT] = {.name = "timeout",
                        .letter = 't',
                        .value = "SECONDS",
                        .help = "how long to wait for an answer (default 10)"},
    [MS_OPT_PYTHON] = {.name = "python",
                       .value = "PATH",
                       .help = "check this interpreter"},
    [MS_OPT_FD] = {.name = "fd",
                   .value = "N",
                   .help = "the link to the head; N + 1 is the session's lock"},
};
