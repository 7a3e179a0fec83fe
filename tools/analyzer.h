/* analyzer.h - what clang-tidy cannot see across files
 *
 * tools/check puts this before every source but error.c. These functions return the
 * code they are given; without that the analyzer follows `return ms_error_set(...)` as
 * if it might mean success.
 */
#ifndef MS_TOOLS_ANALYZER_H
#define MS_TOOLS_ANALYZER_H

#include "base/error.h"

#define ms_error_set(err, code, ...) (ms_error_set(err, code, __VA_ARGS__), (code))
#define ms_error_sys(err, code, ...) (ms_error_sys(err, code, __VA_ARGS__), (code))

#endif
