/* mapping.c - device mappings, as people write them */
#include "resource/mapping.h"
#include "base/cleanup.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { IDS_MIN = 64, EXCERPT_MAX = 60 };

/* After a failure nothing is accepted or added any more. */
struct parser {
    const char *text;
    size_t at;
    uint32_t *ids;
    size_t count, capacity;
    int rc; /* 0, or the first failure */
    struct ms_error *err;
};

static void skip_blanks(struct parser *p)
{
    while (isspace((unsigned char)p->text[p->at]))
        p->at++;
}

static void fail_at(struct parser *p, size_t at, int code, const char *what)
{
    const char *more = strlen(p->text) > EXCERPT_MAX ? "..." : "";

    if (p->rc == 0)
        p->rc = ms_error_set(p->err,
                             code,
                             "device mapping '%.*s%s', character %zu: %s",
                             EXCERPT_MAX,
                             p->text,
                             more,
                             at + 1,
                             what);
}

/* "<wanted> is expected, not 'x'" */
static void fail_expected(struct parser *p, const char *wanted)
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
    fail_at(p, p->at, -EINVAL, what);
}

/* Take `c` if it comes next. */
static bool accept(struct parser *p, char c)
{
    skip_blanks(p);
    if (p->rc < 0 || p->text[p->at] != c)
        return false;
    p->at++;
    return true;
}

static void expect(struct parser *p, char c, const char *wanted)
{
    if (!accept(p, c))
        fail_expected(p, wanted);
}

static bool accept_word(struct parser *p, const char *word)
{
    size_t len = strlen(word);

    skip_blanks(p);
    if (p->rc < 0 || strncmp(p->text + p->at, word, len) != 0 ||
        isalnum((unsigned char)p->text[p->at + len]) || p->text[p->at + len] == '_')
        return false;
    p->at += len;
    return true;
}

/* A decimal number from 0 to MS_MAPPING_ID_MAX + 1 (a range's end is exclusive). */
static int64_t parse_number(struct parser *p)
{
    int64_t n = 0;
    size_t from;

    skip_blanks(p);
    from = p->at;
    if (!isdigit((unsigned char)p->text[p->at]))
        fail_expected(p, "a device number");
    for (; p->rc == 0 && isdigit((unsigned char)p->text[p->at]); p->at++) {
        n = n * 10 + (p->text[p->at] - '0');
        if (n > (int64_t)MS_MAPPING_ID_MAX + 1)
            fail_at(p, from, -E2BIG, "the number is too big for a device id");
    }
    return n;
}

static void add_id(struct parser *p, size_t at, int64_t id)
{
    if (id < 0)
        fail_at(p, at, -EINVAL, "device ids start at 0");
    if (id > (int64_t)MS_MAPPING_ID_MAX)
        fail_at(p, at, -E2BIG, "the number is too big for a device id");
    if (p->count == MS_MAPPING_IDS_MAX)
        fail_at(p, at, -E2BIG, "that makes more than 1048576 devices");
    if (p->rc == 0 && p->count == p->capacity) {
        size_t capacity = p->capacity ? 2 * p->capacity : IDS_MIN;
        uint32_t *ids = realloc(p->ids, capacity * sizeof *ids);

        if (!ids) {
            fail_at(p, at, -ENOMEM, "out of memory");
            return;
        }
        p->ids = ids;
        p->capacity = capacity;
    }
    if (p->rc == 0)
        p->ids[p->count++] = (uint32_t)id;
}

static void
add_run(struct parser *p, size_t at, int64_t from, int64_t end, int64_t step)
{
    for (int64_t id = from; p->rc == 0 && (step > 0 ? id < end : id > end); id += step)
        add_id(p, at, id);
}

/* "4" or "4-7" */
static void parse_item(struct parser *p)
{
    int64_t first, last;
    size_t at;

    skip_blanks(p);
    at = p->at;
    first = parse_number(p);
    last = accept(p, '-') ? parse_number(p) : first;
    if (last < first)
        fail_at(p, at, -EINVAL, "the run goes backwards: write the lower id first");
    add_run(p, at, first, last + 1, 1);
}

/* Items up to `end` ('\0': as far as there are commas). */
static void parse_items(struct parser *p, char end)
{
    if (end && accept(p, end))
        return;
    do {
        parse_item(p);
        if (!accept(p, ',')) {
            if (end)
                expect(p, end, "',' or ']'");
            return;
        }
    } while (!end || !accept(p, end));
}

/* What comes after "range". */
static void parse_range(struct parser *p)
{
    int64_t n[3] = {0, 0, 1};
    size_t at, given = 0;

    expect(p, '(', "'(' after range");
    skip_blanks(p);
    at = p->at;
    while (given < MS_COUNT(n)) {
        int64_t sign = accept(p, '-') ? -1 : 1;

        n[given++] = sign * parse_number(p);
        if (!accept(p, ','))
            break;
    }
    expect(p, ')', given < MS_COUNT(n) ? "',' or ')'" : "')'");
    if (n[2] == 0)
        fail_at(p, at, -EINVAL, "a range's step must not be 0");
    if (given == 1)
        add_run(p, at, 0, n[0], 1);
    else
        add_run(p, at, n[0], n[1], n[2]);
}

/* What comes after "list". */
static void parse_list(struct parser *p)
{
    expect(p, '(', "'(' after list");
    if (accept_word(p, "range"))
        parse_range(p);
    else if (accept(p, '['))
        parse_items(p, ']');
    else
        fail_expected(p, "range(...) or [...]");
    expect(p, ')', "')'");
}

static void parse_term(struct parser *p)
{
    if (accept_word(p, "list"))
        parse_list(p);
    else if (accept_word(p, "range"))
        parse_range(p);
    else if (accept(p, '['))
        parse_items(p, ']');
    else if (isdigit((unsigned char)p->text[p->at]))
        parse_items(p, 0);
    else
        fail_expected(p, "a device number, [...] or list(range(...))");
}

int ms_mapping_parse(const char *text,
                     uint32_t **ids,
                     size_t *count,
                     struct ms_error *err)
{
    struct parser p = {.text = text, .err = err};

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
    do
        parse_term(&p);
    while (accept(&p, '+'));
    skip_blanks(&p);
    if (text[p.at])
        fail_expected(&p, "'+' or the end");
    if (p.rc < 0) {
        free(p.ids);
        return p.rc;
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
