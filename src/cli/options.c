/* options.c - the table of options, exit codes and variables */
#include "cli/cli.h"

#include <limits.h>

enum { DAY_S = 86400, DEVICES_MAX = 4096 };

const char ms_cli_summary[] = "look at and end what Muster runs";

const char ms_cli_description[] =
    "Muster runs the workers of RL post-training. A session begins with muster.init() "
    "in "
    "a\nPython driver, or with `muster head` for several machines; these commands look "
    "at what runs.";

const struct ms_cli_variable ms_cli_environment[] = {
    {"MUSTER_HOME", "the folder of the sessions (default /tmp/muster-<uid>)"},
    {"MUSTER_ADDRESS", "the head that is asked if no option says which: HOST:PORT"},
    {"MUSTER_LOGS_KEPT", "how many ended sessions' logs stay (default 16)"},
    {"MUSTER_LOGS_KEPT_SIZE", "how much they may take together (default 4GiB)"},
    {"MUSTER_LOGS_KEPT_AGE", "how long they stay (default 14d)"},
    {"MUSTER_SECRET_FILE", "the file with the secret of that head"},
    {"MUSTER_TIMELINE", "1 or a file: drivers record what happens when"},
    {"NO_COLOR", "if it is not empty, nothing is printed in colour"},
    {0},
};

const char *const ms_cli_exits[MS_EXIT_COUNT] = {
    [MS_EXIT_OK] = "done",
    [MS_EXIT_FAILED] = "it failed (doctor: a check did)",
    [MS_EXIT_USAGE] = "the command line is wrong",
    [MS_EXIT_NOT_RUNNING] = "nothing runs, or not that session (logs: nothing has run)",
    [MS_EXIT_UNREACHABLE] = "the head or a worker is there but does not answer",
    [MS_EXIT_NOT_FOUND] = "there is no such cluster, rank or log",
    [MS_EXIT_NO_ROOM] = "the nodes do not have what is asked for, or not in time",
};

const struct ms_cli_option ms_cli_options[MS_OPT_COUNT] = {
    [MS_OPT_SESSION] = {.name = "session",
                        .letter = 's',
                        .value = "NAME",
                        .words = MS_WORDS_SESSIONS,
                        .help = "this session of this machine, not the newest"},
    [MS_OPT_HEAD] = {.name = "head",
                     .value = "HOST:PORT",
                     .help = "the head that listens there (default: $MUSTER_ADDRESS)"},
    [MS_OPT_SECRET_FILE] = {.name = "secret-file",
                            .value = "FILE",
                            .words = MS_WORDS_FILES,
                            .help = "where the head's secret is (default: "
                                    "$MUSTER_SECRET_FILE, else that of this machine)"},
    [MS_OPT_TIMEOUT] = {.name = "timeout",
                        .letter = 't',
                        .value = "SECONDS",
                        .range = {1, 7 * DAY_S},
                        .help = "how long to wait for an answer (default 10), of run "
                                "for its machines (default 120)"},
    [MS_OPT_JSON] = {.name = "json", .help = "print JSON instead of text"},
    [MS_OPT_FOLLOW] = {.name = "follow",
                       .letter = 'f',
                       .help = "go on printing new lines until the session ends"},
    [MS_OPT_LINES] = {.name = "lines",
                      .letter = 'n',
                      .value = "LINES",
                      .range = {0, 1000000000},
                      .help = "only the last LINES lines (of each worker)"},
    [MS_OPT_SINCE] = {.name = "since",
                      .value = "TIME",
                      .help = "only lines since then: 90s, 10m, 1h30m or 2d ago, or "
                              "2026-11-18T05:00 (local, unless Z or +02:00 is behind "
                              "it)"},
    [MS_OPT_GREP] = {.name = "grep",
                     .letter = 'g',
                     .value = "REGEX",
                     .help = "only lines with this extended regular expression in "
                             "them"},
    [MS_OPT_TIMESTAMPS] = {.name = "timestamps",
                           .letter = 'T',
                           .help = "show when each line was read, in UTC"},
    [MS_OPT_JOB] = {.name = "job",
                    .value = "NAME",
                    .help =
                        "what this job's roles and driver print, also after its end"},
    [MS_OPT_AGENT] = {.name = "agent", .help = "the agent's own log"},
    [MS_OPT_ALL] = {.name = "all",
                    .letter = 'a',
                    .help = "everything, not one of them"},
    [MS_OPT_YES] = {.name = "yes", .letter = 'y', .help = "do not ask first"},
    [MS_OPT_GRACE] = {.name = "grace",
                      .value = "SECONDS",
                      .range = {0, DAY_S},
                      .help = "between SIGTERM and SIGKILL (default 3)"},
    [MS_OPT_PYTHON] = {.name = "python",
                       .value = "PATH",
                       .words = MS_WORDS_FILES,
                       .help = "check this interpreter"},
    [MS_OPT_ONCE] = {.name = "once", .help = "print one table and end"},
    [MS_OPT_OUTPUT] = {.name = "output",
                       .letter = 'o',
                       .value = "FILE",
                       .words = MS_WORDS_FILES,
                       .help = "write it there"},
    [MS_OPT_FORMAT] = {.name = "format",
                       .value = "FORMAT",
                       .choices = "text man markdown bash zsh fish",
                       .help = "the same as a manual page, or what lets a shell "
                               "complete command lines"},
    [MS_OPT_LISTEN] = {.name = "listen",
                       .value = "HOST:PORT",
                       .help = "where agents and drivers come to (default: loopback)"},
    [MS_OPT_NAME] = {.name = "name",
                     .value = "NAME",
                     .help = "of the session (default head)"},
    [MS_OPT_HTTP] = {.name = "http",
                     .value = "HOST:PORT",
                     .help = "serve REST and metrics there"},
    [MS_OPT_OPEN_METRICS] = {.name = "open-metrics",
                             .help = "serve /metrics to whoever asks, without a token"},
    [MS_OPT_TLS] = {.name = "tls",
                    .value = "MODE",
                    .choices = "auto on off",
                    .help = "auto (everywhere but on loopback), on, or off (a trusted "
                            "network)"},
    [MS_OPT_LINK_GRACE] = {.name = "link-grace",
                           .value = "SECONDS",
                           .range = {1, 7 * DAY_S},
                           .help = "how long a silent machine is waited for (default "
                                   "30)"},
    [MS_OPT_HEAD_GRACE] = {.name = "head-grace",
                           .value = "SECONDS",
                           .range = {1, 7 * DAY_S},
                           .help = "how long workers go on without the head (default "
                                   "300)"},
    [MS_OPT_NODE_NAME] = {.name = "node-name",
                          .value = "NAME",
                          .help = "of this machine (default: its host name)"},
    [MS_OPT_NUM_GPUS] = {.name = "num-gpus",
                         .value = "N",
                         .range = {0, DEVICES_MAX},
                         .help = "devices to lend (default: all that are found)"},
    [MS_OPT_NUM_CPUS] = {.name = "num-cpus",
                         .value = "N",
                         .range = {1, DEVICES_MAX},
                         .help = "cores to lend (default: all that are found)"},
    [MS_OPT_GPU_MEMORY] = {.name = "gpu-memory",
                           .value = "SIZE",
                           .size = "80GiB",
                           .help = "of each device of --num-gpus, such as 80GiB"},
    [MS_OPT_GPUS_PER_DOMAIN] = {.name = "gpus-per-domain",
                                .value = "N",
                                .range = {1, DEVICES_MAX},
                                .help = "so many of --num-gpus are joined closely "
                                        "(default: all)"},
    [MS_OPT_DEVICE_KIND] = {.name = "device-kind",
                            .value = "KIND",
                            .help = "what --num-gpus counts: gpu, npu, ... (default "
                                    "gpu)"},
    [MS_OPT_RESOURCE] = {.name = "resource",
                         .value = "NAME=N",
                         .many = true,
                         .help = "something else to lend, such as license=4; may be "
                                 "given more than once"},
    [MS_OPT_LABEL] = {.name = "label",
                      .value = "NAME=VALUE",
                      .many = true,
                      .help = "a label of this machine; may be given more than once"},
    [MS_OPT_BIND] = {.name = "bind",
                     .value = "ADDRESS",
                     .many = true,
                     .help = "where workers listen (default: all interfaces); may be "
                             "given more than once"},
    [MS_OPT_STORE_LIMIT] = {.name = "store-limit",
                            .value = "SIZE",
                            .size = "20GiB",
                            .help = "what objects in shared memory may take, such as "
                                    "20GiB (default: 30 % of the memory; 0: none)"},
    [MS_OPT_SPILL] = {.name = "spill",
                      .value = "DIR",
                      .words = MS_WORDS_FILES,
                      .help = "where objects go that nobody reads when memory is short "
                              "(default: the session's folder, if it is on a disk), or "
                              "off"},
    [MS_OPT_SPILL_LIMIT] = {.name = "spill-limit",
                            .value = "SIZE",
                            .size = "20GiB",
                            .help = "what may be there (default: half of what is "
                                    "free)"},
    [MS_OPT_FD] = {.name = "fd",
                   .value = "N",
                   .hidden = true,
                   .range = {3, INT_MAX - 1},
                   .help = "the link to the head; N + 1 is the session's lock"},
    [MS_OPT_JOIN_WITHIN] = {.name = "join-within",
                            .value = "SECONDS",
                            .range = {1, 30 * DAY_S},
                            .help = "give up if the head was not joined by then "
                                    "(default: never)"},
    [MS_OPT_END_WITH] = {.name = "end-with",
                         .value = "PID",
                         .range = {1, INT_MAX},
                         .help = "end when this process ends"},
    [MS_OPT_SHAPE_FD] = {.name = "shape-fd",
                         .value = "N",
                         .hidden = true,
                         .range = {3, INT_MAX},
                         .help = "a NodeShape is read from there: what this machine "
                                 "lends"},
    [MS_OPT_READY_FD] = {.name = "ready-fd",
                         .value = "N",
                         .hidden = true,
                         .range = {3, INT_MAX},
                         .help = "a byte is written there when the head was joined"},
    [MS_OPT_ON] = {.name = "on",
                   .value = "ORCHESTRATOR",
                   .choices = "local ray sim",
                   .help = "who lends the machines (default local)"},
    [MS_OPT_ADDRESS] = {.name = "address",
                        .value = "URL",
                        .help = "of Ray's dashboard, http://HEAD:8265; local: a Ray "
                                "of our own"},
    [MS_OPT_HELP] = {.name = "help", .letter = 'h', .help = "print this"},
};
