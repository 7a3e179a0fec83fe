/* fleet_whole.c - whole nodes of a job: which piece stands for which described node */
#include "head/fleet/fleet_impl.h"
#include "head/head_impl.h"
#include "head/nodes/node.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void ms_lease_assign(struct ms_lease *l,
                     uint32_t first,
                     const uint32_t *nodes,
                     size_t count)
{
    size_t all = count ? count : l->fleet->whole.count;

    for (size_t i = 0; !l->fleet->is_here && i < l->count; i++) {
        struct ms_lease_piece *p = &l->pieces[i];

        if (p->number >= first && p->number - first < all)
            p->is_for = count ? nodes[p->number - first] : p->number - first;
    }
}

/* ---- over a restart of the head ---------------------------------------------------- */

size_t
ms_fleet_pieces(const struct ms_fleet *f, const char *key, struct ms_fleet_piece **out)
{
    const struct ms_lease *l = f && !f->is_here ? ms_lease_find(f, key) : NULL;
    size_t count = 0;

    *out = l ? calloc(l->count + 1, sizeof **out) : NULL;
    for (size_t i = 0; *out && i < l->count; i++)
        if (l->pieces[i].is_for != MS_FLEET_NO_NODE)
            (*out)[count++] =
                (struct ms_fleet_piece){l->pieces[i].number, l->pieces[i].is_for};
    return count;
}

int ms_fleet_know(struct ms_fleet *f, const struct ms_fleet_piece *all, size_t count)
{
    f->known = calloc(count + 1, sizeof *f->known);
    if (!f->known)
        return -ENOMEM;
    if (count)
        memcpy(f->known, all, count * sizeof *all);
    f->known_count = count;
    return 0;
}

uint32_t ms_fleet_known(const struct ms_fleet *f, uint32_t number)
{
    for (size_t i = 0; i < f->known_count; i++)
        if (f->known[i].number == number)
            return f->known[i].node;
    return MS_FLEET_NO_NODE;
}

/* ---- what there is ----------------------------------------------------------------- */

/* One that is lent, and it is not known yet which. */
static bool has_nameless(const struct ms_lease *l)
{
    for (size_t i = 0; i < l->count; i++)
        if (!l->pieces[i].is_over && !l->pieces[i].node)
            return true;
    return false;
}

bool ms_fleet_look(const struct ms_fleet *f, const char *key, struct ms_fleet_node *out)
{
    const struct ms_lease *l = ms_lease_find(f, key);

    if (!l || !l->is_held || l->is_ending || ms_lease_is_asked(l) || has_nameless(l))
        return false;
    memset(out, 0, f->whole.count * sizeof *out);
    for (size_t i = 0; i < l->count; i++) {
        const struct ms_lease_piece *p = &l->pieces[i];

        if (p->is_for >= f->whole.count || (p->is_over && out[p->is_for].is_lent))
            continue;
        out[p->is_for] = (struct ms_fleet_node){
            .is_lent = !p->is_over, .has_ended = p->is_over, .number = p->number};
    }
    return true;
}

bool ms_fleet_is_held(const struct ms_fleet *f, const char *key)
{
    const struct ms_lease *l = ms_lease_find(f, key);

    return l && (l->is_held || l->asks);
}

bool ms_fleet_is_back(const struct ms_fleet *f, const char *key)
{
    const struct ms_lease *l = ms_lease_find(f, key);

    if (!l || !l->is_held || l->asks)
        return false;
    for (size_t i = 0; i < l->count; i++) {
        const struct ms_node *n =
            l->pieces[i].node ? ms_node_find(f->head, l->pieces[i].node) : NULL;

        if (!l->pieces[i].is_over && (!n || n->state != MS_NODE_READY))
            return false;
    }
    return l->count > 0;
}
