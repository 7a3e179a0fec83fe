/* error.h - what went wrong, for the program and for the person
 *
 * A function that can fail returns 0 (or a count) or a negative errno. If a person will
 * read the reason, its last parameter is a `struct ms_error *`, which may be NULL. The
 * error is written only on failure, lives on the caller's stack and is never allocated.
 */
#ifndef MS_BASE_ERROR_H
#define MS_BASE_ERROR_H

#include <stdarg.h>

enum { MS_ERROR_TEXT_MAX = 512 };

struct ms_error {
    int code;                     /* negative errno */
    char text[MS_ERROR_TEXT_MAX]; /* one clause, outermost context first, no newline */
};

/* Fill `err` and return `code`, so a failure is one statement:
 *     return ms_error_set(err, -EINVAL, "slots must be positive");
 */
int ms_error_set(struct ms_error *err, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Like ms_error_set, with ": <strerror(-code)>" appended. */
int ms_error_sys(struct ms_error *err, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Put context before a text that is there already: "<context>: <text>". */
int ms_error_wrap(struct ms_error *err, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
