#include "base/cleanup.h"
#include "worker/http/http_impl.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

json_t *ms_http_parse(const void *body, size_t len, size_t flags, struct ms_error *err)
{
    json_error_t why;
    json_t *json = json_loadb(body, len, flags | JSON_REJECT_DUPLICATES, &why);

    if (json_is_object(json))
        return json;
    ms_error_set(err,
                 -EINVAL,
                 "the body is not a JSON object%s%s",
                 json ? "" : ": ",
                 json ? "" : why.text);
    json_decref(json);
    return NULL;
}

json_t *ms_http_body(struct ms_http_conn *c, const struct ms_http_request *r)
{
    struct ms_error err = {0};
    json_t *json = ms_http_parse(r->body, r->body_len, 0, &err);

    if (!json)
        ms_http_conn_fail(c, 400, err.text);
    return json;
}

void ms_http_own_host(struct ms_http_conn *c, char *out, size_t room)
{
    struct sockaddr_storage at = {0};
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    socklen_t len = sizeof at;

    snprintf(out, room, "127.0.0.1");
    if (getsockname(ms_http_conn_fd(c), (struct sockaddr *)&at, &len) < 0)
        return;
    memcpy(&v4, &at, sizeof v4);
    memcpy(&v6, &at, sizeof v6);
    if (at.ss_family == AF_INET)
        inet_ntop(AF_INET, &v4.sin_addr, out, (socklen_t)room);
    else if (at.ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr))
        inet_ntop(AF_INET, v6.sin6_addr.s6_addr + 12, out, (socklen_t)room);
    else if (at.ss_family == AF_INET6)
        inet_ntop(AF_INET6, &v6.sin6_addr, out, (socklen_t)room);
}
