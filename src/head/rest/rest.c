/* rest.c - the head by HTTP: listening, who may, routes */
#include "head/rest/rest.h"
#include "base/cleanup.h"
#include "head/head_impl.h"
#include "head/rest/rest_impl.h"
#include "io/addr.h"
#include "io/http/text.h"
#include "io/tcp.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

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

bool ms_rest_text(const struct rest_ask *ask, const char *name, char *out, size_t room)
{
    const char *at = ask->request->query ? ask->request->query : "";
    size_t name_len = strlen(name);

    for (; *at; at += strcspn(at, "&"), at += *at == '&') {
        size_t len = strcspn(at, "&");

        if (strncmp(at, name, name_len) != 0 || at[name_len] != '=')
            continue;
        snprintf(out, room, "%.*s", (int)(len - name_len - 1), at + name_len + 1);
        return true;
    }
    return false;
}

int64_t ms_rest_number(const struct rest_ask *ask,
                       const char *name,
                       int64_t fallback,
                       int64_t least,
                       int64_t most)
{
    char text[24];
    uint64_t n;

    if (!ms_rest_text(ask, name, text, sizeof text))
        return fallback;
    if (ms_http_parse_decimal(text, &n) && n >= (uint64_t)least && n <= (uint64_t)most)
        return (int64_t)n;
    ms_http_conn_fail(ask->conn, 400, "a number of the query is out of its range");
    return -1;
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

#define STATUS(shows)     .show = (shows)
#define WORKERS(shows)    .show = (shows), .asks_workers = true
#define OF(list, element) .field = (list), .view = (element)

static const struct rest_route routes[] = {
    {"metrics", WORKERS(ms_rest_metrics)}, /* the first: it may be open */
    {"api/v1/health", .get = ms_rest_health, .is_open = true},
    {"api/v1/version", .get = ms_rest_version},
    {"api/v1/openapi.json", .get = do_openapi},
    {"api/v1/status", STATUS(ms_rest_status)},
    {"api/v1/nodes", WORKERS(ms_rest_list), OF("nodes", ms_view_node)},
    {"api/v1/nodes/*", WORKERS(ms_rest_element), OF("nodes", ms_view_node)},
    {"api/v1/drivers", STATUS(ms_rest_list), OF("drivers", ms_view_driver)},
    {"api/v1/groups", STATUS(ms_rest_list), OF("groups", ms_view_group)},
    {"api/v1/clusters", WORKERS(ms_rest_list), OF("clusters", ms_view_cluster)},
    {"api/v1/clusters/*", WORKERS(ms_rest_element), OF("clusters", ms_view_cluster)},
    {"api/v1/clusters/*/workers", WORKERS(ms_rest_workers), OF("clusters", NULL)},
    {"api/v1/clusters/*/workers/*", WORKERS(ms_rest_worker), OF("clusters", NULL)},
    {"api/v1/clusters/*/workers/*/stack", STATUS(ms_rest_stack), OF("clusters", NULL)},
    {"api/v1/clusters/*/workers/*/logs", STATUS(ms_rest_logs), OF("clusters", NULL)},
    {"api/v1/jobs/*/logs", .get = ms_rest_job_logs},
};

static int hex_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool ms_rest_decode(const char *from, size_t len, char *to)
{
    for (size_t i = 0; i < len; i++) {
        int c = (unsigned char)from[i];

        if (c == '%') {
            if (i + 2 >= len || hex_of(from[i + 1]) < 0 || hex_of(from[i + 2]) < 0)
                return false;
            c = hex_of(from[i + 1]) * 16 + hex_of(from[i + 2]);
            i += 2;
        }
        if (c == 0)
            return false;
        *to++ = (char)c;
    }
    *to = 0;
    return true;
}

/* Is this what a node, a cluster or a rank can be called? */
static bool is_name(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text <= ' ' || *text == '/' || (unsigned char)*text >= 0x7f)
            return false;
    return true;
}

enum { SEGMENT_MAX = 3 * (int)MS_KV_KEY_MAX + 1, VARIABLES_MAX = 2 };

/* What a request is for: `route`, `verb` or neither. */
struct match {
    const struct rest_route *route;
    const struct ms_verb *verb;
    char allow[64]; /* methods of this path; empty: nothing is there */
    char variables[VARIABLES_MAX][SEGMENT_MAX];
};

/* A segment that stands for any: `to` is what is there, decoded. */
static bool
take_variable(const char *route, const char *path, size_t len, char to[SEGMENT_MAX])
{
    return len > 0 && len < SEGMENT_MAX && ms_rest_decode(path, len, to) &&
           (strncmp(route, "{+", 2) == 0 || is_name(to));
}

/* Does the path fit? */
static bool matches(const char *route, const char *path, char (*variables)[SEGMENT_MAX])
{
    size_t next = 0;

    if (*path++ != '/')
        return false;
    for (;;) {
        size_t len = strcspn(path, "/"), want = strcspn(route, "/");

        if (*route == '*' || *route == '{') {
            if (next == VARIABLES_MAX ||
                !take_variable(route, path, len, variables[next++]))
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

/* True if the request has this method; that the path has it is noted. */
static bool fits(struct match *m, const char *wanted, const char *method)
{
    bool is_get = strcmp(method, "GET") == 0;
    size_t len = strlen(m->allow);

    snprintf(m->allow + len,
             sizeof m->allow - len,
             "%s%s",
             len ? ", " : "",
             is_get ? "GET, HEAD" : method);
    return strcmp(wanted, method) == 0 || (is_get && strcmp(wanted, "HEAD") == 0);
}

static void match_init(struct match *m, const struct ms_http_request *r)
{
    size_t count;
    const struct ms_verb *verbs = ms_verbs(&count);

    m->route = NULL;
    m->verb = NULL;
    m->allow[0] = m->variables[0][0] = m->variables[1][0] = 0;
    for (size_t i = 0; i < MS_COUNT(routes) && !m->route; i++)
        if (matches(routes[i].path, r->path, m->variables) && fits(m, r->method, "GET"))
            m->route = &routes[i];
    for (size_t i = 0; i < count && !m->route && !m->verb; i++)
        if (verbs[i].http.method &&
            matches(verbs[i].http.path, r->path, m->variables) &&
            fits(m, r->method, verbs[i].http.method))
            m->verb = &verbs[i];
}

/* A page in a user's browser may be able to reach us; it cannot send JSON elsewhere
 * without asking first, and says where it comes from. */
static int
check_page(const struct match *m, const struct ms_http_request *r, const char **why)
{
    const char *type = ms_http_header_find(r, "content-type");

    if (ms_http_header_find(r, "origin") && strcmp(r->method, "GET") != 0) {
        *why = "requests of web pages are not served";
        return 403;
    }
    if (m->verb && r->has_body &&
        (!type || strncasecmp(type, "application/json", 16) != 0)) {
        *why = "the body must be application/json";
        return 415;
    }
    return 0;
}

/* It needs no token. */
static bool is_open(const struct ms_rest *rest, const struct match *m)
{
    return m->route &&
           (m->route->is_open || (rest->open_metrics && m->route == &routes[0]));
}

static bool is_public(void *arg, const struct ms_http_request *r)
{
    struct match m;

    match_init(&m, r);
    return is_open(arg, &m);
}

static int on_head(void *arg,
                   const struct ms_http_request *r,
                   uint64_t *body_max,
                   const char **why)
{
    const struct ms_rest *rest = arg;
    struct match m;

    *body_max = MS_HTTP_SMALL_MAX;
    match_init(&m, r);
    if (is_open(rest, &m))
        return 0;
    if (!ms_http_token_is_shown(&rest->token, r)) {
        *why = "the token is missing or wrong: Authorization: Bearer <token>";
        return 401;
    }
    return check_page(&m, r, why);
}

static void fail_method(struct ms_http_conn *c, const struct match *m)
{
    char allow[sizeof m->allow + 16];

    snprintf(allow, sizeof allow, "Allow: %s\r\n", m->allow);
    ms_http_conn_fail_with(c, 405, allow, "this path has other methods");
}

static void
on_request(void *arg, struct ms_http_conn *c, const struct ms_http_request *r)
{
    struct ms_rest *rest = arg;
    struct match m;
    struct rest_ask ask = {rest, c, r, NULL, m.variables[0], m.variables[1]};

    rest->requests++;
    match_init(&m, r);
    ask.route = m.route;
    if (m.route && m.route->show)
        ms_rest_look(&ask);
    else if (m.route)
        m.route->get(&ask);
    else if (m.verb)
        ms_rest_verb(&ask, m.verb);
    else if (m.allow[0])
        fail_method(c, &m);
    else
        ms_http_conn_fail(c, 404, "there is nothing at this path");
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
    while ((fd = ms_tcp_accept(rest->listen_fd)) >= 0)
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

int ms_rest_open(struct ms_head *h,
                 const char *at,
                 bool open_metrics,
                 struct ms_error *err)
{
    struct ms_rest *rest = h->rest = calloc(1, sizeof *rest);
    int rc;

    if (!rest)
        return ms_error_sys(err, -ENOMEM, "cannot serve HTTP");
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
    return rc < 0 ? ms_error_wrap(err, "cannot serve HTTP") : 0;
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

const char *ms_head_http_address(const struct ms_head *h)
{
    return ms_rest_address(h->rest);
}

const char *ms_rest_address(const struct ms_rest *rest)
{
    return rest ? rest->address : "";
}
