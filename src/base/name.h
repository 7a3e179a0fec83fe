/* name.h - names that people give, and ids that we make */
#ifndef MS_BASE_NAME_H
#define MS_BASE_NAME_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

/* A name becomes part of a path and of a log prefix: 1 to MS_NAME_MAX characters of
 * [A-Za-z0-9_.-], not starting with a dot or a dash. `what` names it in the error. */
int ms_name_check(const char *name, const char *what, struct ms_error *err);

/* A name that is shown and sent, but is no part of a path: of an engine, a method, a key. 1 to
 * `max` bytes of UTF-8 without control characters (a NUL, a newline). */
int ms_title_check(
    const char *text, size_t len, size_t max, const char *what, struct ms_error *err);

/* As people count: "n2" comes before "n10". Less, equal or greater than 0; 0 only for equal
 * names. */
int ms_name_order(const char *a, const char *b);

/* Fill with random bytes from the kernel. 0 or a negative errno. */
int ms_random_bytes(void *at, size_t len);

/* A random id, never 0. */
uint64_t ms_random_id(void);

/* Lower-case hexadecimal with a NUL: `out` has 2 * len + 1 bytes. */
void ms_hex(const void *data, size_t len, char *out);

/* The reverse: exactly 2 * len digits. 0 or -EINVAL. */
int ms_unhex(const char *text, void *out, size_t len);

#endif
