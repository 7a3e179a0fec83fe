/* man.c - manual pages, from the table of commands */
#include "cli/pages/pages.h"

/* One character; what roff would take for its own is escaped. */
static void put(char c, FILE *f)
{
    if (c == '\\')
        fputs("\\e", f);
    else if (c == '-')
        fputs("\\-", f);
    else
        fputc(c, f);
}

/* Text with `quoted` words, which become bold; filled, so that line ends do not count. */
static void put_text(const char *text, FILE *f)
{
    bool bold = false, line_begins = true;

    for (const char *p = text; *p; p++) {
        if (line_begins && (*p == '.' || *p == '\''))
            fputs("\\&", f);
        line_begins = *p == '\n';
        if (*p == '`')
            fputs((bold = !bold) ? "\\fB" : "\\fR", f);
        else
            put(*p, f);
    }
    fputc('\n', f);
}

static void put_words(const char *text, FILE *f)
{
    for (const char *p = text; *p; p++)
        put(*p, f);
}

static void put_header(const struct ms_cli_command *c, FILE *f)
{
    fprintf(f,
            ".TH MUSTER%s%s 1 \"\" \"muster %s\" \"Muster manual\"\n.SH NAME\n",
            c ? "\\-" : "",
            c ? c->name : "",
            MS_VERSION);
    if (c)
        fprintf(f, "muster\\-%s \\- ", c->name);
    else
        fputs("muster \\- ", f);
    put_text(c ? c->summary : ms_cli_summary, f);
    fputs(".SH SYNOPSIS\n", f);
}

static void put_option(const struct ms_cli_option *o, FILE *f)
{
    fputs(".TP\n", f);
    if (o->letter)
        fprintf(f, "\\fB\\-%c\\fR, ", o->letter);
    fputs("\\fB\\-\\-", f);
    put_words(o->name, f);
    fputs("\\fR", f);
    if (o->value) {
        fputs(" \\fI", f);
        put_words(o->value, f);
        fputs("\\fR", f);
    }
    fputc('\n', f);
    put_text(o->help, f);
}

/* `c` NULL: all. */
static void put_exits(const struct ms_cli_command *c, FILE *f)
{
    fputs(".SH EXIT STATUS\n", f);
    for (unsigned code = 0; code < MS_EXIT_COUNT; code++)
        if (!c || ms_cli_exits_with(c, code)) {
            fprintf(f, ".TP\n\\fB%u\\fR\n", code);
            put_text(ms_cli_exits[code], f);
        }
}

static void put_environment(FILE *f)
{
    fputs(".SH ENVIRONMENT\n", f);
    for (const struct ms_cli_variable *v = ms_cli_environment; v->name; v++) {
        fputs(".TP\n\\fB", f);
        put_words(v->name, f);
        fputs("\\fR\n", f);
        put_text(v->help, f);
    }
}

static void put_example(const char *text, FILE *f)
{
    fputs(".SH EXAMPLES\n.nf\n", f);
    for (const char *p = text; *p; p++) {
        if (p == text || p[-1] == '\n')
            fputs("\\&", f);
        put(*p, f);
    }
    fputs("\n.fi\n", f);
}

static void put_see_also(const struct ms_cli_command *except, FILE *f)
{
    const char *between = "";

    fputs(".SH SEE ALSO\n", f);
    if (except) {
        fputs(".BR muster (1)", f);
        between = ",\n";
    }
    for (const struct ms_cli_command *c = ms_cli_commands; c->name; c++)
        if (!c->hidden && c != except) {
            fprintf(f, "%s.BR muster\\-%s (1)", between, c->name);
            between = ",\n";
        }
    fputc('\n', f);
}

static void put_program(FILE *f)
{
    put_header(NULL, f);
    fputs("\\fBmuster\\fR \\fICOMMAND\\fR [\\fIOPTION\\fR...]\n.SH DESCRIPTION\n", f);
    put_text(ms_cli_description, f);
    fputs(".SH COMMANDS\n", f);
    for (const struct ms_cli_command *c = ms_cli_commands; c->name; c++)
        if (!c->hidden) {
            fprintf(f, ".TP\n.BR muster\\-%s (1)\n", c->name);
            put_text(c->summary, f);
        }
    put_environment(f);
    put_exits(NULL, f);
    put_see_also(NULL, f);
}

void ms_page_man(const struct ms_cli_command *c, FILE *f)
{
    if (!c) {
        put_program(f);
        return;
    }
    put_header(c, f);
    fprintf(f, "\\fBmuster %s\\fR [\\fIOPTION\\fR...] ", c->name);
    put_text(c->operands ? c->operands : "", f);
    fputs(".SH DESCRIPTION\n", f);
    put_text(c->text ? c->text : c->summary, f);
    fputs(".SH OPTIONS\n", f);
    for (enum ms_opt id = 0; id < MS_OPT_COUNT; id++)
        if (ms_cli_shows(c, id))
            put_option(&ms_cli_options[id], f);
    put_exits(c, f);
    if (c->example)
        put_example(c->example, f);
    put_see_also(c, f);
}
