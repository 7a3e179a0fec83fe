/* reply.c - answers in JSON, and the errors of an HTTP server */
#include "base/cleanup.h"
#include "base/json.h"
#include "io/http/conn.h"
#include "io/http/text.h"

#include <string.h>

void ms_http_conn_fail_with(struct ms_http_conn *c,
                            int status,
                            const char *more,
                            const char *text)
{
    bool is_problem = ms_http_conn_ops_of(c)->has_problems;
    json_t *o = is_problem ? MS_JSON({"type", json_string("about:blank")},
                                     {"title", json_string(ms_http_reason(status))},
                                     {"status", json_integer(status)},
                                     {"detail", ms_json_string(text)})
                           : MS_JSON({"status", json_string("error")},
                                     {"error", ms_json_string(text)});
    MS_CLEANUP(ms_cleanup_free) char *json = o ? json_dumps(o, 0) : NULL;
    MS_CLEANUP(ms_buf_finish) struct ms_buf body = {0};

    json_decref(o);
    ms_buf_printf(&body, "%s\n", json ? json : "{}"); /* without memory: no reason */
    ms_http_conn_reply(c,
                       status,
                       is_problem ? "application/problem+json" : "application/json",
                       more,
                       body.data,
                       body.len);
}

void ms_http_conn_fail(struct ms_http_conn *c, int status, const char *text)
{
    const char *more = status == 401 ? "WWW-Authenticate: Bearer\r\n" : NULL;

    ms_http_conn_fail_with(c, status, more, text);
}

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
