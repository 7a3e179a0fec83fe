/* args.c - parse command lines by the table of options */
#include "cli/args.h"
#include "base/nearest.h"
#include "base/size.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool takes(const struct ms_cli *cli, enum ms_opt id)
{
    return id == MS_OPT_HELP || (cli->command->options & MS_OPT(id));
}

/* Indexes into ms_cli_options; MS_OPT_COUNT: this command has none of that name. */
static enum ms_opt find_long(const struct ms_cli *cli, const char *name, size_t len)
{
    for (enum ms_opt id = 0; id < MS_OPT_COUNT; id++)
        if (takes(cli, id) && strlen(ms_cli_options[id].name) == len &&
            memcmp(ms_cli_options[id].name, name, len) == 0)
            return id;
    return MS_OPT_COUNT;
}

static enum ms_opt find_letter(const struct ms_cli *cli, char letter)
{
    for (enum ms_opt id = 0; id < MS_OPT_COUNT; id++)
        if (takes(cli, id) && ms_cli_options[id].letter == letter)
            return id;
    return MS_OPT_COUNT;
}

static int
fail_long(const struct ms_cli *cli, const char *name, size_t len, struct ms_error *err)
{
    char word[64];
    struct ms_nearest near = {.word = word};

    snprintf(word, sizeof word, "%.*s", (int)(len < 60 ? len : 60), name);
    for (enum ms_opt id = 0; id < MS_OPT_COUNT; id++)
        if (takes(cli, id) && !ms_cli_options[id].hidden)
            ms_nearest_consider(&near, ms_cli_options[id].name);
    return ms_error_set(err,
                        -EINVAL,
                        "there is no option --%s%s%s%s",
                        word,
                        near.best ? "; did you mean --" : "",
                        near.best ? near.best : "",
                        near.best ? "?" : "");
}

static int fail_value(enum ms_opt id, bool needed, struct ms_error *err)
{
    const struct ms_cli_option *o = &ms_cli_options[id];

    if (needed)
        return ms_error_set(err, -EINVAL, "--%s needs a value: %s", o->name, o->value);
    return ms_error_set(err, -EINVAL, "--%s takes no value", o->name);
}

static bool is_choice(const char *choices, const char *value)
{
    size_t len = strlen(value);

    for (const char *p = choices; len && *p; p += strcspn(p, " "), p += *p == ' ')
        if (strcspn(p, " ") == len && memcmp(p, value, len) == 0)
            return true;
    return false;
}

/* Keep the value, or say what is wrong with it. 0 or -EINVAL. */
static int
set_value(struct ms_cli *cli, enum ms_opt id, const char *value, struct ms_error *err)
{
    const struct ms_cli_option *o = &ms_cli_options[id];

    if (!value)
        return fail_value(id, true, err);
    if (o->choices && !is_choice(o->choices, value))
        return ms_error_set(
            err, -EINVAL, "--%s is '%s', not one of: %s", o->name, value, o->choices);
    cli->values[id] = value;
    if (!o->many)
        return 0;
    if (cli->many_count == MS_CLI_MANY_MAX)
        return ms_error_set(
            err, -EINVAL, "--%s is given more than %d times", o->name, MS_CLI_MANY_MAX);
    cli->many[cli->many_count].id = id;
    cli->many[cli->many_count++].value = value;
    return 0;
}

/* "--name", "--name=value" or "--name" "value"; how many words it took. */
static int parse_long(struct ms_cli *cli, char *const *args, struct ms_error *err)
{
    const char *name = args[0] + 2, *equals = strchr(name, '=');
    size_t len = equals ? (size_t)(equals - name) : strlen(name);
    enum ms_opt id = find_long(cli, name, len);

    if (id == MS_OPT_COUNT)
        return fail_long(cli, name, len, err);
    if (!ms_cli_options[id].value) {
        if (equals)
            return fail_value(id, false, err);
        cli->values[id] = "";
        return 1;
    }
    if (set_value(cli, id, equals ? equals + 1 : args[1], err) < 0)
        return -EINVAL;
    return equals ? 1 : 2;
}

/* "-f", "-fa", "-n5" or "-n" "5"; how many words it took. */
static int parse_letters(struct ms_cli *cli, char *const *args, struct ms_error *err)
{
    for (const char *p = args[0] + 1; *p; p++) {
        enum ms_opt id = find_letter(cli, *p);

        if (id == MS_OPT_COUNT)
            return ms_error_set(err, -EINVAL, "there is no option -%c", *p);
        if (!ms_cli_options[id].value) {
            cli->values[id] = "";
            continue;
        }
        if (set_value(cli, id, p[1] ? p + 1 : args[1], err) < 0)
            return -EINVAL;
        return p[1] ? 1 : 2;
    }
    return 1;
}

static int parse_operand(struct ms_cli *cli, const char *word, struct ms_error *err)
{
    if (cli->operand_count == cli->command->operands_max)
        return ms_error_set(err,
                            -EINVAL,
                            cli->command->operands_max ? "'%s' is too much"
                                                       : "it takes no operand '%s'",
                            word);
    cli->operands[cli->operand_count++] = word;
    return 1;
}

/* Is the value of this option the number or the size that it must be? */
static int read_number(struct ms_cli *cli, enum ms_opt id, struct ms_error *err)
{
    const struct ms_cli_option *o = &ms_cli_options[id];
    const char *text = cli->values[id];
    char *end;
    int64_t n;

    if (o->size && ms_size_parse(text, &cli->numbers[id]) < 0)
        return ms_error_set(err,
                            -EINVAL,
                            "--%s wants a size such as %s, not '%s'",
                            o->name,
                            o->size,
                            text);
    if (!o->range[1])
        return 0;
    errno = 0;
    n = strtoll(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || *end || errno || n < o->range[0] ||
        n > o->range[1])
        return ms_error_set(err,
                            -EINVAL,
                            "--%s is '%s', not a whole number from %lld to %lld",
                            o->name,
                            text,
                            (long long)o->range[0],
                            (long long)o->range[1]);
    cli->numbers[id] = (uint64_t)n;
    return 0;
}

int ms_args_parse(struct ms_cli *cli, char *const *args, struct ms_error *err)
{
    bool options = true;
    int rc = 0;

    while (*args && !ms_cli_has(cli, MS_OPT_HELP)) {
        const char *word = *args;
        int took = 1;

        if (options && strcmp(word, "--") == 0)
            options = false;
        else if (options && word[0] == '-' && word[1] == '-')
            took = parse_long(cli, args, err);
        else if (options && word[0] == '-' && word[1])
            took = parse_letters(cli, args, err);
        else
            took = parse_operand(cli, word, err);
        if (took < 0)
            return took;
        args += took;
    }
    for (enum ms_opt id = 0; id < MS_OPT_COUNT && rc == 0; id++)
        if (ms_cli_has(cli, id) && !ms_cli_has(cli, MS_OPT_HELP))
            rc = read_number(cli, id, err);
    return rc;
}

const char *ms_cli_next(const struct ms_cli *cli, enum ms_opt id, size_t *pos)
{
    while (*pos < cli->many_count) {
        size_t at = (*pos)++;

        if (cli->many[at].id == id)
            return cli->many[at].value;
    }
    return NULL;
}

int ms_args_store(const struct ms_cli *cli,
                  Muster__StoreConfig *out,
                  struct ms_error *err)
{
    const char *dir = cli->values[MS_OPT_SPILL];

    muster__store_config__init(out);
    out->is_told = ms_cli_has(cli, MS_OPT_STORE_LIMIT);
    out->limit = (uint64_t)ms_cli_number(cli, MS_OPT_STORE_LIMIT, 0);
    out->spill_limit = (uint64_t)ms_cli_number(cli, MS_OPT_SPILL_LIMIT, 0);
    if (ms_cli_has(cli, MS_OPT_SPILL_LIMIT) && !out->spill_limit)
        return ms_error_set(err, -EINVAL, "--spill-limit 0: say --spill off instead");
    out->no_spill = dir && strcmp(dir, "off") == 0;
    if (!dir || out->no_spill)
        return 0;
    if (dir[0] != '/')
        return ms_error_set(
            err, -EINVAL, "--spill wants the whole path of a folder, not '%s'", dir);
    out->spill_dir = (char *)(uintptr_t)dir;
    return 0;
}
