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

int ms_error_sys(struct ms_error *err, int code, const char *fmt, ...)
{
    va_list ap;
    char why[128];
    size_t used;

    if (!err)
        return code;
    err->code = code;
    va_start(ap, fmt);
    vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    used = strlen(err->text);
    snprintf(err->text + used,
             sizeof err->text - used,
             ": %s",
             strerror_r(-code, why, sizeof why));
    return code;
}

int ms_error_wrap(struct ms_error *err, const char *fmt, ...)
{
    va_list ap;
    char inner[MS_ERROR_TEXT_MAX];
    size_t used;

    if (!err)
        return 0;
    memcpy(inner, err->text, sizeof inner);
    va_start(ap, fmt);
    vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    used = strlen(err->text);
    snprintf(err->text + used, sizeof err->text - used, ": %s", inner);
    return err->code;
}
