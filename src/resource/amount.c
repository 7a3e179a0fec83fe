/* amount.c - CPUs, bytes and numbers of things as people read them */
#include "resource/amount.h"
#include "base/cleanup.h"

#include <stdio.h>

struct ms_amount ms_amount_cpus(uint64_t cpu_milli)
{
    unsigned long long whole = cpu_milli / 1000, part = cpu_milli % 1000;
    struct ms_amount a;

    if (part == 0)
        snprintf(a.text, sizeof a.text, "%llu", whole);
    else if (part % 100)
        snprintf(a.text, sizeof a.text, "%llu.%03llu", whole, part);
    else
        snprintf(a.text, sizeof a.text, "%llu.%llu", whole, part / 100);
    return a;
}

struct ms_amount ms_amount_bytes(uint64_t bytes)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double n = (double)bytes / 1024;
    struct ms_amount a;
    size_t i = 0;

    for (; n >= 1023.95 && i + 1 < MS_COUNT(units); i++)
        n /= 1024;
    if (bytes < 1024)
        snprintf(a.text, sizeof a.text, "%llu B", (unsigned long long)bytes);
    else
        snprintf(a.text, sizeof a.text, "%.1f %s", n, units[i]);
    return a;
}

struct ms_amount ms_amount_count(uint64_t n, const char *noun)
{
    struct ms_amount a;

    snprintf(a.text,
             sizeof a.text,
             "%llu %.10s%s",
             (unsigned long long)n,
             noun,
             n == 1 ? "" : "s");
    return a;
}
