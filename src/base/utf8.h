/* utf8.h - is this text UTF-8? */
#ifndef MS_BASE_UTF8_H
#define MS_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* The length of the sequence that begins a text of `len` > 0 bytes; 0: it is none. */
size_t ms_utf8_sequence(const char *text, size_t len);

/* NULs are characters too. */
bool ms_utf8_is_valid(const char *text, size_t len);

#endif
