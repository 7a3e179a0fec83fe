/* file_policy.c - the keys of a job that say what is done when something ends, and ranges */
#include "base/cleanup.h"
#include "base/nearest.h"
#include "job/file_impl.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* The key of `budget` for each cause; NULL: no process ends by it, or it has none. */
static const char *const budget_keys[MS_JOB_BUDGETS] = {
    [MS_JOB_APPLICATION] = "failed",
    [MS_JOB_OUT_OF_MEMORY] = "out_of_memory",
    [MS_JOB_PREEMPTED] = "preempted",
    [MS_JOB_HARDWARE] = "hardware",
    [MS_JOB_NODE_LOST] = "node_lost",
    [MS_JOB_NO_HEARTBEAT] = "no_heartbeat",
    [MS_JOB_START_FAILED] = "start_failed",
    [MS_JOB_HANG] = "hang",
};

enum { HANG_MAX_S = 7 * 86400, HEARTBEAT_MAX_S = 7 * 86400, GROWTH_MAX_MILLI = 4000 };

void ms_job_policy_init(struct ms_job_policy *p)
{
    *p = (struct ms_job_policy){0};
    for (size_t i = 0; i < MS_JOB_BUDGETS; i++)
        p->budget[i] = MS_JOB_BUDGET_UNSET;
}

void ms_job_words_free(char **words)
{
    for (size_t i = 0; words && words[i]; i++)
        free(words[i]);
    free(words);
}

/* ---- one word of several ----------------------------------------------------------- */

/* The index of the word; -EINVAL: it is none of them, and this was said. NULL is no word. */
static int read_word(struct ms_yaml_at at,
                     const char *what,
                     const char *const *words,
                     size_t count,
                     struct ms_error *err)
{
    const char *text = ms_yaml_text(at);
    struct ms_nearest near = {.word = text ? text : ""};
    char all[256] = "";
    size_t len = 0;

    for (size_t i = 0; i < count; i++) {
        if (!words[i])
            continue;
        if (text && strcmp(words[i], text) == 0)
            return (int)i;
        ms_nearest_consider(&near, words[i]);
        len += (size_t)snprintf(
            all + len, sizeof all - len, "%s%s", len ? ", " : "", words[i]);
    }
    return ms_yaml_fail(at,
                        err,
                        "%s: '%.40s' is none of %s%s%s%s",
                        what,
                        near.word,
                        all,
                        near.best ? "; did you mean '" : "",
                        near.best ? near.best : "",
                        near.best ? "'?" : "");
}

int ms_job_read_restart(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    static const char *const words[] = {[MS_JOB_RESTART_RANK] = "rank",
                                        [MS_JOB_RESTART_ROLE] = "role",
                                        [MS_JOB_RESTART_JOB] = "job"};
    struct ms_job_policy *p = out;
    int i = read_word(at, "'restart'", words, MS_COUNT(words), err);

    p->restart = i < 0 ? MS_JOB_RESTART_RANK : (enum ms_job_restart)i;
    p->has_restart = i >= 0;
    return i < 0 ? i : 0;
}

int ms_job_read_on_hang(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    static const char *const words[] = {
        [MS_JOB_HANG_RESTART] = "restart", [MS_JOB_HANG_SAY] = "say"};
    int i = read_word(at, "'on_hang'", words, MS_COUNT(words), err);

    if (i < 0)
        return i;
    ((struct ms_job_policy *)out)->on_hang = (enum ms_job_on_hang)i;
    return 0;
}

int ms_job_read_on(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    static const char *const words[] = {"local", "ray", "sim", "kubernetes", "slurm"};
    struct ms_job *job = out;
    int i = read_word(at, "'on'", words, MS_COUNT(words), err);

    job->on_at = ms_yaml_mark(at);
    return i < 0 ? i : ms_yaml_to_text(at, &job->on, err);
}

/* ---- numbers ----------------------------------------------------------------------- */

/* Digits up to a colon or the end; then behind the colon. */
static bool take_number(const char **text, uint32_t *out)
{
    size_t len = strspn(*text, "0123456789");

    if (len == 0 || len > 9 || ((*text)[len] && (*text)[len] != ':'))
        return false;
    *out = (uint32_t)strtoul(*text, NULL, 10);
    *text += len + ((*text)[len] == ':');
    return true;
}

int ms_job_read_range(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    struct ms_job_range r = {.unit = 1};
    const char *text = ms_yaml_text(at), *rest = text;
    bool is_good = text && take_number(&rest, &r.min);

    r.max = r.min;
    if (is_good && *rest)
        is_good = take_number(&rest, &r.max);
    if (is_good && *rest)
        is_good = take_number(&rest, &r.unit);
    if (!is_good || *rest || text[strlen(text) - 1] == ':')
        return ms_yaml_fail(
            at, err, "a whole number, \"min:max\" or \"min:max:unit\" is wanted here");
    if (r.min == 0 || r.unit == 0)
        return ms_yaml_fail(at, err, "%.40s: more than 0 is wanted here", text);
    if (r.max < r.min)
        return ms_yaml_fail(at, err, "%.40s: the most is less than the least", text);
    if (r.min % r.unit || r.max % r.unit)
        return ms_yaml_fail(
            at, err, "%.40s: both must be multiples of the unit, %u", text, r.unit);
    *(struct ms_job_range *)out = r;
    return 0;
}

int ms_job_read_priority(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    const char *text = ms_yaml_is_plain(at) ? ms_yaml_text(at) : "";
    const char *digits = *text == '-' ? text + 1 : text;
    size_t len = strlen(digits);

    if (len == 0 || len > 9 || strspn(digits, "0123456789") != len)
        return ms_yaml_fail(at, err, "'priority' must be a whole number");
    *(int32_t *)out = (int32_t)strtol(text, NULL, 10);
    return 0;
}

int ms_job_read_hang(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    struct ms_job_policy *p = out;
    int rc = ms_yaml_to_count(at, &p->hang_s, err);

    if (rc == 0 && (p->hang_s == 0 || p->hang_s > HANG_MAX_S))
        rc = ms_yaml_fail(at, err, "'hang' must be 1 to %d seconds", HANG_MAX_S);
    return rc;
}

int ms_job_read_heartbeat(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    struct ms_job_policy *p = out;
    int rc = ms_yaml_to_count(at, &p->heartbeat_s, err);

    if (rc == 0 && (p->heartbeat_s == 0 || p->heartbeat_s > HEARTBEAT_MAX_S))
        rc = ms_yaml_fail(
            at, err, "'heartbeat' must be 1 to %d seconds", HEARTBEAT_MAX_S);
    return rc;
}

int ms_job_read_critical(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    bool is_critical = true;
    int rc = ms_yaml_to_bool(at, &is_critical, err);

    ((struct ms_job_policy *)out)->is_not_critical = !is_critical;
    return rc;
}

int ms_job_read_growth(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    uint64_t milli = 0;
    int rc = ms_yaml_to_milli(at, &milli, err);

    if (rc == 0 && (milli < 1000 || milli > GROWTH_MAX_MILLI))
        rc = ms_yaml_fail(at, err, "'memory_growth' must be 1.0 to 4.0");
    ((struct ms_job_policy *)out)->memory_growth_milli = (uint32_t)milli;
    return rc;
}

static int read_amount(struct ms_yaml_at at, uint32_t *out, struct ms_error *err)
{
    const char *text = ms_yaml_text(at);

    if (text && strcmp(text, "unlimited") == 0) {
        *out = MS_JOB_BUDGET_UNLIMITED;
        return 0;
    }
    if (ms_yaml_to_count(at, out, NULL) < 0 || *out >= MS_JOB_UNLIMITED)
        return ms_yaml_fail(at, err, "a number or `unlimited` is wanted here");
    return 0;
}

static int read_own_amount(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    return read_amount(at, out, err);
}

int ms_job_read_budget(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    struct ms_job_policy *p = out;
    int rc = 0;

    if (!ms_yaml_is_map(at))
        return ms_yaml_fail(
            at, err, "'budget' must be a map of causes and numbers, as {failed: 5}");
    for (size_t i = 0; i < ms_yaml_count(at) && rc == 0; i++) {
        struct ms_yaml_at key = ms_yaml_key(at, i);
        int cause = MS_JOB_APPLICATION + read_word(key,
                                                   "a cause in 'budget'",
                                                   budget_keys + MS_JOB_APPLICATION,
                                                   MS_JOB_BUDGETS - MS_JOB_APPLICATION,
                                                   err);

        if (cause < MS_JOB_APPLICATION)
            return -EINVAL;
        if (p->budget[cause] != MS_JOB_BUDGET_UNSET)
            return ms_yaml_fail(key, err, "'%s' stands twice", budget_keys[cause]);
        rc = read_amount(ms_yaml_value(at, i), &p->budget[cause], err);
    }
    return rc;
}

static const struct ms_yaml_field own_budget_fields[] = {
    {"failed", read_own_amount, MS_JOB_APPLICATION * sizeof(uint32_t), false},
    {"check_failed", read_own_amount, MS_JOB_CHECK_FAILED * sizeof(uint32_t), false},
    {0},
};

/* A job has few causes of its own: it is started again for what its roles have spent. */
int ms_job_read_own_budget(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    return ms_yaml_map(at,
                       "'budget' of a job",
                       own_budget_fields,
                       ((struct ms_job_policy *)out)->budget,
                       err);
}

/* ---- how a job decides --------------------------------------------------------------- */

enum { TIME_MAX_MILLI = 86400 * 1000 };

void ms_job_rules_init(struct ms_job_rules *r)
{
    *r = (struct ms_job_rules){.backoff_milli = UINT64_MAX,
                               .backoff_max_milli = UINT64_MAX,
                               .stable_milli = UINT64_MAX,
                               .same_error = MS_JOB_BUDGET_UNSET,
                               .node_failures = MS_JOB_BUDGET_UNSET,
                               .role_restarts = MS_JOB_BUDGET_UNSET};
}

static int read_time(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    int rc = ms_yaml_to_milli(at, out, err);

    if (rc == 0 && *(uint64_t *)out > TIME_MAX_MILLI)
        rc = ms_yaml_fail(
            at, err, "at most %d seconds are possible here", TIME_MAX_MILLI / 1000);
    return rc;
}

/* 0 times would mean that the first one is one too many. */
static int read_times(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    int rc = read_amount(at, out, err);

    return rc < 0 || *(uint32_t *)out
               ? rc
               : ms_yaml_fail(at, err, "more than 0 is wanted here");
}

#define RULE(field) offsetof(struct ms_job_rules, field)

static const struct ms_yaml_field rules_fields[] = {
    {"backoff", read_time, RULE(backoff_milli), false},
    {"backoff_max", read_time, RULE(backoff_max_milli), false},
    {"stable", read_time, RULE(stable_milli), false},
    {"same_error", read_times, RULE(same_error), false},
    {"node_failures", read_times, RULE(node_failures), false},
    {"role_restarts", read_own_amount, RULE(role_restarts), false},
    {0},
};

int ms_job_read_rules(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    struct ms_job_rules *r = out;
    int rc = ms_yaml_map(at, "'policy'", rules_fields, r, err);

    if (rc == 0 && r->backoff_milli != UINT64_MAX &&
        r->backoff_max_milli != UINT64_MAX && r->backoff_milli > r->backoff_max_milli)
        rc = ms_yaml_fail(at, err, "'backoff' is more than 'backoff_max'");
    return rc;
}

/* ---- commands ---------------------------------------------------------------------- */

int ms_job_read_command(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    size_t count = ms_yaml_count(at);
    char **words;

    if (!ms_yaml_is_list(at) || count == 0)
        return ms_yaml_fail(
            at, err, "a list of words is wanted here, such as [python, train.py]");
    if (count > MS_JOB_WORDS_MAX)
        return ms_yaml_fail(at, err, "more than %zu elements", MS_JOB_WORDS_MAX);
    words = calloc(count + 1, sizeof *words);
    if (!words)
        return ms_error_set(err, -ENOMEM, "out of memory");
    *(char ***)out = words;
    for (size_t i = 0; i < count; i++) {
        struct ms_yaml_at item = ms_yaml_item(at, i);
        const char *text = ms_yaml_text(item);

        if (!text || (i == 0 && !*text))
            return ms_yaml_fail(item, err, "a word of a command must be a text");
        words[i] = strdup(text);
        if (!words[i])
            return ms_error_set(err, -ENOMEM, "out of memory");
    }
    return 0;
}

/* ---- the check of nodes ------------------------------------------------------------ */

enum {
    CHECK_S = 300,
    CHECK_MAX_S = 86400,
    SLOWER_MIN_MILLI = 1100,
    SLOWER_MAX_MILLI = 100000
};

static int read_check_time(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    uint32_t *timeout_s = out;
    int rc = ms_yaml_to_count(at, timeout_s, err);

    if (rc == 0 && (*timeout_s == 0 || *timeout_s > CHECK_MAX_S))
        rc = ms_yaml_fail(at, err, "'timeout' must be 1 to %d seconds", CHECK_MAX_S);
    return rc;
}

static int read_slower(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    uint64_t *milli = out;
    int rc = ms_yaml_to_milli(at, milli, err);

    if (rc == 0 && (*milli < SLOWER_MIN_MILLI || *milli > SLOWER_MAX_MILLI))
        rc = ms_yaml_fail(at, err, "'slower' must be 1.1 to 100 times the median");
    return rc;
}

static int read_slow(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    static const char *const words[] = {"use", "avoid"};
    int i = read_word(at, "'slow'", words, MS_COUNT(words), err);

    *(bool *)out = i == 1;
    return i < 0 ? i : 0;
}

static const struct ms_yaml_field check_fields[] = {
    {"command", ms_job_read_command, offsetof(struct ms_job_check, command), false},
    {"timeout", read_check_time, offsetof(struct ms_job_check, timeout_s), false},
    {"slower", read_slower, offsetof(struct ms_job_check, slow_milli), false},
    {"slow", read_slow, offsetof(struct ms_job_check, avoids_slow), false},
    {0},
};

/* true, false, or a map of how. */
int ms_job_read_check(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    struct ms_job_check *c = out;

    c->timeout_s = CHECK_S;
    c->is_on = true;
    if (ms_yaml_is_map(at))
        return ms_yaml_map(at, "'check'", check_fields, c, err);
    if (ms_yaml_to_bool(at, &c->is_on, NULL) < 0)
        return ms_yaml_fail(at,
                            err,
                            "'check' must be true, false, or a map with 'command', "
                            "'timeout', 'slower' or 'slow'");
    return 0;
}

int ms_job_read_refused(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    (void)out;
    return ms_yaml_fail(at,
                        err,
                        "images and volumes are for orchestrators that run containers; "
                        "local, ray and sim run none");
}
