/* error.c - what went wrong, for the program and for the person */
#include "base/error.h"

#include <stdio.h>
#include <string.h>

int ms_error_set(struct ms_error *err, int code, const char *fmt, ...)
{
    va_list ap;

    if (!err)
        return code;
    err->code = code;
    va_start(ap, fmt);
    vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    return code;
}

static void append(struct ms_error *err, const char *text)
{
    size_t used = strlen(err->text);

    snprintf(err->text + used, sizeof err->text - used, ": %s", text);
}

int ms_error_sys(struct ms_error *err, int code, const char *fmt, ...)
{
    va_list ap;
    char why[128];

    if (!err)
        return code;
    err->code = code;
    va_start(ap, fmt);
    vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    append(err, strerror_r(-code, why, sizeof why));
    return code;
}

int ms_error_wrap(struct ms_error *err, const char *fmt, ...)
{
    va_list ap;
    char inner[MS_ERROR_TEXT_MAX];

    if (!err)
        return 0;
    memcpy(inner, err->text, sizeof inner);
    va_start(ap, fmt);
    vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    append(err, inner);
    return err->code;
}
