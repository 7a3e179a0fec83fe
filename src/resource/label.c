/* label.c - labels of nodes, and conditions on them */
#include "resource/label.h"
#include "base/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char label_chars[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                  "0123456789_./:-";

const char *ms_label_find(char *const *labels, size_t count, const char *name)
{
    size_t len = strlen(name);

    for (size_t i = 0; i < count; i++)
        if (strncmp(labels[i], name, len) == 0 && labels[i][len] == '=')
            return labels[i] + len + 1;
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

int ms_label_check_text(const char *node,
                        const char *text,
                        char *const *labels,
                        size_t count,
                        struct ms_error *err)
{
    const char *value = strchr(text, '=');
    char name[MS_LABEL_MAX + 2];
    int rc;

    if (!value)
        return ms_error_set(err, -EINVAL, "'%s' is no label: NAME=VALUE is", text);
    snprintf(name, sizeof name, "%.*s", (int)(value - text), text);
    rc = ms_label_check_new(
        node, "label", name, ms_label_find(labels, count, name), count, err);
    return rc < 0 ? rc : ms_label_check(value + 1, "value of a label", err);
}

/* ---- conditions ------------------------------------------------------------------ */

void ms_selector_finish(struct ms_selector *s)
{
    for (size_t i = 0; i < s->count; i++) {
        free(s->conditions[i].name);
        free(s->conditions[i].text);
    }
    free(s->conditions);
    *s = (struct ms_selector){0};
}

/* The values "a, b)" of a list become "a,b)". How many, or a negative errno. */
static int copy_values(const char *from, char *to, struct ms_error *err)
{
    char value[MS_LABEL_MAX + 2];
    int rc, count = 0;

    for (const char *at = from, *stop;; at = stop + 1) {
        at += strspn(at, " ");
        stop = at + strcspn(at, ",)");
        if (*stop == ')' && stop[1])
            stop += strlen(stop) - 1; /* a ')' that is not the last */
        snprintf(value, sizeof value, "%.*s", (int)(stop - at), at);
        rc = ms_label_check(value, "value of a label", err);
        if (rc == 0 && count++ == (int)MS_CONDITIONS_MAX)
            rc = ms_error_set(
                err, -E2BIG, "a condition has more than %zu values", MS_CONDITIONS_MAX);
        if (rc < 0)
            return rc;
        to = stpcpy(to, value);
        *to++ = *stop;
        *to = 0;
        if (*stop == ')')
            return count;
    }
}

/* `out` has room for as much as `text`. */
static int condition_parse(const char *text, char *out, struct ms_error *err)
{
    size_t len;
    int rc;

    if (*text == '!')
        *out++ = *text++;
    len = strlen(text);
    memcpy(out, text, len + 1);
    if (strncmp(text, "in(", 3) != 0)
        return ms_label_check(text, "value of a label", err);
    if (text[len - 1] != ')')
        return ms_error_set(err, -EINVAL, "'%s' does not end with ')'", text);
    rc = copy_values(text + 3, out + 3, err);
    if (rc == 1) { /* "in(a)" is "a" */
        memmove(out, out + 3, strlen(out + 3) + 1);
        out[strlen(out) - 1] = 0;
    }
    return rc < 0 ? rc : 0;
}

int ms_selector_add(struct ms_selector *s,
                    const char *name,
                    const char *condition,
                    struct ms_error *err)
{
    MS_CLEANUP(ms_cleanup_free) char *own_name = strdup(name);
    MS_CLEANUP(ms_cleanup_free) char *text = malloc(strlen(condition) + 1);
    struct ms_condition *grown = realloc(s->conditions, (s->count + 1) * sizeof *grown);
    int rc = ms_label_check(name, "name of a label", err);

    if (grown)
        s->conditions = grown;
    if (!own_name || !text || !grown)
        return ms_error_set(err, -ENOMEM, "out of memory");
    if (rc == 0 && s->count == MS_LABELS_MAX)
        rc = ms_error_set(
            err, -E2BIG, "a selector has more than %zu conditions", MS_LABELS_MAX);
    if (rc == 0)
        rc = condition_parse(condition, text, err);
    if (rc < 0) {
        ms_error_wrap(err, "label selector '%s'", name);
        return rc;
    }
    s->conditions[s->count++] =
        (struct ms_condition){.name = MS_TAKE(own_name), .text = MS_TAKE(text)};
    return 0;
}

bool ms_condition_next(const struct ms_condition *c, const char **at, size_t *len)
{
    if (*at && (*at)[*len] != ',')
        return false;
    *at = *at ? *at + *len + 1 : c->text + (*c->text == '!');
    if (strncmp(*at, "in(", 3) == 0)
        *at += 3;
    *len = strcspn(*at, ",)");
    return true;
}

static bool holds(const struct ms_condition *c, char *const *labels, size_t count)
{
    const char *value = ms_label_find(labels, count, c->name), *at = NULL;
    bool is_negated = *c->text == '!';
    size_t len = 0;

    while (value && ms_condition_next(c, &at, &len))
        if (strncmp(at, value, len) == 0 && !value[len])
            return !is_negated;
    return is_negated;
}

const struct ms_condition *
ms_selector_misfit(const struct ms_selector *s, char *const *labels, size_t count)
{
    for (size_t i = 0; i < s->count; i++)
        if (!holds(&s->conditions[i], labels, count))
            return &s->conditions[i];
    return NULL;
}

bool ms_selector_is_equal(const struct ms_selector *a, const struct ms_selector *b)
{
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++)
        if (strcmp(a->conditions[i].name, b->conditions[i].name) != 0 ||
            strcmp(a->conditions[i].text, b->conditions[i].text) != 0)
            return false;
    return true;
}
