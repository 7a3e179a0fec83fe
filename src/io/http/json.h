/* json.h - answers of HTTP that are JSON */
#ifndef MS_IO_HTTP_JSON_H
#define MS_IO_HTTP_JSON_H

#include "io/http/conn.h"

#include <jansson.h>

/* Answer and let go of `json` (NULL: out of memory, and that is the answer). */
void ms_http_reply_json(struct ms_http_conn *c, int status, json_t *json);

#endif
