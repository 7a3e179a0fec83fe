#include "resource/amount.h"
#include "base/cleanup.h"

int ms_amount_print_cpus(uint64_t cpu_milli, struct ms_buf *out)
{
    unsigned long long whole = cpu_milli / 1000, part = cpu_milli % 1000;

    if (part == 0)
        return ms_buf_printf(out, "%llu", whole);
    return part % 100 ? ms_buf_printf(out, "%llu.%03llu", whole, part)
                      : ms_buf_printf(out, "%llu.%llu", whole, part / 100);
}

int ms_amount_print_bytes(uint64_t bytes, struct ms_buf *out)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double n = (double)bytes / 1024;
    size_t i = 0;

    if (bytes < 1024)
        return ms_buf_printf(out, "%llu B", (unsigned long long)bytes);
    for (; n >= 1023.95 && i + 1 < MS_COUNT(units); i++)
        n /= 1024;
    return ms_buf_printf(out, "%.1f %s", n, units[i]);
}
