#include "cli/pages/help.h"
#include "base/nearest.h"
#include "cli/out.h"
#include "cli/pages/pages.h"

#include <string.h>

/* Print rows of two columns below a title, indented by two blanks. */
struct section {
    struct ms_grid grid;
};

static void section_init(struct section *s)
{
    ms_grid_init(&s->grid, "lll");
}

static void section_add(struct section *s, const char *left, const char *right)
{
    ms_grid_add(&s->grid, NULL, "%s", "");
    ms_grid_add(&s->grid, NULL, "%s", left);
    ms_grid_add(&s->grid, NULL, "%s", right);
}

static void section_print(struct section *s, const char *title, FILE *f)
{
    struct ms_buf text = {0};

    if (s->grid.count && ms_grid_print(&s->grid, &text) == 0)
        fprintf(f, "\n%s\n%s", title, ms_buf_str(&text));
    ms_buf_finish(&text);
    ms_grid_finish(&s->grid);
}

void ms_help_print(FILE *f)
{
    struct section s;

    fprintf(f, "usage: muster COMMAND [OPTION...]\n\n%s\n", ms_cli_description);
    section_init(&s);
    for (const struct ms_cli_command *c = ms_cli_commands; c->name; c++)
        if (!c->hidden)
            section_add(&s, c->name, c->summary);
    section_print(&s, "commands:", f);
    section_init(&s);
    for (const struct ms_cli_variable *v = ms_cli_environment; v->name; v++)
        section_add(&s, v->name, v->help);
    section_print(&s, "environment:", f);
    fputs("\n`muster COMMAND --help` says more.\n", f);
}

static void add_option(struct section *s, const struct ms_cli_option *o)
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
    section_add(s, left, o->help);
}

void ms_help_print_command(const struct ms_cli_command *c, FILE *f)
{
    struct section s;

    fprintf(f,
            "muster %s - %s\n\nusage: muster %s%s%s%s\n",
            c->name,
            c->summary,
            c->name,
            c->options ? " [OPTION...]" : "",
            c->operands[0] ? " " : "",
            c->operands);
    if (c->text)
        fprintf(f, "\n%s\n", c->text);
    section_init(&s);
    for (enum ms_opt id = 0; id < MS_OPT_COUNT; id++)
        if (ms_cli_shows(c, id))
            add_option(&s, &ms_cli_options[id]);
    section_print(&s, "options:", f);
    section_init(&s);
    for (unsigned code = 0; code < MS_EXIT_COUNT; code++)
        if (c->exits & (1u << code))
            section_add(&s, (char[]){(char)('0' + code), 0}, ms_cli_exits[code]);
    section_print(&s, "exit codes:", f);
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
