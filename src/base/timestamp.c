/* timestamp.c - times of the wall clock: printed, read, and as people write them */
#include "base/timestamp.h"
#include "base/clock.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <time.h>

enum {
    MINUTE_S = 60,
    HOUR_S = 3600,
    DAY_S = 86400,
    FRACTION_AT = 20,
    FRACTION_LEN = 6
};

/* ---- of logs --------------------------------------------------------------------- */

void ms_timestamp_set(struct ms_timestamp *t, int64_t wall_ns)
{
    time_t second = wall_ns / MS_NS_PER_S;
    int64_t us = wall_ns % MS_NS_PER_S / MS_NS_PER_US;
    struct tm tm;

    if (!t->text[0] || t->second != second) {
        gmtime_r(&second, &tm);
        strftime(t->text, sizeof t->text, "%Y-%m-%dT%H:%M:%S.000000Z ", &tm);
        t->second = second;
    }
    for (int i = FRACTION_LEN; i-- > 0; us /= 10)
        t->text[FRACTION_AT + i] = (char)('0' + us % 10);
}

/* Digits in place of the zeros of `form`, everything else as it is there. */
static bool has_form(const char *text, const char *form)
{
    for (; *form; form++, text++)
        if (*form == '0' ? !isdigit((unsigned char)*text) : *text != *form)
            return false;
    return true;
}

static int64_t number(const char *at, int digits)
{
    int64_t n = 0;

    for (int i = 0; i < digits; i++)
        n = n * 10 + (at[i] - '0');
    return n;
}

/* Days since 1970 of a day of the Gregorian calendar; years begin in March, so that the leap
 * day is their last. */
static int64_t days_of(int64_t year, int64_t month, int64_t day)
{
    int64_t y = month > 2 ? year : year - 1;
    int64_t day_of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;

    return y * 365 + y / 4 - y / 100 + y / 400 + day_of_year - 719468;
}

bool ms_timestamp_read(const char *text, size_t len, int64_t *wall_ns)
{
    if (len <= MS_TIMESTAMP_LEN || !has_form(text, "0000-00-00T00:00:00.000000Z "))
        return false;
    *wall_ns =
        (days_of(number(text, 4), number(text + 5, 2), number(text + 8, 2)) * DAY_S +
         number(text + 11, 2) * HOUR_S + number(text + 14, 2) * MINUTE_S +
         number(text + 17, 2)) *
            MS_NS_PER_S +
        number(text + FRACTION_AT, FRACTION_LEN) * MS_NS_PER_US;
    return true;
}

/* ---- of people ------------------------------------------------------------------- */

static int64_t unit_s(char unit)
{
    switch (unit) {
    case 's':
        return 1;
    case 'm':
        return MINUTE_S;
    case 'h':
        return HOUR_S;
    case 'd':
        return DAY_S;
    default:
        return 0;
    }
}

int ms_duration_parse(const char *text, int64_t *ns)
{
    int64_t seconds = 0;

    if (!*text)
        return -EINVAL;
    while (*text) {
        size_t digits = strspn(text, "0123456789");
        int64_t unit = unit_s(text[digits]), n;

        if (digits == 0 || digits > 9 || !unit)
            return -EINVAL;
        n = number(text, (int)digits);
        if (n > MS_NEVER / MS_NS_PER_S / 2 / unit - seconds / unit)
            return -EINVAL;
        seconds += n * unit;
        text += digits + 1;
    }
    *ns = seconds * MS_NS_PER_S;
    return 0;
}

/* ".5" behind the seconds; what is behind it. */
static const char *read_fraction(const char *at, int64_t *ns)
{
    int64_t unit = MS_NS_PER_S;

    *ns = 0;
    if (*at != '.')
        return at;
    for (at++; isdigit((unsigned char)*at); at++) {
        unit /= 10;
        *ns += (*at - '0') * unit;
    }
    return at;
}

/* Seconds since 1970, from the end of the text: "Z", "+02:00" or nothing. */
static int read_zone(const char *at, struct tm *tm, int64_t *second)
{
    int64_t offset = 0;

    if (!*at) {
        tm->tm_isdst = -1;
        *second = mktime(tm);
        return 0;
    }
    if (has_form(at + 1, "00:00") && !at[6] && (*at == '+' || *at == '-'))
        offset = (number(at + 1, 2) * HOUR_S + number(at + 4, 2) * MINUTE_S) *
                 (*at == '-' ? -1 : 1);
    else if (strcmp(at, "Z") != 0)
        return -EINVAL;
    *second = timegm(tm) - offset;
    return 0;
}

static int read_date(const char *text, int64_t *wall_ns)
{
    static const char *const forms[] = {
        "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M"};
    int64_t second, ns = 0;
    const char *end = NULL;
    struct tm tm;
    int day;

    if (!has_form(text, "0000-00-00"))
        return -EINVAL;
    for (size_t i = 0; !end && i < sizeof forms / sizeof forms[0]; i++) {
        tm = (struct tm){0};
        end = strptime(text, forms[i], &tm);
        if (end && i < 2)
            end = read_fraction(end, &ns);
    }
    if (!end) {
        tm = (struct tm){0};
        end = strptime(text, "%Y-%m-%d", &tm);
    }
    day = tm.tm_mday;
    if (!end || read_zone(end, &tm, &second) < 0 || tm.tm_mday != day)
        return -EINVAL; /* a day that its month does not have would be one of the next */
    *wall_ns = second > 0 ? second * MS_NS_PER_S + ns : 0;
    return 0;
}

int ms_since_parse(const char *text, int64_t now_ns, int64_t *wall_ns)
{
    int64_t ago_ns;

    if (ms_duration_parse(text, &ago_ns) < 0)
        return read_date(text, wall_ns);
    *wall_ns = now_ns > ago_ns ? now_ns - ago_ns : 0;
    return 0;
}
