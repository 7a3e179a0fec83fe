/* common.h - what all headers of Muster share
 *
 * Names begin with muster_ or MUSTER_. Structures whose fields are not shown are opaque.
 * Functions return 0 (or a count) or a negative errno, unless they say otherwise; where
 * a person will want to read the reason there is a `struct muster_error *`, which may be
 * NULL. Nothing here prints, exits or handles a signal.
 *
 * Versions. Within one MUSTER_ABI programs and workers that were compiled with an older
 * header go on working: functions and fields are only added, fields at the end of those
 * structures that begin with their `size`. muster_abi() is what the library has;
 * a worker says in its class with which one it was compiled.
 */
#ifndef MUSTER_COMMON_H
#define MUSTER_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MUSTER_ABI 1

#define MUSTER_API __attribute__((visibility("default")))

#ifdef __cplusplus
#define MUSTER_BEGIN extern "C" {
#define MUSTER_END   }
#else
#define MUSTER_BEGIN
#define MUSTER_END
#endif

/* A time that never comes, where nanoseconds are asked for. */
#define MUSTER_NEVER INT64_MAX

#ifdef __cplusplus
/* Zeros, and the size: what the macros for options are in C++, where an initialiser that
 * leaves fields out is warned of. */
template <typename Options> inline Options muster_options_of()
{
    Options o = Options();

    o.size = static_cast<uint32_t>(sizeof o);
    return o;
}
#endif

MUSTER_BEGIN

/* Of the library that this program runs with. */
MUSTER_API uint32_t muster_abi(void);
MUSTER_API const char *muster_version(void); /* "0.1.0" */

MUSTER_END

#endif
