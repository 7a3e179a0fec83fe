/* request_copy.c - a request for a placement that owns what it points to */
#include "resource/request_copy.h"
#include "base/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void selector_free(const struct ms_selector *s)
{
    struct ms_selector *own = (struct ms_selector *)(uintptr_t)s;

    if (own)
        ms_selector_finish(own);
    free(own);
}

static void extras_free(const struct ms_extra_need *extras, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free((void *)(uintptr_t)extras[i].name);
    free((void *)(uintptr_t)extras);
}

/* Its parts belong to the bundle before it. */
static bool shares_parts(const struct ms_bundle *bundles, size_t i)
{
    return i && bundles[i].selector == bundles[i - 1].selector &&
           bundles[i].extras == bundles[i - 1].extras;
}

static void scope_free(const struct ms_scope_request *s)
{
    struct ms_scope_request *own = (struct ms_scope_request *)(uintptr_t)s;
    char **names = own ? (char **)(uintptr_t)own->names : NULL;

    for (size_t i = 0; names && i < own->name_count; i++)
        free(names[i]);
    free(names);
    free(own);
}

void ms_request_finish(struct ms_place_request *r)
{
    scope_free(r->scope);
    for (size_t i = 0; r->bundles && i < r->count; i++) {
        const struct ms_bundle *b = &r->bundles[i];

        if (shares_parts(r->bundles, i))
            continue;
        selector_free(b->selector);
        extras_free(b->extras, b->extra_count);
    }
    free((void *)(uintptr_t)r->bundles);
    free((void *)(uintptr_t)r->name);
    free((void *)(uintptr_t)r->same);
    *r = (struct ms_place_request){0};
    /* The analyzer does not see that scope_free frees what it is given.
     * NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
}

static int copy_condition(struct ms_condition *to, const struct ms_condition *from)
{
    to->negated = from->negated;
    to->name = strdup(from->name);
    to->values = calloc(from->value_count, sizeof *to->values);
    if (!to->name || !to->values)
        return -ENOMEM;
    for (size_t i = 0; i < from->value_count; i++, to->value_count++)
        if (!(to->values[i] = strdup(from->values[i])))
            return -ENOMEM;
    return 0;
}

static int copy_selector(struct ms_bundle *b)
{
    const struct ms_selector *from = b->selector;
    struct ms_selector *to;

    if (!from)
        return 0;
    b->selector = to = calloc(1, sizeof *to);
    if (!to)
        return -ENOMEM;
    to->conditions = calloc(from->count ? from->count : 1, sizeof *to->conditions);
    if (!to->conditions)
        return -ENOMEM;
    while (to->count < from->count) {
        size_t i = to->count++;

        if (copy_condition(&to->conditions[i], &from->conditions[i]) < 0)
            return -ENOMEM;
    }
    return 0;
}

static int copy_extras(struct ms_bundle *b)
{
    const struct ms_extra_need *from = b->extras;
    size_t count = b->extra_count;
    struct ms_extra_need *to;

    b->extras = NULL;
    b->extra_count = 0;
    if (count == 0)
        return 0;
    b->extras = to = calloc(count, sizeof *to);
    if (!to)
        return -ENOMEM;
    for (; b->extra_count < count; b->extra_count++) {
        to[b->extra_count] = from[b->extra_count];
        to[b->extra_count].name = strdup(from[b->extra_count].name);
        if (!to[b->extra_count].name)
            return -ENOMEM;
    }
    return 0;
}

/* On failure what was made is the bundle's, to be freed with it. */
static int copy_bundle(struct ms_bundle *to, const struct ms_bundle *from)
{
    int rc;

    *to = *from;
    to->selector = NULL;
    rc = copy_extras(to);
    if (rc == 0) {
        to->selector = from->selector;
        rc = copy_selector(to);
    }
    return rc;
}

static int copy_bundles(struct ms_place_request *to,
                        const struct ms_place_request *from)
{
    struct ms_bundle *bundles = calloc(from->count ? from->count : 1, sizeof *bundles);

    to->bundles = bundles;
    to->count = 0;
    if (!bundles)
        return -ENOMEM;
    for (size_t i = 0; i < from->count; i++) {
        to->count++;
        if (i && ms_bundle_is_equal(&from->bundles[i], &from->bundles[i - 1]))
            bundles[i] = bundles[i - 1];
        else if (copy_bundle(&bundles[i], &from->bundles[i]) < 0)
            return -ENOMEM;
    }
    return 0;
}

static int copy_scope(struct ms_place_request *to, const struct ms_scope_request *from)
{
    struct ms_scope_request *s;
    char **names;

    to->scope = NULL;
    if (!from)
        return 0;
    s = malloc(sizeof *s);
    to->scope = s;
    if (!s)
        return -ENOMEM;
    *s = *from;
    if (!from->names)
        return 0;
    names = calloc(from->name_count + 1, sizeof *names);
    s->names = (const char *const *)names;
    s->name_count = 0;
    for (size_t i = 0; names && i < from->name_count; i++, s->name_count++)
        if (!(names[i] = strdup(from->names[i])))
            return -ENOMEM;
    return names ? 0 : -ENOMEM;
}

int ms_request_copy(struct ms_place_request *to, const struct ms_place_request *from)
{
    struct ms_place_request r = *from;
    int rc;

    r.name = strdup(from->name);
    r.same = from->same ? strdup(from->same) : NULL;
    rc = copy_scope(&r, from->scope);
    if (copy_bundles(&r, from) < 0 || rc < 0 || !r.name || (from->same && !r.same)) {
        ms_request_finish(&r);
        return -ENOMEM;
    }
    *to = r;
    return 0;
}
