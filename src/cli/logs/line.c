/* line.c - one line of a log: whose it is, and how it is shown */
#include "cli/logs/line.h"
#include "base/cleanup.h"
#include "base/name.h"
#include "base/timestamp.h"
#include "cli/out.h"
#include "cli/selector.h"

#include <errno.h>
#include <string.h>

/* Neighbouring ranks differ. */
static const char *const styles[] = {"36", "35", "34", "33", "32"};

/* Copy what comes before `end` as a name; what comes behind it, or NULL. */
static const char *
take_name(const char *at, const char *last, char end, char out[MS_NAME_MAX + 1])
{
    const char *stop = memchr(at, end, (size_t)(last - at));

    if (!stop || stop == at || (size_t)(stop - at) > MS_NAME_MAX)
        return NULL;
    memcpy(out, at, (size_t)(stop - at));
    out[stop - at] = 0;
    return ms_name_check(out, "name", NULL) == 0 ? stop + 1 : NULL;
}

bool ms_logline_take_time(struct ms_logline *l)
{
    if (!ms_timestamp_read(l->text, l->len, &l->time_ns))
        return false;
    l->has_time = true;
    l->text += MS_TIMESTAMP_LEN + 1;
    l->len -= MS_TIMESTAMP_LEN + 1;
    return true;
}

bool ms_logline_split(struct ms_logline *l)
{
    const char *last = l->text + l->len, *at;
    struct ms_logline found = {.has_time = l->has_time, .time_ns = l->time_ns};
    size_t digits;

    at = take_name(l->text, last, '/', found.cluster);
    digits = at ? ms_rank_parse(at, (size_t)(last - at), &found.rank) : 0;
    if (!digits || at + digits == last || at[digits] != '@')
        return false;
    at = take_name(at + digits + 1, last, ':', found.node);
    if (!at || at == last || *at != ' ')
        return false;
    found.text = at + 1;
    found.len = (size_t)(last - found.text);
    *l = found;
    return true;
}

/* With a space behind it. */
static const char *time_of(const struct ms_logline *l)
{
    static struct ms_timestamp time; /* mostly of the same second as the line before */

    ms_timestamp_set(&time, l->time_ns);
    return time.text;
}

int ms_logline_print_json(const struct ms_logline *l)
{
    json_t *object = json_object();
    int rc = object ? 0 : -1;

    if (rc == 0 && l->time_ns)
        rc = json_object_set_new(
            object, "time", json_stringn(time_of(l), MS_TIMESTAMP_LEN));
    if (rc == 0 && l->cluster[0])
        rc = json_object_set_new(object, "cluster", json_string(l->cluster)) |
             json_object_set_new(object, "rank", json_integer(l->rank));
    if (rc == 0 && l->node[0])
        rc = json_object_set_new(object, "node", json_string(l->node));
    if (rc == 0)
        rc = json_object_set_new(object, "line", ms_json_text(l->text, l->len));
    if (rc == 0)
        rc = json_dumpf(object, stdout, JSON_COMPACT);
    json_decref(object);
    if (rc == 0)
        putchar('\n');
    return rc == 0 ? 0 : -ENOMEM;
}

void ms_logline_print(const struct ms_logline *l, bool with_time)
{
    if (with_time && l->time_ns)
        fwrite(time_of(l), 1, MS_TIMESTAMP_LEN + 1, stdout);
    if (l->cluster[0]) {
        ms_out_style(styles[l->rank % MS_COUNT(styles)]);
        printf("%s/%u", l->cluster, l->rank);
        if (l->node[0])
            printf("@%s", l->node);
        putchar(':');
        ms_out_plain();
        putchar(' ');
    }
    fwrite(l->text, 1, l->len, stdout);
    putchar('\n');
}
