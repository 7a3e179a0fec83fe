/* keep.c - objects that a cluster's spec refers to: held for as long as the cluster lives,
 * whoever made them */
#include "store/server/server.h"
#include "store/server/state.h"

#include "base/clock.h"

#include <errno.h>

int ms_store_keep(struct ms_store *s,
                  uint64_t holder,
                  const char *name,
                  Muster__StoredName *const *names,
                  size_t count)
{
    struct ms_holder *h = ms_table_find_holder(&s->table, holder);
    int kept = 0;

    if (!h)
        h = ms_table_add_holder(&s->table, holder, MS_HOLDER_PROCESS, 0, name);
    if (!h)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        struct ms_object *o =
            names[i]->node == s->table.node
                ? ms_table_find(&s->table, names[i]->node, names[i]->id)
                : NULL;
        int rc = o ? ms_table_count(&s->table, o, h, 1, ms_now_ns()) : 0;

        if (rc < 0)
            return rc;
        kept += o != NULL;
    }
    return kept;
}

void ms_store_unkeep(struct ms_store *s, uint64_t holder)
{
    struct ms_holder *h = ms_table_find_holder(&s->table, holder);

    if (h)
        ms_table_remove_holder(&s->table, h);
}
