#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/args.h"
#include "cli/target.h"

#include <stdio.h>
#include <string.h>

/* Somebody waits with a finger on a key. */
#define ASK_NS (2 * MS_NS_PER_S)

/* What is being completed. */
struct job {
    struct ms_cli before; /* the words before it, as far as they make sense */
    const char *word;     /* what is typed of it; "" */
    const char *prefix;   /* printed before each candidate: "--session=" */
    size_t prefix_len;
};

static void offer(const struct job *j, const char *candidate, const char *meaning)
{
    if (strncmp(candidate, j->word, strlen(j->word)) == 0)
        printf("%.*s%s\t%s\n",
               (int)j->prefix_len,
               j->prefix_len ? j->prefix : "",
               candidate,
               meaning);
}

static void offer_words(const struct job *j, const char *words)
{
    char word[32];

    while (*words) {
        size_t len = strcspn(words, " ");

        snprintf(word, sizeof word, "%.*s", (int)len, words);
        offer(j, word, "");
        words += len + (words[len] == ' ');
    }
}

/* ---- what is there now ----------------------------------------------------------- */

static void offer_sessions(const struct job *j)
{
    MS_CLEANUP(ms_sessions_finish) struct ms_sessions all = {0};

    if (ms_sessions_init(&all, &j->before) != MS_EXIT_OK)
        return;
    for (size_t i = 0; i < all.count; i++)
        offer(j, all.all[i].name, all.all[i].alive ? "runs" : "has ended");
}

/* Failures are said on stderr, where the shells' scripts do not look. */
static Muster__Status *ask(const struct job *j)
{
    MS_CLEANUP(ms_target_finish) struct ms_target t = {0};
    Muster__Status *status = NULL;
    struct ms_cli quiet = j->before;

    quiet.values[MS_OPT_JSON] = NULL;
    quiet.values[MS_OPT_TIMEOUT] = NULL;
    if (ms_target_init(&t, &quiet) != MS_EXIT_OK)
        return NULL;
    t.timeout_ns = ASK_NS;
    return ms_target_status(&t, &status) == MS_EXIT_OK ? status : NULL;
}

/* Ranks only behind a slash: there may be thousands. `kind` is "worker/" or "". */
static void
offer_workers(const struct job *j, const Muster__Status *s, const char *kind)
{
    bool ranks = strchr(j->word + strlen(kind), '/') || kind[0];
    char text[MS_NAME_MAX + 32];

    for (size_t i = 0; i < s->n_clusters; i++) {
        const Muster__ClusterStatus *c = s->clusters[i];

        snprintf(text, sizeof text, "%s%s", kind, c->name);
        if (!ranks)
            offer(j, text, "cluster");
        for (size_t k = 0; ranks && k < c->n_workers; k++) {
            snprintf(text, sizeof text, "%s%s/%u", kind, c->name, c->workers[k]->rank);
            offer(j, text, c->workers[k]->node);
        }
    }
}

static void
offer_clusters(const struct job *j, const Muster__Status *s, const char *kind)
{
    char text[MS_NAME_MAX + 32];

    for (size_t i = 0; i < s->n_clusters; i++) {
        snprintf(text, sizeof text, "%s%s", kind, s->clusters[i]->name);
        offer(j, text, "cluster");
    }
}

static void offer_things(const struct job *j, const Muster__Status *s)
{
    char text[MS_NAME_MAX + 32];

    offer_clusters(j, s, "cluster/");
    offer_workers(j, s, "worker/");
    for (size_t i = 0; i < s->n_nodes; i++) {
        snprintf(text, sizeof text, "node/%s", s->nodes[i]->name);
        offer(j, text, "node");
    }
    for (size_t i = 0; i < s->n_groups; i++) {
        snprintf(text, sizeof text, "group/%s", s->groups[i]->name);
        offer(j, text, "placement group");
    }
    for (size_t i = 0; i < s->n_drivers; i++) {
        snprintf(text,
                 sizeof text,
                 "driver/%016llx",
                 (unsigned long long)s->drivers[i]->driver);
        offer(j, text, s->drivers[i]->host);
    }
}

static void offer_asked(const struct job *j, enum ms_words words)
{
    Muster__Status *s = ask(j);

    if (!s)
        return;
    if (words == MS_WORDS_WORKERS)
        offer_workers(j, s, "");
    else if (words == MS_WORDS_THINGS)
        offer_things(j, s);
    else
        offer_clusters(j, s, "");
    muster__status__free_unpacked(s, NULL);
}

/* ---- what can stand there -------------------------------------------------------- */

static void offer_commands(const struct job *j)
{
    for (const struct ms_cli_command *c = ms_cli_commands; c->name; c++)
        if (!c->hidden)
            offer(j, c->name, c->summary);
}

static void offer_operand(const struct job *j, enum ms_words words)
{
    size_t before = j->before.operand_count;
    bool first = before == 0;

    if (words == MS_WORDS_STOP && before == 1 &&
        strcmp(j->before.operands[0], "cluster") == 0)
        offer_asked(j, words);
    else if (words == MS_WORDS_STOP && first)
        offer_words(j, "cluster session");
    else if (words == MS_WORDS_KINDS && first)
        offer_words(j, "nodes clusters workers drivers groups objects sessions");
    else if (words == MS_WORDS_COMMANDS && first)
        offer_commands(j);
    else if (words == MS_WORDS_THINGS && first && !strchr(j->word, '/'))
        offer_words(j, "node/ cluster/ worker/ driver/ group/");
    else if ((words == MS_WORDS_WORKERS || words == MS_WORDS_THINGS) && first)
        offer_asked(j, words);
}

static void offer_value(const struct job *j, const struct ms_cli_option *o)
{
    if (o->choices)
        offer_words(j, o->choices);
    else if (o->words == MS_WORDS_FILES)
        puts(":files");
    else if (o->words == MS_WORDS_SESSIONS)
        offer_sessions(j);
}

static void offer_options(const struct job *j)
{
    char name[40];

    for (enum ms_opt id = 0; id < MS_OPT_COUNT; id++)
        if (ms_cli_shows(j->before.command, id)) {
            snprintf(name, sizeof name, "--%s", ms_cli_options[id].name);
            offer(j, name, ms_cli_options[id].help);
        }
}

/* ---- the line -------------------------------------------------------------------- */

/* The option of this name ("--lines") that takes a value, or whose letter ends a word
 * ("-fn"); NULL: there is none. */
static const struct ms_cli_option *
find_taker(const struct ms_cli_command *c, const char *word, size_t len)
{
    for (enum ms_opt id = 0; id < MS_OPT_COUNT; id++) {
        const struct ms_cli_option *o = &ms_cli_options[id];

        if (!o->value || !ms_cli_shows(c, id))
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
static void parse_before(struct job *j, char *const *words, size_t count)
{
    char **copy = calloc(count + 1, sizeof *copy);

    if (!copy)
        return;
    memcpy(copy, words, count * sizeof *copy);
    (void)ms_args_parse(&j->before, copy, NULL);
    j->before.values[MS_OPT_HELP] = NULL;
    free(copy);
}

static void complete_line(struct job *j, char *const *words, size_t count)
{
    const char *last = count > 1 ? words[count - 2] : "";
    const struct ms_cli_command *c = j->before.command;
    const char *equals = strchr(j->word, '=');
    const struct ms_cli_option *taker = NULL;

    if (count > 2 && last[0] == '-')
        taker = find_taker(c, last, strlen(last));
    parse_before(j, words + 1, count - 2 - (taker != NULL));
    if (taker) {
        offer_value(j, taker);
    } else if (j->word[0] == '-' && equals) {
        taker = find_taker(c, j->word, (size_t)(equals - j->word));
        j->prefix = j->word;
        j->prefix_len = (size_t)(equals + 1 - j->word);
        j->word = equals + 1;
        if (taker)
            offer_value(j, taker);
    } else if (j->word[0] == '-') {
        offer_options(j);
    } else {
        offer_operand(j, c->words);
    }
}

enum ms_exit ms_cmd_complete(const struct ms_cli *cli)
{
    char *const *words = cli->args;
    size_t count = 0;
    struct job j = {0};

    if (words[0] && strcmp(words[0], "--") == 0)
        words++;
    while (words[count])
        count++;
    j.word = count ? words[count - 1] : "";
    j.before.command = count > 1 ? ms_cli_find(words[0]) : cli->command;
    if (count <= 1)
        offer_commands(&j);
    else if (j.before.command && !j.before.command->is_raw)
        complete_line(&j, words, count);
    return MS_EXIT_OK;
}
