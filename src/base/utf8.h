/* utf8.h - is this text? */
#ifndef MS_BASE_UTF8_H
#define MS_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* NULs are characters too. */
bool ms_utf8_is_valid(const char *text, size_t len);

#endif
