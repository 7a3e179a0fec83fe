/* markdown.c - the reference of all commands, from their table */
#include "cli/pages/pages.h"

static void put_option(const struct ms_cli_option *o, FILE *f)
{
    fputs("- `", f);
    if (o->letter)
        fprintf(f, "-%c, ", o->letter);
    fprintf(f,
            "--%s%s%s`: %s\n",
            o->name,
            o->value ? " " : "",
            o->value ? o->value : "",
            o->help);
}

static void put_command(const struct ms_cli_command *c, FILE *f)
{
    fprintf(f,
            "## muster %s\n\n`muster %s [OPTION...]%s%s`: %s\n\n",
            c->name,
            c->name,
            c->operands ? " " : "",
            c->operands ? c->operands : "",
            c->summary);
    if (c->text)
        fprintf(f, "%s\n\n", c->text);
    for (enum ms_opt id = 0; id < MS_OPT_COUNT; id++)
        if (ms_cli_shows(c, id))
            put_option(&ms_cli_options[id], f);
    fputs("\nExit codes:", f);
    for (unsigned code = 0; code < MS_EXIT_COUNT; code++)
        if (ms_cli_exits_with(c, code))
            fprintf(f, "%s %u %s", code ? ";" : "", code, ms_cli_exits[code]);
    fputs(".\n", f);
    if (c->example)
        fprintf(f, "\n```sh\n%s\n```\n", c->example);
}

void ms_page_markdown(const struct ms_cli_command *c, FILE *f)
{
    if (c) {
        put_command(c, f);
        return;
    }
    fprintf(f, "# muster\n\n%s\n", ms_cli_description);
    for (c = ms_cli_commands; c->name; c++)
        if (!c->hidden) {
            fputc('\n', f);
            put_command(c, f);
        }
    fputs("\n## Environment\n\n", f);
    for (const struct ms_cli_variable *v = ms_cli_environment; v->name; v++)
        fprintf(f, "- `%s`: %s\n", v->name, v->help);
}
