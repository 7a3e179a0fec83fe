/* complete.c - `muster complete`: what could stand for the last word of a command line */
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/args.h"
#include "cli/target.h"
#include "cli/view.h"

#include <string.h>

/* How long a head may take; a person waits. */
#define ASK_NS (2 * MS_NS_PER_S)

/* The word that is being completed. */
struct completion {
    struct ms_cli before; /* the words before it, as far as they make sense */
    const char *word;     /* what is typed of it; "" */
    const char *prefix;   /* printed before each candidate: "--session=" */
    size_t prefix_len;
};

static void
offer(const struct completion *c, const char *candidate, const char *meaning)
{
    if (strncmp(candidate, c->word, strlen(c->word)) == 0)
        printf("%.*s%s\t%s\n",
               (int)c->prefix_len,
               c->prefix_len ? c->prefix : "",
               candidate,
               meaning);
}

static void offer_words(const struct completion *c, const char *words)
{
    char word[32];

    while (*words) {
        size_t len = strcspn(words, " ");

        snprintf(word, sizeof word, "%.*s", (int)len, words);
        offer(c, word, "");
        words += len + (words[len] == ' ');
    }
}

/* ---- what is there now ----------------------------------------------------------- */

static void offer_sessions(const struct completion *c)
{
    MS_CLEANUP(ms_sessions_finish) struct ms_sessions all = {0};

    if (ms_sessions_init(&all, &c->before) != MS_EXIT_OK)
        return;
    for (size_t i = 0; i < all.count; i++)
        offer(c, all.all[i].name, all.all[i].alive ? "runs" : "has ended");
}

/* Failures are said on stderr, where the shells' scripts do not look. */
static Muster__Status *ask(const struct completion *c)
{
    MS_CLEANUP(ms_target_finish) struct ms_target t = {0};
    Muster__Status *status = NULL;
    struct ms_cli quiet = c->before;

    quiet.values[MS_OPT_JSON] = NULL;
    quiet.values[MS_OPT_TIMEOUT] = NULL;
    if (ms_target_init(&t, &quiet) != MS_EXIT_OK)
        return NULL;
    t.timeout_ns = ASK_NS;
    return ms_target_status(&t, &status) == MS_EXIT_OK ? status : NULL;
}

/* Its things, each with `prefix` before its name. */
static void offer_kind(const struct completion *c,
                       const Muster__Status *s,
                       enum ms_view_kind_id kind,
                       const char *prefix)
{
    const struct ms_view_kind *k = &ms_view_kinds[kind];
    size_t count = ms_view_count(k, s);

    for (size_t i = 0; i < count; i++) {
        struct ms_view_item item = ms_view_at(k, s, i);
        char name[MS_VIEW_NAME_MAX], text[2 * MS_VIEW_NAME_MAX];

        snprintf(text, sizeof text, "%s%s", prefix, ms_view_name(k, item, name));
        offer(c, text, ms_view_hint(k, item));
    }
}

static void offer_asked(const struct completion *c, enum ms_words words)
{
    MS_CLEANUP(ms_status_cleanup) Muster__Status *s = ask(c);
    char prefix[16];

    if (!s)
        return;
    if (words == MS_WORDS_WORKERS && strchr(c->word, '/')) /* there may be thousands */
        offer_kind(c, s, MS_VIEW_WORKERS, "");
    else if (words != MS_WORDS_THINGS)
        offer_kind(c, s, MS_VIEW_CLUSTERS, "");
    for (enum ms_view_kind_id k = 0; words == MS_WORDS_THINGS && k < MS_VIEW_KINDS;
         k++) {
        snprintf(prefix, sizeof prefix, "%s/", ms_view_kinds[k].name);
        offer_kind(c, s, k, prefix);
    }
}

/* ---- what can stand there -------------------------------------------------------- */

static void offer_commands(const struct completion *c)
{
    for (const struct ms_cli_command *m = ms_cli_commands; m->name; m++)
        if (!m->hidden)
            offer(c, m->name, m->summary);
}

static void offer_operand(const struct completion *c, enum ms_words words)
{
    size_t before = c->before.operand_count;
    bool first = before == 0;

    if (words == MS_WORDS_STOP && before == 1 &&
        strcmp(c->before.operands[0], "cluster") == 0)
        offer_asked(c, words);
    else if (words == MS_WORDS_STOP && first)
        offer_words(c, "cluster session");
    else if (words == MS_WORDS_KINDS && first)
        offer_words(c, "nodes clusters workers drivers groups objects sessions");
    else if (words == MS_WORDS_COMMANDS && first)
        offer_commands(c);
    else if (words == MS_WORDS_THINGS && first && !strchr(c->word, '/'))
        offer_words(c, "node/ cluster/ worker/ driver/ group/");
    else if ((words == MS_WORDS_WORKERS || words == MS_WORDS_THINGS) && first)
        offer_asked(c, words);
}

static void offer_value(const struct completion *c, const struct ms_cli_option *o)
{
    if (o->choices)
        offer_words(c, o->choices);
    else if (o->words == MS_WORDS_FILES)
        puts(":files");
    else if (o->words == MS_WORDS_SESSIONS)
        offer_sessions(c);
}

static void offer_options(const struct completion *c)
{
    char name[40];

    for (enum ms_opt id = 0; id < MS_OPT_COUNT; id++)
        if (ms_cli_shows(c->before.command, id)) {
            snprintf(name, sizeof name, "--%s", ms_cli_options[id].name);
            offer(c, name, ms_cli_options[id].help);
        }
}

/* ---- the line -------------------------------------------------------------------- */

/* The option of this name ("--lines") that takes a value, or whose letter ends a word
 * ("-fn"); NULL: there is none. */
static const struct ms_cli_option *
find_taker(const struct ms_cli_command *command, const char *word, size_t len)
{
    for (enum ms_opt id = 0; id < MS_OPT_COUNT; id++) {
        const struct ms_cli_option *o = &ms_cli_options[id];

        if (!o->value || !ms_cli_shows(command, id))
            continue;
        if (len > 2 && word[1] == '-' && strlen(o->name) == len - 2 &&
            memcmp(word + 2, o->name, len - 2) == 0)
            return o;
        if (len > 1 && word[0] == '-' && word[1] != '-' && o->letter == word[len - 1])
            return o;
    }
    return NULL;
}

/* Parse what stands before as far as it goes: what is wrong there does not matter. */
static void parse_before(struct completion *c, char *const *words, size_t count)
{
    char **copy = calloc(count + 1, sizeof *copy);

    if (!copy)
        return;
    memcpy(copy, words, count * sizeof *copy);
    (void)ms_args_parse(&c->before, copy, NULL);
    c->before.values[MS_OPT_HELP] = NULL;
    free(copy);
}

static void complete_line(struct completion *c, char *const *words, size_t count)
{
    const char *last = count > 1 ? words[count - 2] : "";
    const struct ms_cli_command *command = c->before.command;
    const char *equals = strchr(c->word, '=');
    const struct ms_cli_option *taker = NULL;

    if (count > 2 && last[0] == '-')
        taker = find_taker(command, last, strlen(last));
    parse_before(c, words + 1, count - 2 - (taker != NULL));
    if (taker) {
        offer_value(c, taker);
    } else if (c->word[0] == '-' && equals) {
        taker = find_taker(command, c->word, (size_t)(equals - c->word));
        c->prefix = c->word;
        c->prefix_len = (size_t)(equals + 1 - c->word);
        c->word = equals + 1;
        if (taker)
            offer_value(c, taker);
    } else if (c->word[0] == '-') {
        offer_options(c);
    } else {
        offer_operand(c, command->words);
    }
}

enum ms_exit ms_cmd_complete(const struct ms_cli *cli)
{
    char *const *words = cli->args;
    size_t count = 0;
    struct completion c = {0};

    if (words[0] && strcmp(words[0], "--") == 0)
        words++;
    while (words[count])
        count++;
    c.word = count ? words[count - 1] : "";
    c.before.command = count > 1 ? ms_cli_find(words[0]) : cli->command;
    if (count <= 1)
        offer_commands(&c);
    else if (c.before.command && !c.before.command->is_raw)
        complete_line(&c, words, count);
    return MS_EXIT_OK;
}
