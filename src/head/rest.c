#include "head/rest.h"
#include "base/cleanup.h"
#include "head/rest_impl.h"
#include "io/addr.h"
#include "io/http_text.h"
#include "io/tcp.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- answers --------------------------------------------------------------------- */

void ms_rest_wait_begin(struct rest_wait *w, const struct rest_ask *ask)
{
    w->rest = ask->rest;
    w->conn = ask->conn;
    ms_list_add_tail(&ask->rest->waits, &w->link);
    ms_http_conn_set_tag(ask->conn, w);
}

static void on_gone(void *arg, void *tag)
{
    struct rest_wait *w = tag;

    (void)arg;
    w->conn = NULL; /* what it waited for goes on */
}

int64_t ms_rest_number(const struct rest_ask *ask,
                       const char *name,
                       int64_t fallback,
                       int64_t least,
                       int64_t most)
{
    const char *at = ask->request->query ? ask->request->query : "";
    size_t name_len = strlen(name);
    char text[24];

    for (; *at; at += strcspn(at, "&"), at += *at == '&') {
        size_t len = strcspn(at, "&");
        uint64_t n;

        if (strncmp(at, name, name_len) != 0 || at[name_len] != '=')
            continue;
        snprintf(
            text, sizeof text, "%.*s", (int)(len - name_len - 1), at + name_len + 1);
        if (ms_http_parse_decimal(text, &n) && n >= (uint64_t)least &&
            n <= (uint64_t)most)
            return (int64_t)n;
        ms_http_conn_fail(ask->conn, 400, "a number of the query is out of its range");
        return -1;
    }
    return fallback;
}

static void do_openapi(const struct rest_ask *ask)
{
    ms_http_conn_reply(ask->conn,
                       200,
                       "application/json",
                       NULL,
                       ms_rest_openapi,
                       strlen(ms_rest_openapi));
}

/* ---- routes ---------------------------------------------------------------------- */

struct route {
    const char *path; /* "*" stands for any segment: the first is a name, then a rank */
    void (*get)(const struct rest_ask *ask);
    void (*end)(const struct rest_ask *ask); /* DELETE */
    bool is_open;
};

static const struct route routes[] = {
    {"metrics", ms_rest_metrics, NULL, false}, /* the first: it may be open */
    {"api/v1/health", ms_rest_health, NULL, true},
    {"api/v1/version", ms_rest_version, NULL, false},
    {"api/v1/openapi.json", do_openapi, NULL, false},
    {"api/v1/status", ms_rest_status, NULL, false},
    {"api/v1/nodes", ms_rest_nodes, NULL, false},
    {"api/v1/nodes/*", ms_rest_node, NULL, false},
    {"api/v1/drivers", ms_rest_drivers, NULL, false},
    {"api/v1/groups", ms_rest_groups, NULL, false},
    {"api/v1/objects", ms_rest_objects, NULL, false},
    {"api/v1/clusters", ms_rest_clusters, NULL, false},
    {"api/v1/clusters/*", ms_rest_cluster, ms_rest_end, false},
    {"api/v1/clusters/*/workers", ms_rest_workers, NULL, false},
    {"api/v1/clusters/*/workers/*", ms_rest_worker, NULL, false},
    {"api/v1/clusters/*/workers/*/stack", ms_rest_stack, NULL, false},
    {"api/v1/clusters/*/workers/*/logs", ms_rest_logs, NULL, false},
};

static int hex_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* One segment, decoded; false: it is none that anything here could have. */
static bool decode(const char *from, size_t len, char *to)
{
    for (size_t i = 0; i < len; i++) {
        int c = (unsigned char)from[i];

        if (c == '%') {
            if (i + 2 >= len || hex_of(from[i + 1]) < 0 || hex_of(from[i + 2]) < 0)
                return false;
            c = hex_of(from[i + 1]) * 16 + hex_of(from[i + 2]);
            i += 2;
        }
        if (c <= ' ' || c == '/' || c >= 0x7f)
            return false;
        *to++ = (char)c;
    }
    *to = 0;
    return true;
}

/* Does the path match? *name and *rank are copies of its variable segments. */
static bool matches(const char *route, const char *path, char *name, char *rank)
{
    char *variables[] = {name, rank};
    size_t next = 0;

    if (*path++ != '/')
        return false;
    for (;;) {
        size_t len = strcspn(path, "/"), want = strcspn(route, "/");

        if (*route == '*') {
            if (len == 0 || len > 3 * MS_NAME_MAX || next == MS_COUNT(variables) ||
                !decode(path, len, variables[next++]))
                return false;
        } else if (len != want || strncmp(path, route, len) != 0) {
            return false;
        }
        path += len;
        route += want;
        if (!*path || !*route)
            return !*path && !*route;
        path++;
        route++;
    }
}

enum { SEGMENT_MAX = 3 * (int)MS_NAME_MAX + 1 };

static const struct route *
route_find(const char *path, char name[SEGMENT_MAX], char rank[SEGMENT_MAX])
{
    name[0] = rank[0] = 0;
    for (size_t i = 0; i < MS_COUNT(routes); i++)
        if (matches(routes[i].path, path, name, rank))
            return &routes[i];
    return NULL;
}

static bool is_public(void *arg, const struct ms_http_request *r)
{
    const struct ms_rest *rest = arg;
    char name[SEGMENT_MAX], rank[SEGMENT_MAX];
    const struct route *route = route_find(r->path, name, rank);

    return route && (route->is_open || (rest->open_metrics && route == &routes[0]));
}

static int on_head(void *arg,
                   const struct ms_http_request *r,
                   uint64_t *body_max,
                   const char **why)
{
    const struct ms_rest *rest = arg;

    *body_max = MS_HTTP_SMALL_MAX;
    if (is_public(arg, r))
        return 0;
    if (!ms_http_token_is_shown(&rest->token, r)) {
        *why = "the token is missing or wrong: Authorization: Bearer <token>";
        return 401;
    }
    if (ms_http_header_find(r, "origin") && strcmp(r->method, "GET") != 0) {
        *why = "requests of web pages are not served";
        return 403;
    }
    return 0;
}

static void
on_request(void *arg, struct ms_http_conn *c, const struct ms_http_request *r)
{
    struct ms_rest *rest = arg;
    char name[SEGMENT_MAX], rank[SEGMENT_MAX];
    const struct route *route = route_find(r->path, name, rank);
    struct rest_ask ask = {rest, c, r, name, rank};
    bool is_get = strcmp(r->method, "GET") == 0 || strcmp(r->method, "HEAD") == 0;

    rest->requests++;
    if (!route)
        ms_http_conn_fail(c, 404, "there is nothing at this path");
    else if (is_get)
        route->get(&ask);
    else if (route->end && strcmp(r->method, "DELETE") == 0)
        route->end(&ask);
    else
        ms_http_conn_fail_with(c,
                               405,
                               route->end ? "Allow: GET, HEAD, DELETE\r\n"
                                          : "Allow: GET, HEAD\r\n",
                               "this path has other methods");
}

static const struct ms_http_conn_ops conn_ops = {.on_head = on_head,
                                                 .is_public = is_public,
                                                 .on_request = on_request,
                                                 .on_gone = on_gone,
                                                 .has_problems = true};

/* ---- life ------------------------------------------------------------------------ */

static void on_listen(void *arg, unsigned events)
{
    struct ms_rest *rest = arg;
    int fd;

    (void)events;
    while ((fd = ms_tcp_accept(rest->listen_fd, NULL)) >= 0)
        ms_http_server_add(&rest->server, fd, NULL, 0);
}

static int rest_listen(struct ms_rest *rest, const char *at, struct ms_error *err)
{
    struct ms_addr addr;
    int rc = ms_addr_parse_listen(at, &addr, err);

    if (rc == 0 && addr.is_unix)
        rc = ms_error_set(err, -EINVAL, "'%s' is not HOST:PORT", at);
    if (rc < 0)
        return rc;
    rest->listen_fd = ms_tcp_listen(addr.name, &addr.port, err);
    if (rest->listen_fd < 0)
        return rest->listen_fd;
    if (!ms_addr_format(&addr, rest->address, sizeof rest->address))
        return ms_error_set(err, -ENAMETOOLONG, "the address is too long");
    return ms_watch_init(&rest->listen_watch,
                         rest->head->loop,
                         rest->listen_fd,
                         MS_READ,
                         on_listen,
                         rest);
}

struct ms_rest *
ms_rest_open(struct ms_head *h, const char *at, bool open_metrics, struct ms_error *err)
{
    struct ms_rest *rest = calloc(1, sizeof *rest);
    int rc;

    if (!rest) {
        ms_error_sys(err, -ENOMEM, "cannot serve HTTP");
        return NULL;
    }
    rest->head = h;
    rest->open_metrics = open_metrics;
    rest->listen_fd = -1;
    ms_list_init(&rest->waits);
    ms_http_server_init(&rest->server, h->loop, &conn_ops, rest);
    rc = ms_http_token_make(&rest->token, h->session.secret, sizeof h->session.secret);
    if (rc < 0)
        ms_error_sys(err, rc, "cannot make the token");
    else
        rc = rest_listen(rest, at, err);
    if (rc == 0)
        return rest;
    ms_error_wrap(err, "cannot serve HTTP");
    ms_rest_close(rest);
    return NULL;
}

void ms_rest_close(struct ms_rest *rest)
{
    if (!rest)
        return;
    ms_watch_finish(&rest->listen_watch);
    ms_http_server_finish(&rest->server);
    ms_list_each (w, &rest->waits, struct rest_wait, link)
        w->destroy(w);
    ms_rest_worker_finish(rest);
    ms_fd_close(&rest->listen_fd);
    explicit_bzero(&rest->token, sizeof rest->token);
    free(rest);
}

int ms_head_http_open(struct ms_head *h,
                      const char *at,
                      bool open_metrics,
                      struct ms_error *err)
{
    struct ms_error why = {0};

    h->rest = ms_rest_open(h, at, open_metrics, &why);
    return h->rest ? 0 : ms_error_set(err, why.code, "%s", why.text);
}

const char *ms_head_http_address(const struct ms_head *h)
{
    return ms_rest_address(h->rest);
}

const char *ms_rest_address(const struct ms_rest *rest)
{
    return rest ? rest->address : "";
}
