/* request_copy.c - a request for a placement that owns what it points to
 *
 * All parts of a copy are blocks of one chain, which begins at `owned`: they are freed
 * together, also after a failure half-way.
 */
#include "resource/place.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct ms_place_request_block {
    struct ms_place_request_block *next;
    max_align_t data[];
};

/* A copy of so many bytes, at least one; NULL: out of memory. */
static void *keep(struct ms_place_request *r, const void *bytes, size_t len)
{
    struct ms_place_request_block *b = calloc(1, sizeof *b + (len ? len : 1));

    if (!b)
        return NULL;
    b->next = r->owned;
    r->owned = b;
    if (len)
        memcpy(b->data, bytes, len);
    return b->data;
}

static char *keep_text(struct ms_place_request *r, const char *text)
{
    assert(text);
    return keep(r, text, strlen(text) + 1);
}

static int copy_selector(struct ms_place_request *r, struct ms_bundle *b)
{
    struct ms_selector *s = keep(r, b->selector, sizeof *s);

    if (!s ||
        !(s->conditions = keep(r, s->conditions, s->count * sizeof *s->conditions)))
        return -ENOMEM;
    b->selector = s;
    for (size_t i = 0; i < s->count; i++) {
        struct ms_condition *c = &s->conditions[i];

        c->name = keep_text(r, c->name);
        c->text = keep_text(r, c->text);
        if (!c->name || !c->text)
            return -ENOMEM;
    }
    return 0;
}

static int copy_extras(struct ms_place_request *r, struct ms_bundle *b)
{
    struct ms_extra_need *extras = keep(r, b->extras, b->extra_count * sizeof *extras);

    for (size_t i = 0; extras && i < b->extra_count; i++)
        if (!(extras[i].name = keep_text(r, extras[i].name)))
            return -ENOMEM;
    b->extras = extras;
    return extras ? 0 : -ENOMEM;
}

static int copy_bundles(struct ms_place_request *r)
{
    const struct ms_bundle *from = r->bundles;
    struct ms_bundle *bundles = keep(r, from, r->count * sizeof *bundles);

    if (!bundles)
        return -ENOMEM;
    r->bundles = bundles;
    for (size_t i = 0; i < r->count; i++)
        if (i && ms_bundle_is_equal(&from[i], &from[i - 1]))
            bundles[i] = bundles[i - 1];
        else if ((bundles[i].extras && copy_extras(r, &bundles[i]) < 0) ||
                 (bundles[i].selector && copy_selector(r, &bundles[i]) < 0))
            return -ENOMEM;
    return 0;
}

static int copy_scope(struct ms_place_request *r)
{
    const struct ms_scope_request *from = r->scope;
    struct ms_scope_request *s = keep(r, from, sizeof *s);
    const char **names =
        from->names ? keep(r, from->names, from->name_count * sizeof *names) : NULL;

    if (!s || (from->names && !names))
        return -ENOMEM;
    for (size_t i = 0; names && i < from->name_count; i++)
        if (!(names[i] = keep_text(r, names[i])))
            return -ENOMEM;
    s->names = names;
    r->scope = s;
    return 0;
}

int ms_place_request_copy(struct ms_place_request *to,
                          const struct ms_place_request *from)
{
    struct ms_place_request r = *from;

    r.owned = NULL;
    r.name = keep_text(&r, from->name);
    r.same = from->same ? keep_text(&r, from->same) : NULL;
    if (!r.name || (from->same && !r.same) || copy_bundles(&r) < 0 ||
        (from->scope && copy_scope(&r) < 0)) {
        ms_place_request_finish(&r);
        return -ENOMEM;
    }
    *to = r;
    return 0;
}

void ms_place_request_finish(struct ms_place_request *r)
{
    for (struct ms_place_request_block *b = r->owned, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    *r = (struct ms_place_request){0};
}
