/* http.c - the routes of a worker's HTTP: who may ask, health, ports */
#include "base/cleanup.h"
#include "base/json.h"
#include "io/tcp.h"
#include "worker/http/http_impl.h"

#include <errno.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

/* ---- JSON in, and addresses --------------------------------------------------------- */

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

void ms_http_own_host(struct ms_http_conn *c, char out[INET6_ADDRSTRLEN])
{
    struct sockaddr_storage at = {0};
    socklen_t len = sizeof at;

    if (getsockname(ms_http_conn_fd(c), (struct sockaddr *)&at, &len) == 0)
        ms_sockaddr_host(&at, out);
    else
        out[0] = 0;
    if (!*out)
        strcpy(out, "127.0.0.1"); /* a unix socket */
}

/* ---- health ---------------------------------------------------------------------- */

static void do_health(struct ms_worker_http *h, struct ms_http_conn *c, json_t *json)
{
    json_t *engines, *health, *ended = ms_http_children_ended(h);

    (void)json;
    if (atomic_load(&h->is_ending)) {
        json_decref(ended);
        ms_http_conn_fail(c, 503, "the worker is shutting down");
        return;
    }
    engines = h->o.engines(h->o.arg);
    health =
        MS_JSON({"status", json_string("healthy")},
                {"forked_children", json_integer((json_int_t)h->children_living)},
                {"engine_count", json_integer((json_int_t)json_array_size(engines))},
                {"engines", engines});
    if (ended)
        json_object_set_new(health, "ended_children", ended);
    ms_http_reply_json(c, 200, health);
}

/* ---- ports ----------------------------------------------------------------------- */

static json_t *ports_json(const uint32_t *ports, uint32_t count, const char *host)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < count; i++)
        json_array_append_new(list, json_integer(ports[i]));
    return MS_JSON({"status", json_string("success")},
                   {"host", json_string(host)},
                   {"ports", list});
}

static void
do_alloc_ports(struct ms_worker_http *h, struct ms_http_conn *c, json_t *json)
{
    const json_t *count = json_object_get(json, "count");
    json_int_t n = json_integer_value(count);
    uint32_t ports[MS_PORTS_MAX];
    char host[INET6_ADDRSTRLEN];
    struct ms_error err = {0};

    if (!json_is_integer(count) || n <= 0) {
        ms_http_conn_fail(c, 400, "'count' must be a positive integer");
    } else if (n > (json_int_t)MS_PORTS_MAX) {
        ms_http_conn_fail(c, 400, "'count' is more than one worker can hold");
    } else if (h->o.alloc_ports(h->o.arg, (uint32_t)n, ports, &err) < 0) {
        ms_http_conn_fail(c, 500, err.text);
    } else {
        ms_http_own_host(c, host);
        ms_http_reply_json(c, 200, ports_json(ports, (uint32_t)n, host));
    }
}

/* ---- routes ---------------------------------------------------------------------- */

struct route {
    const char *method, *path;
    uint64_t body_max;
    uint16_t op; /* of the engine's thread; 0: `answer` */
    void (*answer)(struct ms_worker_http *h, struct ms_http_conn *c, json_t *json);
    bool is_open, has_json; /* needs no token; its body is a JSON object */
};

static const struct route routes[] = {
    {"GET", "/health", MS_HTTP_SMALL_MAX, 0, do_health, true, false},
    {"POST", "/call", MS_HTTP_BODY_MAX, MS_OP_HTTP_CALL, NULL, false, false},
    {"POST", "/configure", MS_HTTP_BODY_MAX, MS_OP_HTTP_CONFIGURE, NULL, false, false},
    {"POST",
     "/create_engine",
     MS_HTTP_BODY_MAX,
     MS_OP_HTTP_CREATE_ENGINE,
     NULL,
     false,
     false},
    {"POST", "/set_env", MS_HTTP_SMALL_MAX, MS_OP_HTTP_SET_ENV, NULL, false, false},
    {"POST", "/alloc_ports", MS_HTTP_SMALL_MAX, 0, do_alloc_ports, false, true},
    {"POST", "/fork", MS_HTTP_SMALL_MAX, 0, ms_http_fork, false, true},
    {"POST", "/kill_forked_worker", MS_HTTP_SMALL_MAX, 0, ms_http_kill, false, true},
};
static const struct route data_route = {
    NULL, MS_HTTP_DATA, MS_HTTP_BODY_MAX, 0, NULL, false, false};
static const struct route put_route = {
    "PUT", MS_HTTP_DATA, MS_HTTP_PUT_MAX / 3 * 4, 0, NULL, false, false};

static const struct route *route_find(const struct ms_http_request *r)
{
    for (size_t i = 0; i < MS_COUNT(routes); i++)
        if (strcmp(routes[i].path, r->path) == 0)
            return &routes[i];
    if (strncmp(r->path, MS_HTTP_DATA, strlen(MS_HTTP_DATA)) != 0)
        return NULL;
    return strcmp(r->method, "PUT") == 0 ? &put_route : &data_route;
}

static bool method_is(const struct route *route, const char *method)
{
    if (!route->method || strcmp(route->method, method) == 0)
        return true;
    return strcmp(route->method, "GET") == 0 && strcmp(method, "HEAD") == 0;
}

/* A page in a user's browser may be able to reach us; it cannot send JSON elsewhere
 * without asking first, and says where it comes from. */
static int check_origin(const struct ms_http_request *r, const char **why)
{
    const char *type = ms_http_header_find(r, "content-type");

    if (ms_http_header_find(r, "origin")) {
        *why = "requests of web pages are not served";
        return 403;
    }
    if (r->has_body && strcmp(r->method, "PUT") != 0 &&
        (!type || strncasecmp(type, "application/json", 16) != 0)) {
        *why = "the body must be application/json";
        return 400;
    }
    return 0;
}

static bool is_public(void *arg, const struct ms_http_request *r)
{
    const struct route *route = route_find(r);

    (void)arg;
    return route && route->is_open;
}

/* The token is made when the first request shows one: that takes a twentieth of the time
 * in which a worker starts, and few workers are asked by HTTP. */
static bool shows_token(struct ms_worker_http *h, const struct ms_http_request *r)
{
    const Muster__WorkerBoot *boot = h->o.boot;

    if (!h->token.text[0] &&
        ms_http_token_make(&h->token, boot->secret.data, boot->secret.len) < 0)
        return false;
    return ms_http_token_is_shown(&h->token, r);
}

static int on_head(void *arg,
                   const struct ms_http_request *r,
                   uint64_t *body_max,
                   const char **why)
{
    const struct ms_worker_http *h = arg;
    const struct route *route = route_find(r);

    *body_max =
        route && method_is(route, r->method) ? route->body_max : MS_HTTP_SMALL_MAX;
    if (is_public(arg, r))
        return 0;
    if (!h->o.boot->http_open && !shows_token(arg, r)) {
        *why = "the token is missing or wrong: Authorization: Bearer <token>";
        return 401;
    }
    return check_origin(r, why);
}

static bool
takes_parts(void *arg, struct ms_http_conn *c, const struct ms_http_request *r)
{
    if (route_find(r) != &put_route)
        return false;
    ms_http_put_begin(arg, c, r, r->path + strlen(MS_HTTP_DATA));
    return true;
}

static void on_part(void *arg, void *tag, const uint8_t *data, size_t len)
{
    (void)arg;
    if (tag) /* else there was no memory for it */
        ms_http_put_part(tag, data, len);
}

static void answer(struct ms_worker_http *h,
                   struct ms_http_conn *c,
                   const struct ms_http_request *r,
                   const struct route *route)
{
    struct ms_error err = {0};
    json_t *json =
        route->has_json ? ms_http_parse(r->body, r->body_len, 0, &err) : NULL;

    if (route->has_json && !json)
        ms_http_conn_fail(c, 400, err.text);
    else
        route->answer(h, c, json);
    json_decref(json);
}

static void
on_request(void *arg, struct ms_http_conn *c, const struct ms_http_request *r)
{
    const struct route *route = route_find(r);

    if (!route)
        ms_http_conn_fail(c, 404, "there is nothing at this path");
    else if (!method_is(route, r->method))
        ms_http_conn_fail(c, 405, "this path has another method");
    else if (route == &put_route && ms_http_conn_tag(c))
        ms_http_put_whole(ms_http_conn_tag(c));
    else if (route == &data_route || route == &put_route)
        ms_http_data(arg, c, r);
    else if (route->op)
        ms_http_call(arg, c, r, route->op);
    else
        answer(arg, c, r, route);
}

void ms_http_wait_begin(struct http_wait *w, struct ms_http_conn *c)
{
    w->conn = c;
    ms_http_conn_set_tag(c, w);
}

static void on_gone(void *arg, void *tag)
{
    struct http_wait *w = tag;

    (void)arg;
    if (!w)
        return;
    w->conn = NULL;
    if (w->on_gone)
        w->on_gone(w);
}

static const struct ms_http_conn_ops conn_ops = {.on_head = on_head,
                                                 .is_public = is_public,
                                                 .takes_parts = takes_parts,
                                                 .on_part = on_part,
                                                 .on_request = on_request,
                                                 .on_gone = on_gone};

/* ---- life ------------------------------------------------------------------------ */

static void on_end(void *arg, unsigned events)
{
    struct ms_worker_http *h = arg;

    (void)events;
    ms_watch_set(&h->end_watch, 0);
    ms_http_calls_end(h);
}

void ms_worker_http_end(struct ms_worker_http *h)
{
    uint64_t one = 1;

    atomic_store(&h->is_ending, true);
    if (write(h->end_fd, &one, sizeof one) < 0)
        return; /* it is readable already */
}

unsigned ms_worker_http_conns_max(unsigned share)
{
    struct rlimit files = {0};
    rlim_t most;

    if (getrlimit(RLIMIT_NOFILE, &files) < 0)
        return MS_HTTP_CONNS_MAX;
    most = files.rlim_cur / share;
    return most < 1 ? 1 : most < MS_HTTP_CONNS_MAX ? (unsigned)most : MS_HTTP_CONNS_MAX;
}

struct ms_worker_http *ms_worker_http_create(const struct ms_worker_http_options *o)
{
    struct ms_worker_http *h = calloc(1, sizeof *h);

    if (!h)
        return NULL;
    h->o = *o;
    ms_list_init(&h->calls);
    ms_list_init(&h->children);
    ms_http_tensors_init(&h->shards);
    ms_http_server_init(&h->server, o->loop, &conn_ops, h);
    h->server.conns_max = ms_worker_http_conns_max(2);
    if (o->boot->http_open)
        h->server.unproven_max = h->server.conns_max;
    h->store = ms_http_store_create(o->loop, o->boot);
    h->env = json_object();
    h->end_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!h->store || !h->env || h->end_fd < 0 || ms_http_lease_init(h) < 0 ||
        ms_watch_init(&h->end_watch, o->loop, h->end_fd, MS_READ, on_end, h) < 0) {
        ms_worker_http_destroy(h);
        return NULL;
    }
    return h;
}

void ms_worker_http_destroy(struct ms_worker_http *h)
{
    if (!h)
        return;
    ms_http_calls_forget(h);
    ms_http_server_finish(&h->server);
    ms_http_calls_finish(h);
    ms_http_children_finish(h);
    ms_timer_finish(&h->lease);
    ms_http_tensors_finish(&h->shards);
    ms_http_store_destroy(h->store);
    ms_watch_finish(&h->end_watch);
    ms_fd_close(&h->end_fd);
    json_decref(h->env);
    free(h);
}

void ms_worker_http_forget(struct ms_worker_http *h)
{
    ms_http_server_forget(&h->server);
    ms_http_store_forget(h->store);
    close(h->end_fd);
}

struct ms_http_tensors *ms_worker_http_shards(struct ms_worker_http *h)
{
    return &h->shards;
}

void ms_worker_http_serve(struct ms_worker_http *h, int fd)
{
    ms_http_server_add(&h->server, fd, NULL, 0); /* without memory it is closed */
}
