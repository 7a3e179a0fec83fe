/* json.h - JSON strings of any text, and objects */
#ifndef MS_BASE_JSON_H
#define MS_BASE_JSON_H

#include <jansson.h>
#include <stddef.h>

/* A string; what is not UTF-8 in it becomes U+FFFD. NULL gives null. NULL is returned when
 * out of memory. */
json_t *ms_json_text(const char *text, size_t len);
/* The same of a text that ends with NUL. */
json_t *ms_json_string(const char *text);
/* A list of those. */
json_t *ms_json_strings(char *const *texts, size_t count);

/* A member of an object. */
struct ms_json_member {
    const char *name;
    json_t *value;
};

/* An object of the members before one without a name; it takes their values. NULL: out of
 * memory. MS_JSON({"rank", json_integer(3)}, ...) writes one down. */
json_t *ms_json_object(const struct ms_json_member *members);

#define MS_JSON(...) ms_json_object((const struct ms_json_member[]){__VA_ARGS__, {0}})

#endif
