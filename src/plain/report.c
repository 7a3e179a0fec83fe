/* report.c - what is behind muster/error.h and muster/common.h */
#include "muster/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

uint32_t muster_abi(void)
{
    return MUSTER_ABI;
}

const char *muster_version(void)
{
    return MS_VERSION;
}

int muster_error_set(
    struct muster_error *err, int code, const char *type, const char *fmt, ...)
{
    va_list args;

    if (!err)
        return code;
    memset(err, 0, sizeof *err);
    err->kind = MUSTER_ERROR_SYSTEM;
    err->code = code;
    snprintf(err->type, sizeof err->type, "%s", type ? type : "");
    va_start(args, fmt);
    vsnprintf(err->message, sizeof err->message, fmt, args);
    va_end(args);
    return code;
}

const char *muster_error_kind_name(enum muster_error_kind kind)
{
    static const char *const names[] = {
        "unknown",
        "raised",
        "no_engine",
        "no_method",
        "deadline",
        "cancelled",
        "bad_argument",
        "bad_result",
        "refused",
        "deadlock",
        "shutting_down",
        "lost",
        "worker_died",
        "unreachable",
        "no_memory",
        "placement",
    };

    if (kind == MUSTER_ERROR_SYSTEM)
        return "system";
    return (unsigned)kind < sizeof names / sizeof *names ? names[kind] : names[0];
}
