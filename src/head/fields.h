/* fields.h - borrowed strings as fields of messages that are only packed
 *
 * protobuf-c's fields are not const; nothing is changed through these.
 */
#ifndef MS_HEAD_FIELDS_H
#define MS_HEAD_FIELDS_H

#include <stddef.h>
#include <stdint.h>

/* NULL is an empty text. */
static inline char *ms_field_text(const char *s)
{
    return (char *)(uintptr_t)(s ? s : "");
}

static inline char **ms_field_strings(const char *const *v)
{
    return (char **)(uintptr_t)v;
}

/* Of a list that ends with NULL; NULL itself has none. */
static inline size_t ms_field_count(const char *const *v)
{
    size_t n = 0;

    while (v && v[n])
        n++;
    return n;
}

#endif
