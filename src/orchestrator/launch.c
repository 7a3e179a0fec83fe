#include "orchestrator/launch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int
refuse(const struct ms_launch *l, int rc, const char *what, struct ms_error *why)
{
    return ms_error_set(why, rc, "reservation '%s': %s", l->key, what);
}

static int add_pieces(struct ms_mirror *m,
                      struct ms_launch *l,
                      struct ms_mirrored *r,
                      struct ms_error *why)
{
    int64_t first = ms_mirror_add_pieces(m, r, l->count);

    if (first >= 0) {
        l->first = (uint32_t)first;
        return 1;
    }
    if (r->count == 0)
        ms_mirror_remove(m, r);
    return refuse(l, (int)first, "too many pieces, or no memory", why);
}

int ms_launch_begin(struct ms_mirror *m, struct ms_launch *l, struct ms_error *why)
{
    struct ms_mirrored *r = ms_mirror_find(m, l->key);

    if (l->is_grow)
        return r ? add_pieces(m, l, r, why) : refuse(l, -ENOENT, "there is none", why);
    if (r && (uint64_t)(uintptr_t)r->owner != l->mark)
        return refuse(l, -EEXIST, "another one has this key", why);
    if (r)
        return 0;
    r = ms_mirror_add(m, l->key);
    if (!r)
        return refuse(l, -ENOMEM, "out of memory", why);
    r->owner = (void *)(uintptr_t)l->mark;
    return add_pieces(m, l, r, why);
}

void ms_launch_undo(struct ms_mirror *m, const struct ms_launch *l)
{
    struct ms_mirrored *r = ms_mirror_find(m, l->key);

    for (size_t i = 0; r && i < l->count; i++)
        ms_mirror_remove_piece(m, r, l->first + (uint32_t)i);
    if (r && r->count == 0)
        ms_mirror_remove(m, r);
}

static int say_ended(const struct ms_launch *l,
                     const struct ms_lent_piece *p,
                     struct ms_error *why)
{
    return ms_error_set(why,
                        -ECHILD,
                        "%s: piece %u on %s ended (%s)%s%.150s",
                        l->key,
                        p ? p->number : l->first,
                        p && p->node ? p->node : "no node",
                        p ? ms_cause_name(p->cause) : "it was released",
                        p && p->detail ? ": " : "",
                        p && p->detail ? p->detail : "");
}

int ms_launch_progress(const struct ms_mirror *m,
                       const struct ms_launch *l,
                       struct ms_error *why)
{
    const struct ms_mirrored *r = ms_mirror_find(m, l->key);
    size_t count = l->is_grow || !r ? l->count : r->count;
    bool all = true;

    if (!r)
        return say_ended(l, NULL, why);
    if (!l->is_grow && r->in_phase[MS_PHASE_ENDED] == 0)
        return ms_mirrored_is(r, MS_PHASE_RUNNING); /* without a look at each */
    for (size_t i = 0; i < count; i++) {
        const struct ms_lent_piece *p = l->is_grow
                                            ? ms_mirror_piece(r, l->first + (uint32_t)i)
                                            : ms_mirror_piece_at(r, i);

        if (!p || p->phase == MS_PHASE_ENDED)
            return say_ended(l, p, why);
        all = all && p->phase == MS_PHASE_RUNNING;
    }
    return all;
}

bool ms_launch_is_held(const struct ms_mirror *m, const struct ms_launch *l)
{
    const struct ms_mirrored *r = l->is_grow ? NULL : ms_mirror_find(m, l->key);

    return r && r->in_phase[MS_PHASE_RUNNING] > 0 &&
           r->in_phase[MS_PHASE_RUNNING] + r->in_phase[MS_PHASE_ENDED] == r->count;
}

void ms_launch_key(char out[MS_ORCH_KEY_MAX + 1], const char *key)
{
    bool fits = !key || strlen(key) <= MS_ORCH_KEY_MAX;

    snprintf(out, MS_ORCH_KEY_MAX + 1, "%s", !key ? "" : fits ? key : "?");
}

void ms_launch_forget(struct ms_mirror *m,
                      const char *key,
                      const uint32_t *numbers,
                      size_t count)
{
    struct ms_mirrored *r = ms_mirror_find(m, key);

    for (size_t i = 0; r && numbers && i < count; i++)
        ms_mirror_remove_piece(m, r, numbers[i]);
    if (r && (!numbers || r->count == 0))
        ms_mirror_remove(m, r);
}

int ms_launch_numbers(uint32_t **out,
                      size_t *out_count,
                      const uint32_t *numbers,
                      size_t count)
{
    uint32_t *copy = count ? calloc(count, sizeof *copy) : NULL;

    if (count && !copy)
        return -ENOMEM;
    if (copy)
        memcpy(copy, numbers, count * sizeof *copy);
    *out = copy;
    *out_count = count;
    return 0;
}
