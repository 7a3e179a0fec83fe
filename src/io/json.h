/* json.h - text of any kind as JSON */
#ifndef MS_IO_JSON_H
#define MS_IO_JSON_H

#include <jansson.h>
#include <stddef.h>

/* A string; what is not UTF-8 in it becomes U+FFFD. NULL gives null. NULL is returned when
 * out of memory. */
json_t *ms_json_text(const char *text, size_t len);
/* The same of a text that ends with NUL. */
json_t *ms_json_string(const char *text);
/* A list of those. */
json_t *ms_json_strings(char *const *texts, size_t count);

#endif
