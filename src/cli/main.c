/* main.c - find the command, parse its line, run it
 *
 * Nothing is set up before a command runs: the agent is a command too, lives as long as
 * the session, and pays for what is done here.
 */
#include "cli/args.h"
#include "cli/cli.h"
#include "cli/out.h"
#include "cli/pages/pages.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Words that people try where a command is expected. */
static const struct {
    const char *word, *command;
} aliases[] = {{"--help", "help"}, {"-h", "help"}, {"--version", "version"}};

static const struct ms_cli_command *find(const char *word)
{
    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++)
        if (strcmp(word, aliases[i].word) == 0)
            word = aliases[i].command;
    return ms_cli_find(word);
}

/* With --json, errors in the command line are JSON too. */
static void look_for_json(struct ms_cli *cli, char *const *args)
{
    for (; *args; args++)
        if (strcmp(*args, "--json") == 0)
            cli->values[MS_OPT_JSON] = "";
}

static enum ms_exit run(struct ms_cli *cli, char *const *args)
{
    struct ms_error err = {0};

    cli->args = args;
    if (cli->command->is_raw)
        return cli->command->run(cli);
    if (ms_args_parse(cli, args, &err) < 0) {
        look_for_json(cli, args);
        return ms_out_fail(cli,
                           MS_EXIT_USAGE,
                           "%s (`muster %s --help` says more)",
                           err.text,
                           cli->command->name);
    }
    if (ms_cli_has(cli, MS_OPT_HELP)) {
        ms_help_print_command(cli->command, stdout);
        return MS_EXIT_OK;
    }
    return cli->command->run(cli);
}

/* What was printed must have arrived: a full disk is a failure too. But a reader that
 * has seen enough is none. */
static enum ms_exit close_output(enum ms_exit code)
{
    bool failed = ferror(stdout);

    errno = 0;
    if (fflush(stdout) == 0 && !failed)
        return code;
    if (ms_out_is_closed(STDOUT_FILENO) || errno == EPIPE)
        return code;
    fprintf(stderr, "muster: cannot write to stdout: %s\n", strerror(errno));
    return code ? code : MS_EXIT_FAILED;
}

int main(int argc, char **argv)
{
    struct ms_cli cli = {0};

    if (argc < 2) {
        ms_help_print(stderr);
        return MS_EXIT_USAGE;
    }
    cli.command = find(argv[1]);
    if (!cli.command)
        return (int)ms_help_unknown(argv[1]);
    return (int)close_output(run(&cli, argv + 2));
}
