/* text.h - the characters that HTTP/1.1 allows, and its numbers; pure */
#ifndef MS_IO_HTTP_TEXT_H
#define MS_IO_HTTP_TEXT_H

#include <stdbool.h>
#include <stdint.h>

bool ms_http_is_token(const char *text);  /* not empty */
bool ms_http_is_target(const char *text); /* visible ASCII, not empty */
bool ms_http_is_value(const char *text);  /* no control characters but tabs */
void ms_http_lower(char *text);           /* in place, ASCII */
char *ms_http_trim(char *text);           /* in place, spaces and tabs at both ends */

/* Digits only, and it fits. */
bool ms_http_parse_decimal(const char *text, uint64_t *out);
/* Hexadecimal digits, then nothing or an extension behind ';'. */
bool ms_http_parse_chunk_size(const char *text, uint64_t *out);
/* A comma-separated list has this word, in any case of letters. */
bool ms_http_list_has(const char *list, const char *word);

/* The name of a status: "Not Found". */
const char *ms_http_reason(int status);

#endif
