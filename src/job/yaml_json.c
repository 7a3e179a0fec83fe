/* yaml_json.c - make JSON of a value of a YAML file */
#include "job/yaml_json.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static json_t *number(const char *text)
{
    char *end;
    long long whole;
    double real;

    if (!*text || strspn(text, "+-0123456789.eE") != strlen(text))
        return NULL;
    errno = 0;
    whole = strtoll(text, &end, 10);
    if (!*end && !errno)
        return json_integer(whole);
    errno = 0;
    real = strtod(text, &end);
    return *end || errno || !isfinite(real) ? NULL : json_real(real);
}

static json_t *scalar(struct ms_yaml_at at, struct ms_error *err)
{
    const char *text = ms_yaml_text(at);
    json_t *made = NULL;

    if (!text) {
        ms_yaml_fail(at, err, "a text must not have a zero byte");
        return NULL;
    }
    if (ms_yaml_is_null(at))
        return json_null();
    if (ms_yaml_is_plain(at))
        made = !strcasecmp(text, "true")    ? json_true()
               : !strcasecmp(text, "false") ? json_false()
                                            : number(text);
    if (!made)
        made = json_string(text);
    if (!made)
        ms_yaml_fail(at, err, "a text must be UTF-8");
    return made;
}

static json_t *value(struct ms_yaml_at at, int depth, struct ms_error *err);

static json_t *list(struct ms_yaml_at at, int depth, struct ms_error *err)
{
    json_t *made = json_array();

    for (size_t i = 0; made && i < ms_yaml_count(at); i++)
        if (json_array_append_new(made, value(ms_yaml_item(at, i), depth, err)) < 0) {
            json_decref(made);
            return NULL;
        }
    return made;
}

static json_t *map(struct ms_yaml_at at, int depth, struct ms_error *err)
{
    json_t *made = json_object();

    for (size_t i = 0; made && i < ms_yaml_count(at); i++) {
        const char *key = ms_yaml_text(ms_yaml_key(at, i));
        json_t *of = key ? value(ms_yaml_value(at, i), depth, err) : NULL;

        if (!key)
            ms_yaml_fail(ms_yaml_key(at, i), err, "a key must be a text");
        if (json_object_set_new(made, key ? key : "", of) < 0) {
            json_decref(made);
            return NULL;
        }
    }
    return made;
}

static json_t *value(struct ms_yaml_at at, int depth, struct ms_error *err)
{
    if (depth == MS_YAML_DEPTH_MAX) {
        ms_yaml_fail(at, err, "more than %d levels", MS_YAML_DEPTH_MAX);
        return NULL;
    }
    if (ms_yaml_is_list(at))
        return list(at, depth + 1, err);
    return ms_yaml_is_map(at) ? map(at, depth + 1, err) : scalar(at, err);
}

json_t *ms_yaml_json(struct ms_yaml_at at, struct ms_error *err)
{
    struct ms_error why = {0};
    json_t *made = value(at, 0, &why);

    if (!made)
        ms_error_set(err,
                     why.code ? why.code : -ENOMEM,
                     "%s",
                     why.code ? why.text : "out of memory");
    return made;
}
