/* hosts.c - names with ranges in brackets, expanded */
#include "job/hosts.h"
#include "base/cleanup.h"
#include "base/name.h"

#include <errno.h>
#include <string.h>

enum { NUMBER_MAX = 9 }; /* digits */

struct list {
    const char *text; /* all of it */
    size_t prefix;    /* characters before the bracket */
    const char *suffix;
    char **names;
    size_t count, capacity;
};

void ms_hosts_free(char **names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(names[i]);
    free(names);
}

static int reserve(struct list *l, struct ms_error *err)
{
    size_t capacity = l->capacity ? 2 * l->capacity : 16;
    char **names;

    if (l->count < l->capacity)
        return 0;
    names = realloc(l->names, capacity * sizeof *names);
    if (!names)
        return ms_error_set(err, -ENOMEM, "out of memory");
    l->names = names;
    l->capacity = capacity;
    return 0;
}

/* number < 0: none. */
static int add(struct list *l, int width, long number, struct ms_error *err)
{
    char digits[2 * NUMBER_MAX + 4] = "";
    int rc = reserve(l, err);

    if (rc < 0)
        return rc;
    if (number >= 0)
        snprintf(digits, sizeof digits, "%0*ld", width, number);
    if (asprintf(&l->names[l->count],
                 "%.*s%s%s",
                 (int)l->prefix,
                 l->text,
                 digits,
                 l->suffix) < 0)
        return ms_error_set(err, -ENOMEM, "out of memory");
    return ms_name_check(l->names[l->count++], "node", err);
}

/* Digits at `at`, which moves behind them; -1: none, or too many. */
static long number(const char **at, int *width)
{
    size_t len = strspn(*at, "0123456789");
    long n = len && len <= NUMBER_MAX ? strtol(*at, NULL, 10) : -1;

    *width = **at == '0' ? (int)len : 0;
    *at += len;
    return n;
}

static int wrong(const struct list *l, struct ms_error *err)
{
    return ms_error_set(err,
                        -EINVAL,
                        "'%s': in the brackets numbers and ranges are wanted, as in "
                        "n[0-3,8]",
                        l->text);
}

/* What stands between the brackets. */
static int add_ranges(struct list *l, const char *at, struct ms_error *err)
{
    int rc = 0;

    for (;;) {
        int width = 0, ignored;
        long from = number(&at, &width), to = from;

        if (from >= 0 && *at == '-') {
            at++;
            to = number(&at, &ignored);
        }
        if (from < 0 || to < 0)
            return wrong(l, err);
        if (to < from)
            return ms_error_set(
                err, -EINVAL, "'%s': %ld is before %ld", l->text, to, from);
        if ((size_t)(to - from) >= MS_HOSTS_MAX - l->count)
            return ms_error_set(
                err, -E2BIG, "'%s': more than %zu names", l->text, MS_HOSTS_MAX);
        for (long n = from; n <= to && rc == 0; n++)
            rc = add(l, width, n, err);
        if (rc < 0 || *at == ']')
            return rc;
        if (*at++ != ',')
            return wrong(l, err);
    }
}

int ms_hosts_expand(const char *text,
                    char ***names,
                    size_t *count,
                    struct ms_error *err)
{
    const char *open = strchr(text, '['), *close = open ? strchr(open, ']') : NULL;
    struct list l = {.text = text, .prefix = strcspn(text, "["), .suffix = ""};
    int rc;

    if (open && (!close || strpbrk(close + 1, "[]")))
        return ms_error_set(
            err, -EINVAL, "'%s': one pair of brackets is possible", text);
    if (open) {
        l.suffix = close + 1;
        rc = add_ranges(&l, open + 1, err);
    } else {
        rc = add(&l, 0, -1, err);
    }
    if (rc < 0) {
        ms_hosts_free(l.names, l.count);
        return rc;
    }
    *names = l.names;
    *count = l.count;
    return 0;
}
