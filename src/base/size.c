/* size.c - numbers of bytes, as people write them */
#include "base/size.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char units[] = "kmgtpe";

/* What the letters behind the number multiply it with; 0: no unit. */
static double unit_of(const char *at)
{
    double base = 1000, factor = 1;
    const char *unit = *at ? strchr(units, tolower((unsigned char)*at)) : NULL;

    if (unit) {
        at++;
        if (tolower((unsigned char)*at) == 'i') {
            base = 1024;
            at++;
        }
        for (const char *u = units; u <= unit; u++)
            factor *= base;
    }
    if (tolower((unsigned char)*at) == 'b')
        at++;
    while (isspace((unsigned char)*at))
        at++;
    return *at ? 0 : factor;
}

int ms_size_parse(const char *text, uint64_t *out)
{
    const char *at = text;
    double number, factor;
    char *end;

    while (isspace((unsigned char)*at))
        at++;
    if (!isdigit((unsigned char)*at) || strspn(at, "0123456789.") > 40 ||
        tolower((unsigned char)at[1]) == 'x')
        return -EINVAL;
    number = strtod(at, &end);
    if (strcspn(at, "eE") < (size_t)(end - at)) /* the E of "1E" is a unit */
        end = (char *)(uintptr_t)(at + strcspn(at, "eE"));
    while (isspace((unsigned char)*end))
        end++;
    factor = unit_of(end);
    if (factor == 0 || number * factor >= 0x1p64)
        return -EINVAL;
    *out = (uint64_t)(number * factor);
    return 0;
}
