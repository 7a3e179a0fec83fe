#include "store/server/table.h"

#include <inttypes.h>

enum { NAMED_MAX = 3 };

static void print_bytes(struct ms_buf *out, uint64_t bytes)
{
    if (bytes >= (uint64_t)1 << 30)
        ms_buf_printf(out, "%.1f GiB", (double)bytes / (double)(1 << 30));
    else if (bytes >= (uint64_t)1 << 20)
        ms_buf_printf(out, "%.1f MiB", (double)bytes / (double)(1 << 20));
    else
        ms_buf_printf(out, "%" PRIu64 " bytes", bytes);
}

/* The one with the most bytes below `below`, in the order of (bytes, id). */
static const struct ms_holder *next_largest(const struct ms_table *t,
                                            const struct ms_holder *below)
{
    const struct ms_holder *best = NULL;
    uint64_t best_bytes = 0, limit = UINT64_MAX;
    size_t n;

    if (below)
        limit = ms_holder_bytes(below, &n);
    ms_list_each (h, &t->holder_list, struct ms_holder, link) {
        uint64_t bytes = ms_holder_bytes(h, &n);

        if (bytes > limit || (below && bytes == limit && h->id >= below->id))
            continue;
        if (!best || bytes > best_bytes || (bytes == best_bytes && h->id > best->id)) {
            best = h;
            best_bytes = bytes;
        }
    }
    return best_bytes ? best : NULL;
}

void ms_table_explain_full(const struct ms_table *t,
                           uint64_t len,
                           const char *besides,
                           struct ms_buf *out)
{
    const struct ms_holder *h = NULL;
    size_t n;

    ms_buf_printf(out, "the store is full: ");
    print_bytes(out, len);
    ms_buf_printf(out, " wanted, ");
    print_bytes(out, ms_space_used(t->space));
    ms_buf_printf(out, " of ");
    print_bytes(out, ms_space_limit(t->space));
    ms_buf_printf(out, " used%s%s", besides ? ", " : "", besides ? besides : "");
    for (int i = 0; i < NAMED_MAX && (h = next_largest(t, h)); i++) {
        uint64_t bytes = ms_holder_bytes(h, &n);

        ms_buf_printf(out, "%s%s holds ", i ? ", " : "; ", h->name);
        print_bytes(out, bytes);
        ms_buf_printf(out, " in %zu", n);
    }
    ms_buf_printf(out, "; drop refs, or raise store_limit");
}
