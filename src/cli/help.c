#include "cli/help.h"
#include "cli/nearest.h"
#include "cli/out.h"

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

    fputs("usage: muster COMMAND [OPTION...]\n\n"
          "Muster runs the workers of RL post-training. A session begins with "
          "muster.init() in a\nPython driver; these commands look at what runs on this "
          "machine.\n",
          f);
    section_init(&s);
    for (const struct ms_cli_command *c = ms_cli_commands; c->name; c++)
        if (!c->hidden)
            section_add(&s, c->name, c->summary);
    section_print(&s, "commands:", f);
    fputs("\n`muster COMMAND --help` says more. MUSTER_HOME is the folder of the "
          "sessions "
          "(default\n/tmp/muster-<uid>), NO_COLOR=1 turns colours off.\n",
          f);
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
        if (id == MS_OPT_HELP ||
            ((c->options & MS_OPT(id)) && !ms_cli_options[id].hidden))
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

    for (const struct ms_cli_command *c = ms_cli_commands; c->name; c++)
        if (!c->hidden)
            ms_nearest_consider(&near, c->name);
    if (near.best)
        fprintf(stderr,
                "muster: there is no command '%s'; did you mean `muster %s`?\n",
                word,
                near.best);
    else
        fprintf(stderr,
                "muster: there is no command '%s'; `muster help` lists them\n",
                word);
    return MS_EXIT_USAGE;
}

enum ms_exit ms_cmd_help(const struct ms_cli *cli)
{
    const struct ms_cli_command *c;

    if (cli->operand_count == 0) {
        ms_help_print(stdout);
        return MS_EXIT_OK;
    }
    c = ms_cli_find(cli->operands[0]);
    if (!c)
        return ms_help_unknown(cli->operands[0]);
    ms_help_print_command(c, stdout);
    return MS_EXIT_OK;
}
