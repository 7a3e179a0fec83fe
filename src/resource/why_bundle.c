/* What a bundle asks for, in words. */
#include "resource/amount.h"
#include "resource/why.h"

#include <errno.h>

/* ", " before all but the first. */
static int separate(struct ms_buf *out, size_t start)
{
    return out->len > start ? ms_buf_printf(out, ", ") : 0;
}

static int
print_devices(const struct ms_stock *s, const struct ms_bundle *b, struct ms_buf *out)
{
    const char *kind = ms_stock_kind_name(s, b->kind);
    int rc;

    if (b->share_milli)
        rc = ms_buf_printf(out, "0.%03u of a %s", b->share_milli, kind);
    else
        rc =
            ms_buf_printf(out, "%u %s%s", b->devices, kind, b->devices == 1 ? "" : "s");
    if (rc == 0 && b->one_domain)
        rc = ms_buf_printf(out, " of one domain");
    if (rc == 0 && b->device_memory) {
        rc = ms_buf_printf(out, " with ");
        rc = rc ? rc : ms_amount_print_bytes(b->device_memory, out);
    }
    return rc;
}

static int print_condition(const struct ms_condition *c, struct ms_buf *out)
{
    int rc = ms_buf_printf(out,
                           "%s %s",
                           c->name,
                           c->negated           ? "not "
                           : c->value_count > 1 ? "in "
                                                : "");

    for (size_t i = 0; rc == 0 && i < c->value_count; i++)
        rc = ms_buf_printf(out, "%s%s", i ? "|" : "", c->values[i]);
    return rc;
}

int ms_bundle_print(const struct ms_stock *s,
                    const struct ms_bundle *b,
                    struct ms_buf *out)
{
    size_t start = out->len;
    int rc = ms_bundle_width(b) ? print_devices(s, b, out) : 0;

    if (rc == 0 && b->cpu_milli) {
        rc = separate(out, start);
        rc = rc ? rc : ms_amount_print_cpus(b->cpu_milli, out);
        rc = rc ? rc : ms_buf_printf(out, b->cpu_milli == 1000 ? " CPU" : " CPUs");
    }
    if (rc == 0 && b->memory) {
        rc = separate(out, start);
        rc = rc ? rc : ms_amount_print_bytes(b->memory, out);
    }
    for (size_t i = 0; rc == 0 && i < b->extra_count; i++) {
        rc = separate(out, start);
        rc = rc ? rc
                : ms_buf_printf(out,
                                "%llu %s",
                                (unsigned long long)b->extras[i].amount,
                                b->extras[i].name);
    }
    for (size_t i = 0; rc == 0 && b->selector && i < b->selector->count; i++) {
        rc = separate(out, start);
        rc = rc ? rc : print_condition(&b->selector->conditions[i], out);
    }
    return rc == 0 && out->len == start ? ms_buf_printf(out, "nothing") : rc;
}
