/* mapping.c - device mappings, as people write them */
#include "resource/mapping.h"
#include "base/cleanup.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { IDS_MIN = 64, EXCERPT_MAX = 60 };

struct parser {
    const char *text;
    size_t at;
    uint32_t *ids;
    size_t count, capacity;
    struct ms_error *err;
};

static void skip_blanks(struct parser *p)
{
    while (isspace((unsigned char)p->text[p->at]))
        p->at++;
}

static int fail_at(struct parser *p, size_t at, int code, const char *what)
{
    const char *more = strlen(p->text) > EXCERPT_MAX ? "..." : "";

    return ms_error_set(p->err,
                        code,
                        "device mapping '%.*s%s', character %zu: %s",
                        EXCERPT_MAX,
                        p->text,
                        more,
                        at + 1,
                        what);
}

/* "<wanted> is expected, not 'x'" */
static int fail_expected(struct parser *p, const char *wanted)
{
    char what[128];
    char c;

    skip_blanks(p);
    c = p->text[p->at];
    if (!c)
        snprintf(what, sizeof what, "%s is expected, not the end", wanted);
    else if (isprint((unsigned char)c))
        snprintf(what, sizeof what, "%s is expected, not '%c'", wanted, c);
    else
        snprintf(what, sizeof what, "%s is expected", wanted);
    return fail_at(p, p->at, -EINVAL, what);
}

/* Take `c` if it comes next. */
static bool accept(struct parser *p, char c)
{
    skip_blanks(p);
    if (p->text[p->at] != c)
        return false;
    p->at++;
    return true;
}

static int expect(struct parser *p, char c, const char *wanted)
{
    return accept(p, c) ? 0 : fail_expected(p, wanted);
}

static bool accept_word(struct parser *p, const char *word)
{
    size_t len = strlen(word);

    skip_blanks(p);
    if (strncmp(p->text + p->at, word, len) != 0 ||
        isalnum((unsigned char)p->text[p->at + len]) || p->text[p->at + len] == '_')
        return false;
    p->at += len;
    return true;
}

/* A decimal number from 0 to MS_MAPPING_ID_MAX + 1 (a range's end is exclusive). */
static int parse_number(struct parser *p, int64_t *out)
{
    size_t from;
    int64_t n = 0;

    skip_blanks(p);
    from = p->at;
    if (!isdigit((unsigned char)p->text[p->at]))
        return fail_expected(p, "a device number");
    for (; isdigit((unsigned char)p->text[p->at]); p->at++) {
        n = n * 10 + (p->text[p->at] - '0');
        if (n > (int64_t)MS_MAPPING_ID_MAX + 1)
            return fail_at(p, from, -E2BIG, "the number is too big for a device id");
    }
    *out = n;
    return 0;
}

static int parse_signed(struct parser *p, int64_t *out)
{
    bool negative = accept(p, '-');
    int rc = parse_number(p, out);

    if (rc == 0 && negative)
        *out = -*out;
    return rc;
}

static int add_id(struct parser *p, size_t at, int64_t id)
{
    if (id < 0)
        return fail_at(p, at, -EINVAL, "device ids start at 0");
    if (id > (int64_t)MS_MAPPING_ID_MAX)
        return fail_at(p, at, -E2BIG, "the number is too big for a device id");
    if (p->count == MS_MAPPING_IDS_MAX)
        return fail_at(p, at, -E2BIG, "that makes more than 1048576 devices");
    if (p->count == p->capacity) {
        size_t capacity = p->capacity ? 2 * p->capacity : IDS_MIN;
        uint32_t *ids = realloc(p->ids, capacity * sizeof *ids);

        if (!ids)
            return fail_at(p, at, -ENOMEM, "out of memory");
        p->ids = ids;
        p->capacity = capacity;
    }
    p->ids[p->count++] = (uint32_t)id;
    return 0;
}

static int add_run(struct parser *p, size_t at, int64_t from, int64_t end, int64_t step)
{
    int rc = 0;

    for (int64_t id = from; rc == 0 && (step > 0 ? id < end : id > end); id += step)
        rc = add_id(p, at, id);
    return rc;
}

/* "4" or "4-7" */
static int parse_item(struct parser *p)
{
    int64_t first, last;
    size_t at;
    int rc;

    skip_blanks(p);
    at = p->at;
    rc = parse_number(p, &first);
    if (rc < 0)
        return rc;
    last = first;
    if (accept(p, '-'))
        rc = parse_number(p, &last);
    if (rc < 0)
        return rc;
    if (last < first)
        return fail_at(
            p, at, -EINVAL, "the run goes backwards: write the lower id first");
    return add_run(p, at, first, last + 1, 1);
}

/* Items up to `end` ('\0': as far as there are commas). */
static int parse_items(struct parser *p, char end)
{
    int rc;

    if (end && accept(p, end))
        return 0;
    do {
        rc = parse_item(p);
        if (rc < 0)
            return rc;
        if (!accept(p, ','))
            return end ? expect(p, end, "',' or ']'") : 0;
    } while (!end || !accept(p, end));
    return 0;
}

/* What comes after "range". */
static int parse_range(struct parser *p)
{
    int64_t n[3] = {0, 0, 1};
    size_t at, given = 0;
    int rc = expect(p, '(', "'(' after range");

    skip_blanks(p);
    at = p->at;
    while (rc == 0 && given < MS_COUNT(n)) {
        rc = parse_signed(p, &n[given++]);
        if (rc == 0 && !accept(p, ','))
            break;
    }
    if (rc == 0)
        rc = expect(p, ')', given < MS_COUNT(n) ? "',' or ')'" : "')'");
    if (rc < 0)
        return rc;
    if (n[2] == 0)
        return fail_at(p, at, -EINVAL, "a range's step must not be 0");
    return given == 1 ? add_run(p, at, 0, n[0], 1) : add_run(p, at, n[0], n[1], n[2]);
}

/* What comes after "list". */
static int parse_list(struct parser *p)
{
    int rc = expect(p, '(', "'(' after list");

    if (rc < 0)
        return rc;
    if (accept_word(p, "range"))
        rc = parse_range(p);
    else if (accept(p, '['))
        rc = parse_items(p, ']');
    else
        return fail_expected(p, "range(...) or [...]");
    return rc < 0 ? rc : expect(p, ')', "')'");
}

static int parse_term(struct parser *p)
{
    if (accept_word(p, "list"))
        return parse_list(p);
    if (accept_word(p, "range"))
        return parse_range(p);
    if (accept(p, '['))
        return parse_items(p, ']');
    skip_blanks(p);
    if (!isdigit((unsigned char)p->text[p->at]))
        return fail_expected(p, "a device number, [...] or list(range(...))");
    return parse_items(p, 0);
}

static int parse_all(struct parser *p)
{
    int rc = parse_term(p);

    while (rc == 0 && accept(p, '+'))
        rc = parse_term(p);
    skip_blanks(p);
    if (rc == 0 && p->text[p->at])
        rc = fail_expected(p, "'+' or the end");
    return rc;
}

int ms_mapping_parse(const char *text,
                     uint32_t **ids,
                     size_t *count,
                     struct ms_error *err)
{
    struct parser p = {.text = text, .err = err};
    int rc;

    if (strnlen(text, MS_MAPPING_TEXT_MAX + 1) > MS_MAPPING_TEXT_MAX)
        return ms_error_set(err,
                            -E2BIG,
                            "device mapping: longer than %zu characters",
                            MS_MAPPING_TEXT_MAX);
    skip_blanks(&p);
    if (!text[p.at])
        return ms_error_set(err,
                            -EINVAL,
                            "device mapping: it is empty; write ids such as '0-7', or "
                            "leave it out for workers without devices");
    rc = parse_all(&p);
    if (rc < 0) {
        free(p.ids);
        return rc;
    }
    *ids = p.ids;
    *count = p.count;
    return 0;
}

int ms_mapping_print(const uint32_t *ids,
                     size_t count,
                     uint32_t base,
                     struct ms_buf *out)
{
    if (count == 0)
        ms_buf_printf(out, "none");
    for (size_t i = 0, end; i < count; i = end) {
        for (end = i + 1; end < count && ids[end] == ids[end - 1] + 1; end++)
            ;
        ms_buf_printf(out, i ? ",%u" : "%u", base + ids[i]);
        if (end - i > 1)
            ms_buf_printf(out, "%c%u", end - i > 2 ? '-' : ',', base + ids[end - 1]);
    }
    return out->failed;
}
