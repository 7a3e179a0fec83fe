#include "io/http/json.h"
#include "base/cleanup.h"

#include <string.h>

void ms_http_reply_json(struct ms_http_conn *c, int status, json_t *json)
{
    MS_CLEANUP(ms_cleanup_free)
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;

    json_decref(json);
    if (text)
        ms_http_conn_reply(c, status, "application/json", NULL, text, strlen(text));
    else
        ms_http_conn_fail(c, 503, "out of memory");
}
