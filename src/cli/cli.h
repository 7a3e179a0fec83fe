/* cli.h - what every command of `muster` is made of
 *
 * One table of options and one of commands (commands.c) say all there is to say: the
 * parser, --help, and whatever generates man pages and completions read the same table.
 * A command is a function from the parsed line to an exit code. It prints what was
 * asked for on stdout, and on failure one sentence on stderr: what happened, and what
 * to do.
 */
#ifndef MS_CLI_CLI_H
#define MS_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Exit codes; ms_cli_exits[] has their meaning in words. */
enum ms_exit {
    MS_EXIT_OK = 0,
    MS_EXIT_FAILED = 1,
    MS_EXIT_USAGE = 2,
    MS_EXIT_NOT_RUNNING = 3,
    MS_EXIT_UNREACHABLE = 4,
    MS_EXIT_NOT_FOUND = 5,
    MS_EXIT_NO_ROOM = 6,
    MS_EXIT_COUNT
};

extern const char *const ms_cli_exits[MS_EXIT_COUNT];

enum ms_opt {
    /* whom to ask, and how */
    MS_OPT_SESSION,
    MS_OPT_HEAD,
    MS_OPT_SECRET_FILE,
    MS_OPT_TIMEOUT,
    MS_OPT_JSON,
    /* single commands */
    MS_OPT_FOLLOW,
    MS_OPT_LINES,
    MS_OPT_SINCE,
    MS_OPT_GREP,
    MS_OPT_TIMESTAMPS,
    MS_OPT_AGENT,
    MS_OPT_JOB,
    MS_OPT_REASON,
    MS_OPT_ALL,
    MS_OPT_YES,
    MS_OPT_GRACE,
    MS_OPT_PYTHON,
    MS_OPT_FORMAT,
    MS_OPT_ONCE,
    MS_OPT_OUTPUT,
    /* head and agent */
    MS_OPT_LISTEN,
    MS_OPT_NAME,
    MS_OPT_HTTP,
    MS_OPT_OPEN_METRICS,
    MS_OPT_TLS,
    MS_OPT_LINK_GRACE,
    MS_OPT_HEAD_GRACE,
    MS_OPT_NODE_NAME,
    MS_OPT_NUM_GPUS,
    MS_OPT_NUM_CPUS,
    MS_OPT_GPU_MEMORY,
    MS_OPT_GPUS_PER_DOMAIN,
    MS_OPT_DEVICE_KIND,
    MS_OPT_RESOURCE,
    MS_OPT_LABEL,
    MS_OPT_BIND,
    MS_OPT_STORE_LIMIT,
    MS_OPT_SPILL,
    MS_OPT_SPILL_LIMIT,
    MS_OPT_FD,
    MS_OPT_JOIN_WITHIN,
    MS_OPT_END_WITH,
    MS_OPT_SHAPE_FD,
    MS_OPT_READY_FD,
    MS_OPT_ON,
    MS_OPT_ADDRESS,
    MS_OPT_HELP,
    MS_OPT_COUNT
};

/* A bit of ms_cli_command.options. */
#define MS_OPT(id) (UINT64_C(1) << (id))

/* What can stand for an operand or for the value of an option, for completion. */
enum ms_words {
    MS_WORDS_NONE,
    MS_WORDS_FILES,
    MS_WORDS_SESSIONS,
    MS_WORDS_COMMANDS,
    MS_WORDS_WORKERS, /* CLUSTER, CLUSTER/RANK */
    MS_WORDS_KINDS,   /* nodes, clusters, ... */
    MS_WORDS_THINGS,  /* node/NAME, cluster/NAME, ... */
    MS_WORDS_STOP,    /* session, cluster NAME */
};

struct ms_cli_option {
    const char *name;    /* without the dashes */
    const char *value;   /* what it takes, e.g. "SECONDS"; NULL: nothing */
    const char *help;    /* one line, lower case, no full stop */
    const char *choices; /* "auto on off": it must be one of these; NULL: anything */
    const char *size;    /* "80GiB": it must be a size such as this; NULL: anything */
    int64_t range[2];    /* it must be a whole number from, to; to 0: anything */
    enum ms_words words; /* what the value can be */
    char letter;         /* 0: it has none */
    bool many;           /* may be given more than once: ms_cli_next */
    bool hidden;         /* for programs: in no help */
};

/* Indexed by enum ms_opt. */
extern const struct ms_cli_option ms_cli_options[MS_OPT_COUNT];

enum { MS_CLI_OPERANDS_MAX = 4, MS_CLI_MANY_MAX = 64 };

struct ms_cli {
    const struct ms_cli_command *command;
    char *const *args; /* as they were given, behind the command's name */
    const char *values[MS_OPT_COUNT]; /* NULL: not given; "": a flag that is */
    uint64_t numbers[MS_OPT_COUNT];   /* of those that are numbers or sizes */
    const char *operands[MS_CLI_OPERANDS_MAX];
    size_t operand_count;
    struct {
        enum ms_opt id;
        const char *value;
    } many[MS_CLI_MANY_MAX]; /* every value of those that may be given often */
    size_t many_count;
};

struct ms_cli_command {
    const char *name;
    const char *operands; /* e.g. "[CLUSTER[/RANK]]"; NULL: none */
    const char *summary;  /* one line, lower case, no full stop */
    const char *text;     /* paragraphs for --help; NULL: the summary is all */
    const char *example;  /* lines for the manual; NULL: none */
    uint64_t options;     /* MS_OPT bits; --help goes without saying */
    unsigned exits;       /* bits (1u << code) of codes beyond those of all commands */
    size_t operands_max;
    enum ms_words words; /* what its operands can be */
    bool hidden;         /* for programs: not in the list of commands */
    bool is_raw;         /* its words are not parsed: ms_cli.args */
    enum ms_exit (*run)(const struct ms_cli *cli);
};

/* Ends with an entry without a name. */
extern const struct ms_cli_command ms_cli_commands[];

const struct ms_cli_command *ms_cli_find(const char *name);

static inline bool ms_cli_has(const struct ms_cli *cli, enum ms_opt id)
{
    return cli->values[id] != NULL;
}

/* A number or a size; `otherwise`: it is not given. */
static inline int64_t
ms_cli_number(const struct ms_cli *cli, enum ms_opt id, int64_t otherwise)
{
    return cli->values[id] ? (int64_t)cli->numbers[id] : otherwise;
}

/* Does it have this option, for people? */
static inline bool ms_cli_shows(const struct ms_cli_command *c, enum ms_opt id)
{
    return id == MS_OPT_HELP ||
           ((c->options & MS_OPT(id)) && !ms_cli_options[id].hidden);
}

/* May it end with this code? Every command can succeed, fail, or be used wrongly. */
static inline bool ms_cli_exits_with(const struct ms_cli_command *c, unsigned code)
{
    return code <= MS_EXIT_USAGE || (c->exits & (1u << code));
}

/* The program in one line, and in a paragraph. */
extern const char ms_cli_summary[], ms_cli_description[];

/* Variables of the environment that commands look at; ends with one without a name. */
struct ms_cli_variable {
    const char *name, *help;
};

extern const struct ms_cli_variable ms_cli_environment[];

/* The next value of an option that may be given often; begin with *pos = 0. NULL: there
 * are no more. */
const char *ms_cli_next(const struct ms_cli *cli, enum ms_opt id, size_t *pos);

/* What list and get take, in words. */
#define MS_CLI_KINDS                                                                   \
    "nodes, clusters, workers, drivers, groups, jobs, objects, sessions"
#define MS_CLI_THINGS                                                                  \
    "node/NAME, cluster/NAME, worker/CLUSTER/RANK, driver/ID, group/NAME or job/NAME"

/* The commands, one file each. */
enum ms_exit ms_cmd_status(const struct ms_cli *cli);
enum ms_exit ms_cmd_top(const struct ms_cli *cli);
enum ms_exit ms_cmd_list(const struct ms_cli *cli);
enum ms_exit ms_cmd_get(const struct ms_cli *cli);
enum ms_exit ms_cmd_stop(const struct ms_cli *cli);
enum ms_exit ms_cmd_logs(const struct ms_cli *cli);
enum ms_exit ms_cmd_stack(const struct ms_cli *cli);
enum ms_exit ms_cmd_timeline(const struct ms_cli *cli);
enum ms_exit ms_cmd_debug(const struct ms_cli *cli);
enum ms_exit ms_cmd_doctor(const struct ms_cli *cli);
enum ms_exit ms_cmd_version(const struct ms_cli *cli);
enum ms_exit ms_cmd_help(const struct ms_cli *cli);
enum ms_exit ms_cmd_complete(const struct ms_cli *cli);
enum ms_exit ms_cmd_agent(const struct ms_cli *cli);
enum ms_exit ms_cmd_head(const struct ms_cli *cli);
enum ms_exit ms_cmd_worker(const struct ms_cli *cli);
enum ms_exit ms_cmd_node_check(const struct ms_cli *cli);
enum ms_exit ms_cmd_plan(const struct ms_cli *cli);
enum ms_exit ms_cmd_run(const struct ms_cli *cli);
enum ms_exit ms_cmd_bridge(const struct ms_cli *cli);
enum ms_exit ms_cmd_hold(const struct ms_cli *cli);
enum ms_exit ms_cmd_check(const struct ms_cli *cli);
enum ms_exit ms_cmd_submit(const struct ms_cli *cli);
enum ms_exit ms_cmd_wait(const struct ms_cli *cli);
enum ms_exit ms_cmd_events(const struct ms_cli *cli);
enum ms_exit ms_cmd_suspend(const struct ms_cli *cli);
enum ms_exit ms_cmd_resume(const struct ms_cli *cli);
enum ms_exit ms_cmd_scale(const struct ms_cli *cli);
enum ms_exit ms_cmd_restart(const struct ms_cli *cli);
enum ms_exit ms_cmd_delete(const struct ms_cli *cli);
enum ms_exit ms_cmd_keep(const struct ms_cli *cli);
enum ms_exit ms_cmd_host(const struct ms_cli *cli);

#endif
