/* label.c - labels of nodes, and conditions on them */
#include "resource/label.h"
#include "base/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char label_chars[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                  "0123456789_./:-";

const char *ms_label_find(const struct ms_label *labels, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(labels[i].name, name) == 0)
            return labels[i].value;
    return NULL;
}

int ms_label_check(const char *text, const char *what, struct ms_error *err)
{
    size_t len = strlen(text);

    if (len == 0)
        return ms_error_set(err, -EINVAL, "a %s is empty", what);
    if (len > MS_LABEL_MAX)
        return ms_error_set(
            err, -E2BIG, "a %s is longer than %zu characters", what, MS_LABEL_MAX);
    if (strspn(text, label_chars) != len)
        return ms_error_set(err,
                            -EINVAL,
                            "%s '%s': only letters, digits and _ . / : - are allowed",
                            what,
                            text);
    return 0;
}

int ms_label_check_new(const char *node,
                       const char *noun,
                       const char *name,
                       bool is_taken,
                       size_t count,
                       struct ms_error *err)
{
    char what[32];
    int rc;

    snprintf(what, sizeof what, "name of a %s", noun);
    rc = ms_label_check(name, what, err);
    if (rc < 0)
        return rc;
    if (is_taken)
        return ms_error_set(
            err, -EEXIST, "node '%s' has the %s '%s' twice", node, noun, name);
    if (count >= MS_LABELS_MAX)
        return ms_error_set(
            err, -E2BIG, "node '%s': more than %zu %ss", node, MS_LABELS_MAX, noun);
    return 0;
}

/* ---- conditions ------------------------------------------------------------------ */

static void condition_finish(struct ms_condition *c)
{
    for (size_t i = 0; i < c->value_count; i++)
        free(c->values[i]);
    free(c->values);
    free(c->name);
    *c = (struct ms_condition){0};
}

void ms_selector_init(struct ms_selector *s)
{
    *s = (struct ms_selector){0};
}

void ms_selector_finish(struct ms_selector *s)
{
    for (size_t i = 0; i < s->count; i++)
        condition_finish(&s->conditions[i]);
    free(s->conditions);
    ms_selector_init(s);
}

static int
add_value(struct ms_condition *c, const char *at, size_t len, struct ms_error *err)
{
    MS_CLEANUP(ms_cleanup_free) char *value = strndup(at, len);
    char **values;
    int rc;

    if (!value)
        return ms_error_set(err, -ENOMEM, "out of memory");
    rc = ms_label_check(value, "value of a label", err);
    if (rc < 0)
        return rc;
    if (c->value_count == MS_CONDITIONS_MAX)
        return ms_error_set(
            err, -E2BIG, "a condition has more than %zu values", MS_CONDITIONS_MAX);
    values = realloc(c->values, (c->value_count + 1) * sizeof *values);
    if (!values)
        return ms_error_set(err, -ENOMEM, "out of memory");
    c->values = values;
    c->values[c->value_count++] = MS_TAKE(value);
    return 0;
}

/* "a,b" of "in(a,b)". */
static int
add_values(struct ms_condition *c, const char *at, size_t len, struct ms_error *err)
{
    const char *end = at + len;
    int rc;

    for (;;) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const char *stop = comma ? comma : end;

        while (at < stop && *at == ' ')
            at++;
        rc = add_value(c, at, (size_t)(stop - at), err);
        if (rc < 0 || !comma)
            return rc;
        at = comma + 1;
    }
}

static int
condition_parse(struct ms_condition *c, const char *text, struct ms_error *err)
{
    size_t len = strlen(text);

    if (text[0] == '!') {
        c->negated = true;
        text++;
        len--;
    }
    if (strncmp(text, "in(", 3) != 0)
        return add_value(c, text, len, err);
    if (text[len - 1] != ')')
        return ms_error_set(err, -EINVAL, "'%s' does not end with ')'", text);
    return add_values(c, text + 3, len - 4, err);
}

int ms_selector_add(struct ms_selector *s,
                    const char *name,
                    const char *condition,
                    struct ms_error *err)
{
    struct ms_condition c = {0}, *grown;
    int rc = ms_label_check(name, "name of a label", err);

    if (rc == 0 && s->count == MS_LABELS_MAX)
        rc = ms_error_set(
            err, -E2BIG, "a selector has more than %zu conditions", MS_LABELS_MAX);
    if (rc == 0)
        rc = condition_parse(&c, condition, err);
    if (rc < 0) {
        condition_finish(&c);
        ms_error_wrap(err, "label selector '%s'", name);
        return rc;
    }
    c.name = strdup(name);
    grown = realloc(s->conditions, (s->count + 1) * sizeof *grown);
    if (grown)
        s->conditions = grown;
    if (!c.name || !grown) {
        condition_finish(&c);
        return ms_error_set(err, -ENOMEM, "out of memory");
    }
    s->conditions[s->count++] = c;
    return 0;
}

static bool
holds(const struct ms_condition *c, const struct ms_label *labels, size_t count)
{
    const char *value = ms_label_find(labels, count, c->name);

    for (size_t i = 0; value && i < c->value_count; i++)
        if (strcmp(value, c->values[i]) == 0)
            return !c->negated;
    return c->negated;
}

const struct ms_condition *ms_selector_misfit(const struct ms_selector *s,
                                              const struct ms_label *labels,
                                              size_t count)
{
    for (size_t i = 0; i < s->count; i++)
        if (!holds(&s->conditions[i], labels, count))
            return &s->conditions[i];
    return NULL;
}

static bool condition_is_equal(const struct ms_condition *a,
                               const struct ms_condition *b)
{
    if (strcmp(a->name, b->name) != 0 || a->negated != b->negated ||
        a->value_count != b->value_count)
        return false;
    for (size_t i = 0; i < a->value_count; i++)
        if (strcmp(a->values[i], b->values[i]) != 0)
            return false;
    return true;
}

bool ms_selector_is_equal(const struct ms_selector *a, const struct ms_selector *b)
{
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++)
        if (!condition_is_equal(&a->conditions[i], &b->conditions[i]))
            return false;
    return true;
}
