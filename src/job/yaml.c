/* yaml.c - YAML files whose every value knows where it stands, over libyaml */
#include "job/yaml.h"
#include "base/cleanup.h"
#include "base/nearest.h"
#include "base/size.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <yaml.h>

struct ms_yaml {
    char *name;
    yaml_document_t document;
};

/* ---- the document ---------------------------------------------------------------- */

static yaml_node_t *node_of(struct ms_yaml_at at)
{
    /* libyaml's getters are not const */
    yaml_document_t *d = (yaml_document_t *)(uintptr_t)&at.yaml->document;

    return at.node > 0 ? yaml_document_get_node(d, at.node) : NULL;
}

static int parse_error(const yaml_parser_t *p, const char *name, struct ms_error *err)
{
    if (p->error == YAML_MEMORY_ERROR)
        return ms_error_set(err, -ENOMEM, "out of memory");
    return ms_error_set(err,
                        -EINVAL,
                        "%s:%zu:%zu: %s%s%s",
                        name,
                        p->problem_mark.line + 1,
                        p->problem_mark.column + 1,
                        p->problem ? p->problem : "not YAML",
                        p->context ? ", " : "",
                        p->context ? p->context : "");
}

/* There is one document in a file. */
static int check_end(yaml_parser_t *p, const char *name, struct ms_error *err)
{
    yaml_document_t next;
    yaml_node_t *root;
    int rc = 0;

    if (!yaml_parser_load(p, &next))
        return parse_error(p, name, err);
    root = yaml_document_get_root_node(&next);
    if (root)
        rc = ms_error_set(err,
                          -EINVAL,
                          "%s:%zu:%zu: a second document begins here; one is all",
                          name,
                          root->start_mark.line + 1,
                          root->start_mark.column + 1);
    yaml_document_delete(&next);
    return rc;
}

/* What a reader comes upon that follows every alias: counted before anything is made of it. */
struct yaml_sizes {
    size_t values, bytes;
};

static int
measure(struct ms_yaml_at at, int level, struct yaml_sizes *all, struct ms_error *err)
{
    const char *text = ms_yaml_text(at);
    int rc = 0;

    all->bytes += text ? strlen(text) : 0;
    if (++all->values > MS_YAML_VALUES_MAX)
        return ms_yaml_fail(at,
                            err,
                            "more than %zu values up to here, with what aliases repeat",
                            MS_YAML_VALUES_MAX);
    if (all->bytes > MS_YAML_FILE_MAX)
        return ms_yaml_fail(at,
                            err,
                            "more than %zu bytes of text up to here, with what aliases "
                            "repeat",
                            MS_YAML_FILE_MAX);
    if (level == MS_YAML_LEVELS_MAX)
        return 0;
    for (size_t i = 0; rc == 0 && i < ms_yaml_count(at); i++) {
        if (ms_yaml_is_map(at))
            rc = measure(ms_yaml_key(at, i), level + 1, all, err);
        if (rc == 0)
            rc =
                measure(ms_yaml_is_map(at) ? ms_yaml_value(at, i) : ms_yaml_item(at, i),
                        level + 1,
                        all,
                        err);
    }
    return rc;
}

struct ms_yaml *
ms_yaml_read(const char *name, const char *text, size_t len, struct ms_error *err)
{
    MS_CLEANUP(ms_yaml_cleanup) struct ms_yaml *y = calloc(1, sizeof *y);
    yaml_parser_t parser;
    int rc = 0;

    if (!y || !(y->name = strdup(name)) || !yaml_parser_initialize(&parser)) {
        ms_error_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, len);
    if (!yaml_parser_load(&parser, &y->document))
        rc = parse_error(&parser, name, err);
    else if (yaml_document_get_root_node(&y->document))
        rc = check_end(&parser, name, err);
    yaml_parser_delete(&parser);
    if (rc == 0)
        rc = measure(ms_yaml_root(y), 0, &(struct yaml_sizes){0}, err);
    return rc < 0 ? NULL : MS_TAKE(y);
}

void ms_yaml_cleanup(struct ms_yaml **y)
{
    if (!*y)
        return;
    yaml_document_delete(&(*y)->document);
    free((*y)->name);
    free(*y);
}

struct ms_yaml_at ms_yaml_root(const struct ms_yaml *y)
{
    struct ms_yaml_at at = {y, 1};

    if (!node_of(at))
        at.node = 0; /* an empty file */
    return at;
}

/* ---- errors ---------------------------------------------------------------------- */

struct ms_yaml_mark ms_yaml_mark(struct ms_yaml_at at)
{
    const yaml_node_t *n = node_of(at);

    return n ? (struct ms_yaml_mark){n->start_mark.line + 1, n->start_mark.column + 1}
             : (struct ms_yaml_mark){1, 1};
}

static int
fail_at(struct ms_yaml_at at, int code, const char *text, struct ms_error *err)
{
    struct ms_yaml_mark m = ms_yaml_mark(at);

    return ms_error_set(
        err, code, "%s:%zu:%zu: %s", at.yaml->name, m.line, m.column, text);
}

int ms_yaml_fail(struct ms_yaml_at at, struct ms_error *err, const char *fmt, ...)
{
    char text[400];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return fail_at(at, -EINVAL, text, err);
}

int ms_yaml_blame(struct ms_yaml_at at, int rc, struct ms_error *err)
{
    struct ms_error why = {0};

    if (rc == 0 || !err)
        return rc;
    why = *err;
    return fail_at(at, rc, why.text, err);
}

/* ---- values ---------------------------------------------------------------------- */

bool ms_yaml_is_plain(struct ms_yaml_at at)
{
    const yaml_node_t *n = node_of(at);

    return n && n->type == YAML_SCALAR_NODE &&
           n->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
}

const char *ms_yaml_text(struct ms_yaml_at at)
{
    const yaml_node_t *n = node_of(at);

    if (!n || n->type != YAML_SCALAR_NODE ||
        memchr(n->data.scalar.value, 0, n->data.scalar.length))
        return NULL;
    return (const char *)n->data.scalar.value;
}

bool ms_yaml_is_null(struct ms_yaml_at at)
{
    const char *text = ms_yaml_text(at);

    return !node_of(at) ||
           (ms_yaml_is_plain(at) && text &&
            (!*text || !strcmp(text, "~") || !strcasecmp(text, "null")));
}

static bool is_of(struct ms_yaml_at at, yaml_node_type_t type)
{
    const yaml_node_t *n = node_of(at);

    return n && n->type == type;
}

bool ms_yaml_is_map(struct ms_yaml_at at)
{
    return is_of(at, YAML_MAPPING_NODE);
}

bool ms_yaml_is_list(struct ms_yaml_at at)
{
    return is_of(at, YAML_SEQUENCE_NODE);
}

size_t ms_yaml_count(struct ms_yaml_at at)
{
    const yaml_node_t *n = node_of(at);

    if (ms_yaml_is_map(at))
        return (size_t)(n->data.mapping.pairs.top - n->data.mapping.pairs.start);
    if (ms_yaml_is_list(at))
        return (size_t)(n->data.sequence.items.top - n->data.sequence.items.start);
    return 0;
}

struct ms_yaml_at ms_yaml_item(struct ms_yaml_at list, size_t i)
{
    return (struct ms_yaml_at){list.yaml, node_of(list)->data.sequence.items.start[i]};
}

struct ms_yaml_at ms_yaml_key(struct ms_yaml_at map, size_t i)
{
    return (struct ms_yaml_at){map.yaml, node_of(map)->data.mapping.pairs.start[i].key};
}

struct ms_yaml_at ms_yaml_value(struct ms_yaml_at map, size_t i)
{
    return (struct ms_yaml_at){map.yaml,
                               node_of(map)->data.mapping.pairs.start[i].value};
}

/* ---- maps by a table ------------------------------------------------------------- */

static bool is_text(struct ms_yaml_at at, const char *text)
{
    const char *is = ms_yaml_text(at);

    return is && strcmp(is, text) == 0;
}

static int unknown_key(struct ms_yaml_at key,
                       const char *what,
                       const struct ms_yaml_field *fields,
                       struct ms_error *err)
{
    struct ms_nearest near = {.word = ms_yaml_text(key)};
    char all[256] = "";
    size_t len = 0;

    if (!near.word)
        return ms_yaml_fail(key, err, "a key of %s must be text", what);
    for (const struct ms_yaml_field *f = fields; f->key; f++) {
        ms_nearest_consider(&near, f->key);
        if (len < sizeof all)
            len += (size_t)snprintf(
                all + len, sizeof all - len, "%s%s", len ? ", " : "", f->key);
    }
    if (near.best)
        return ms_yaml_fail(key,
                            err,
                            "%s has no key '%.64s'; is '%s' meant?",
                            what,
                            near.word,
                            near.best);
    return ms_yaml_fail(
        key, err, "%s has no key '%.64s'; there are %s", what, near.word, all);
}

static int read_entry(struct ms_yaml_at at,
                      size_t i,
                      const char *what,
                      const struct ms_yaml_field *fields,
                      void *out,
                      struct ms_error *err)
{
    struct ms_yaml_at key = ms_yaml_key(at, i), value = ms_yaml_value(at, i);
    const struct ms_yaml_field *f = fields;

    while (f->key && !is_text(key, f->key))
        f++;
    if (!f->key)
        return unknown_key(key, what, fields, err);
    for (size_t k = 0; k < i; k++)
        if (is_text(ms_yaml_key(at, k), f->key))
            return ms_yaml_fail(key, err, "'%s' stands here twice", f->key);
    if (ms_yaml_is_null(value))
        return ms_yaml_fail(value, err, "'%s' has no value", f->key);
    return f->read(value, (char *)out + f->offset, err);
}

int ms_yaml_map(struct ms_yaml_at at,
                const char *what,
                const struct ms_yaml_field *fields,
                void *out,
                struct ms_error *err)
{
    size_t count = ms_yaml_count(at);
    int rc = 0;

    if (!ms_yaml_is_map(at))
        return ms_yaml_fail(at, err, "%s must be a map of keys and values", what);
    for (size_t i = 0; i < count && rc == 0; i++)
        rc = read_entry(at, i, what, fields, out, err);
    for (const struct ms_yaml_field *f = fields; f->key && rc == 0; f++) {
        bool is_there = !f->is_needed;

        for (size_t i = 0; i < count && !is_there; i++)
            is_there = is_text(ms_yaml_key(at, i), f->key);
        if (!is_there)
            rc = ms_yaml_fail(at, err, "%s needs '%s'", what, f->key);
    }
    return rc;
}

/* ---- readers --------------------------------------------------------------------- */

/* "not 'abc'", or what else it is. */
static int wrong(struct ms_yaml_at at, const char *wanted, struct ms_error *err)
{
    const char *text = ms_yaml_text(at);

    if (text)
        return ms_yaml_fail(at,
                            err,
                            "%s is wanted here, not %s'%.64s'",
                            wanted,
                            ms_yaml_is_plain(at) ? "" : "the text ",
                            text);
    return ms_yaml_fail(at,
                        err,
                        "%s is wanted here, not a %s",
                        wanted,
                        ms_yaml_is_map(at) ? "map" : "list");
}

int ms_yaml_to_text(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    const char *text = ms_yaml_text(at);
    char **to = out;

    if (!text || !*text)
        return wrong(at, "a text", err);
    *to = strdup(text);
    return *to ? 0 : ms_error_set(err, -ENOMEM, "out of memory");
}

/* Digits alone. */
static int
whole(struct ms_yaml_at at, uint64_t most, uint64_t *out, struct ms_error *err)
{
    const char *text = ms_yaml_is_plain(at) ? ms_yaml_text(at) : NULL;
    uint64_t n;

    if (!text || !*text || strspn(text, "0123456789") != strlen(text))
        return wrong(at, "a whole number", err);
    errno = 0;
    n = strtoull(text, NULL, 10);
    if (errno || n > most)
        return ms_yaml_fail(
            at, err, "%.64s is more than %llu", text, (unsigned long long)most);
    *out = n;
    return 0;
}

int ms_yaml_to_count(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    uint64_t n = 0;
    int rc = whole(at, UINT32_MAX - 1, &n, err);

    if (rc == 0)
        *(uint32_t *)out = (uint32_t)n;
    return rc;
}

int ms_yaml_to_amount(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    return whole(at, INT64_MAX, out, err);
}

int ms_yaml_to_milli(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    const char *text = ms_yaml_is_plain(at) ? ms_yaml_text(at) : NULL;
    double n = 0;
    char *end = NULL;

    if (text && strspn(text, "0123456789.") == strlen(text))
        n = strtod(text, &end);
    if (!end || end == text || *end)
        return wrong(at, "a number", err);
    if (n > 1e9)
        return ms_yaml_fail(at, err, "%.64s is more than 1000000000", text);
    *(uint64_t *)out = (uint64_t)(n * 1000 + 0.5);
    return 0;
}

int ms_yaml_to_size(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    const char *text = ms_yaml_text(at);

    return text && ms_size_parse(text, out) == 0
               ? 0
               : wrong(at, "a size such as 80GiB", err);
}

int ms_yaml_to_bool(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    const char *text = ms_yaml_is_plain(at) ? ms_yaml_text(at) : "";
    bool is_true = text && !strcasecmp(text, "true");

    if (!is_true && (!text || strcasecmp(text, "false") != 0))
        return wrong(at, "true or false", err);
    *(bool *)out = is_true;
    return 0;
}

int ms_yaml_to_at(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    (void)err;
    *(struct ms_yaml_at *)out = at;
    return 0;
}
