#include "io/json.h"
#include "base/buf.h"

#include <string.h>

/* The length of the UTF-8 sequence at p, as strict as jansson is; 0: it is none. */
static size_t sequence(const unsigned char *p, size_t room)
{
    static const unsigned char lead_min[] = {0, 0x00, 0xc2, 0xe0, 0xf0};
    size_t len = p[0] < 0x80 ? 1 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;

    if (p[0] < lead_min[len] || p[0] > 0xf4 || len > room)
        return 0;
    for (size_t i = 1; i < len; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
        (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
        return 0; /* too long a form, a surrogate, beyond the last code point */
    return len;
}

json_t *ms_json_text(const char *text, size_t len)
{
    const unsigned char *p = (const unsigned char *)text;
    struct ms_buf clean = {0};
    json_t *value;
    int rc = 0;

    if (!text)
        return json_null();
    for (size_t i = 0, n; rc == 0 && i < len; i += n ? n : 1) {
        n = sequence(p + i, len - i);
        rc = n ? ms_buf_append(&clean, p + i, n)
               : ms_buf_append(&clean, "\xef\xbf\xbd", 3);
    }
    value =
        rc == 0 ? json_stringn(clean.data ? (char *)clean.data : "", clean.len) : NULL;
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
