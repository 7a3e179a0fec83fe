/* help.c - `muster help` and --help */
#include "base/cleanup.h"
#include "base/nearest.h"
#include "cli/out.h"
#include "cli/pages/pages.h"

#include <string.h>

/* A row of two columns, indented by two blanks. */
static void add_row(struct ms_grid *g, const char *left, const char *right)
{
    ms_grid_add(g, NULL, "%s", "");
    ms_grid_add(g, NULL, "%s", left);
    ms_grid_add(g, NULL, "%s", right);
}

/* Print the rows below a title, and begin anew. */
static void print_rows(struct ms_grid *g, const char *title, FILE *f)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf text = {0};

    if (g->count && ms_grid_print(g, &text) == 0)
        fprintf(f, "\n%s\n%s", title, ms_buf_str(&text));
    ms_grid_finish(g);
    ms_grid_init(g, "lll");
}

void ms_help_print(FILE *f)
{
    struct ms_grid g;

    ms_grid_init(&g, "lll");
    fprintf(f, "usage: muster COMMAND [OPTION...]\n\n%s\n", ms_cli_description);
    for (const struct ms_cli_command *c = ms_cli_commands; c->name; c++)
        if (!c->hidden)
            add_row(&g, c->name, c->summary);
    print_rows(&g, "commands:", f);
    for (const struct ms_cli_variable *v = ms_cli_environment; v->name; v++)
        add_row(&g, v->name, v->help);
    print_rows(&g, "environment:", f);
    ms_grid_finish(&g);
    fputs("\n`muster COMMAND --help` says more.\n", f);
}

static void add_option(struct ms_grid *g, const struct ms_cli_option *o)
{
    char left[64], letter[8] = "    ";

    if (o->letter)
        snprintf(letter, sizeof letter, "-%c, ", o->letter);
    snprintf(left,
             sizeof left,
             "%s--%s%s%s",
             letter,
             o->name,
             o->value ? " " : "",
             o->value ? o->value : "");
    add_row(g, left, o->help);
}

void ms_help_print_command(const struct ms_cli_command *c, FILE *f)
{
    struct ms_grid g;

    ms_grid_init(&g, "lll");
    fprintf(f,
            "muster %s - %s\n\nusage: muster %s%s%s%s\n",
            c->name,
            c->summary,
            c->name,
            c->options ? " [OPTION...]" : "",
            c->operands ? " " : "",
            c->operands ? c->operands : "");
    if (c->text)
        fprintf(f, "\n%s\n", c->text);
    for (enum ms_opt id = 0; id < MS_OPT_COUNT; id++)
        if (ms_cli_shows(c, id))
            add_option(&g, &ms_cli_options[id]);
    print_rows(&g, "options:", f);
    for (unsigned code = 0; code < MS_EXIT_COUNT; code++)
        if (ms_cli_exits_with(c, code))
            add_row(&g, (char[]){(char)('0' + code), 0}, ms_cli_exits[code]);
    print_rows(&g, "exit codes:", f);
    ms_grid_finish(&g);
}

enum ms_exit ms_help_unknown(const char *word)
{
    struct ms_nearest near = {.word = word};
    char shown[64];

    snprintf(shown, sizeof shown, "%s", word);
    ms_out_clean(shown);
    for (const struct ms_cli_command *c = ms_cli_commands; c->name; c++)
        if (!c->hidden)
            ms_nearest_consider(&near, c->name);
    if (near.best)
        fprintf(stderr,
                "muster: there is no command '%s'; did you mean `muster %s`?\n",
                shown,
                near.best);
    else
        fprintf(stderr,
                "muster: there is no command '%s'; `muster help` lists them\n",
                shown);
    return MS_EXIT_USAGE;
}

static enum ms_exit
print_as(const struct ms_cli *cli, const char *format, const struct ms_cli_command *c)
{
    const char *script = ms_page_script(format);

    if (script && c)
        return ms_out_fail(
            cli, MS_EXIT_USAGE, "a %s script is for all commands", format);
    if (script)
        fputs(script, stdout);
    else if (strcmp(format, "man") == 0)
        ms_page_man(c, stdout);
    else if (strcmp(format, "markdown") == 0)
        ms_page_markdown(c, stdout);
    else if (c)
        ms_help_print_command(c, stdout);
    else
        ms_help_print(stdout);
    return MS_EXIT_OK;
}

enum ms_exit ms_cmd_help(const struct ms_cli *cli)
{
    const char *format = cli->values[MS_OPT_FORMAT];
    const struct ms_cli_command *c = NULL;

    if (cli->operand_count) {
        c = ms_cli_find(cli->operands[0]);
        if (!c)
            return ms_help_unknown(cli->operands[0]);
    }
    return print_as(cli, format ? format : "text", c);
}
