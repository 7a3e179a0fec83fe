/* json.c - strings and objects for jansson */
#include "base/json.h"
#include "base/buf.h"
#include "base/utf8.h"

#include <string.h>

json_t *ms_json_text(const char *text, size_t len)
{
    struct ms_buf clean = {0};
    json_t *value = NULL;
    int rc = 0;

    if (!text)
        return json_null();
    for (size_t i = 0, n; rc == 0 && i < len; i += n ? n : 1) {
        n = ms_utf8_sequence(text + i, len - i);
        rc = n ? ms_buf_append(&clean, text + i, n)
               : ms_buf_append(&clean, "\xef\xbf\xbd", 3);
    }
    if (rc == 0)
        value = json_stringn(clean.data ? (char *)clean.data : "", clean.len);
    ms_buf_finish(&clean);
    return value;
}

json_t *ms_json_string(const char *text)
{
    return ms_json_text(text, text ? strlen(text) : 0);
}

json_t *ms_json_strings(char *const *texts, size_t count)
{
    json_t *list = json_array();

    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, ms_json_string(texts[i]));
    return list;
}

json_t *ms_json_object(const struct ms_json_member *members)
{
    json_t *object = json_object();
    int rc = object ? 0 : -1;

    for (; members->name; members++)
        rc |= json_object_set_new(object, members->name, members->value);
    if (rc == 0)
        return object;
    json_decref(object);
    return NULL;
}
