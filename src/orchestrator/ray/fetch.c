#include "orchestrator/ray/fetch.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/list.h"
#include "orchestrator/ray/curl_api.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { STALL_BYTES_A_SECOND = 1024 };

/* One socket that curl has. */
struct socket {
    struct ms_list link;
    struct ms_fetcher *fetcher;
    curl_socket_t fd;
    struct ms_watch watch;
};

struct ms_fetcher {
    struct ms_loop *loop;
    const struct ms_curl_api *api;
    CURLM *multi;
    struct ms_timer timer;
    struct ms_list fetches, sockets;
    bool is_telling,
        is_dead; /* destroyed by somebody who is being told: a little later */
};

struct ms_fetch {
    struct ms_list link;
    struct ms_fetcher *fetcher;
    CURL *easy;
    struct curl_slist *headers;
    struct ms_buf answer;
    uint8_t *body; /* our copy */
    ms_fetched *done;
    void *arg;
    char problem[CURL_ERROR_SIZE];
};

/* ---- one of them ------------------------------------------------------------------- */

static void fetch_free(struct ms_fetch *one)
{
    const struct ms_curl_api *api = one->fetcher->api;

    ms_list_remove(&one->link);
    if (one->easy) {
        api->multi_remove(one->fetcher->multi, one->easy);
        api->easy_cleanup(one->easy);
    }
    api->slist_free(one->headers);
    ms_buf_finish(&one->answer);
    free(one->body);
    free(one);
}

void ms_fetch_drop(struct ms_fetch *one)
{
    if (one)
        fetch_free(one);
}

static size_t on_data(char *data, size_t size, size_t count, void *arg)
{
    struct ms_fetch *one = arg;

    if (one->answer.len + size * count > MS_FETCH_ANSWER_MAX ||
        ms_buf_append(&one->answer, data, size * count) < 0)
        return 0;
    return size * count;
}

/* The nearest errno. */
static int code_of(CURLcode code)
{
    switch (code) {
    case CURLE_COULDNT_CONNECT:
        return -ECONNREFUSED;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
        return -ENXIO;
    case CURLE_OPERATION_TIMEDOUT:
        return -ETIMEDOUT;
    case CURLE_OUT_OF_MEMORY:
        return -ENOMEM;
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
        return -EINVAL;
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_PARTIAL_FILE:
        return -ECONNRESET;
    default:
        return -EIO;
    }
}

static void complete(struct ms_fetch *one, CURLcode code)
{
    const struct ms_curl_api *api = one->fetcher->api;
    struct ms_fetch_answer a = {.type = "", .local = ""};
    char *type = NULL, *local = NULL;
    long status = 0;

    api->easy_get(one->easy, CURLINFO_RESPONSE_CODE, &status);
    api->easy_get(one->easy, CURLINFO_CONTENT_TYPE, &type);
    api->easy_get(one->easy, CURLINFO_LOCAL_IP, &local);
    a.status = (int)status;
    a.type = type ? type : "";
    a.local = local ? local : "";
    a.body = ms_buf_str(&one->answer);
    a.len = one->answer.len;
    if (code != CURLE_OK)
        a.rc = ms_error_set(&a.why,
                            code_of(code),
                            "%s",
                            one->problem[0] ? one->problem : api->easy_strerror(code));
    else if (!a.body)
        a.rc = ms_error_set(&a.why, -ENOMEM, "out of memory");
    ms_list_remove(&one->link); /* whoever drops all others does not find it */
    one->done(one->arg, &a);
}

/* ---- curl and the loop ------------------------------------------------------------- */

static void fetcher_free(struct ms_fetcher *f);

static void collect(struct ms_fetcher *f)
{
    CURLMsg *message;
    int left;

    f->is_telling = true;
    while (!f->is_dead && (message = f->api->multi_read(f->multi, &left))) {
        struct ms_fetch *one = NULL;
        CURLcode code = message->data.result;

        if (message->msg != CURLMSG_DONE)
            continue;
        f->api->easy_get(message->easy_handle, CURLINFO_PRIVATE, &one);
        complete(one, code);
        fetch_free(one);
    }
    f->is_telling = false;
    if (f->is_dead)
        fetcher_free(f);
}

static void on_socket(void *arg, unsigned events)
{
    struct socket *s = arg;
    struct ms_fetcher *f = s->fetcher;
    int running, what = (events & MS_READ ? CURL_CSELECT_IN : 0) |
                        (events & MS_WRITE ? CURL_CSELECT_OUT : 0);

    f->api->multi_act(f->multi, s->fd, what, &running);
    collect(f);
}

static void on_time(void *arg)
{
    struct ms_fetcher *f = arg;
    int running;

    f->api->multi_act(f->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    collect(f);
}

static int want_time(CURLM *multi, long timeout_ms, void *arg)
{
    struct ms_fetcher *f = arg;

    (void)multi;
    if (timeout_ms < 0) {
        ms_timer_cancel(&f->timer);
        return 0;
    }
    return ms_timer_set(&f->timer, timeout_ms * MS_NS_PER_MS) < 0 ? -1 : 0;
}

static void socket_free(struct socket *s)
{
    ms_list_remove(&s->link);
    ms_watch_finish(&s->watch);
    free(s);
}

static struct socket *socket_create(struct ms_fetcher *f, curl_socket_t fd)
{
    struct socket *s = calloc(1, sizeof *s);

    if (!s)
        return NULL;
    s->fetcher = f;
    s->fd = fd;
    if (ms_watch_init(&s->watch, f->loop, fd, 0, on_socket, s) < 0) {
        free(s);
        return NULL;
    }
    ms_list_add_tail(&f->sockets, &s->link);
    return s;
}

static int
want_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *socket_arg)
{
    struct ms_fetcher *f = arg;
    struct socket *s = NULL;

    (void)easy;
    (void)socket_arg;
    ms_list_each (at, &f->sockets, struct socket, link)
        if (at->fd == fd)
            s = at;
    if (what == CURL_POLL_REMOVE) {
        if (s)
            socket_free(s);
        return 0;
    }
    if (!s && !(s = socket_create(f, fd)))
        return -1;
    return ms_watch_set(&s->watch,
                        (what & CURL_POLL_IN ? MS_READ : 0) |
                            (what & CURL_POLL_OUT ? MS_WRITE : 0)) < 0
               ? -1
               : 0;
}

/* ---- life -------------------------------------------------------------------------- */

struct ms_fetcher *ms_fetcher_create(struct ms_loop *loop, struct ms_error *err)
{
    const struct ms_curl_api *api = ms_curl_api(err);
    struct ms_fetcher *f = api ? calloc(1, sizeof *f) : NULL;

    if (!f) {
        if (api)
            ms_error_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    f->loop = loop;
    f->api = api;
    ms_list_init(&f->fetches);
    ms_list_init(&f->sockets);
    f->multi = api->multi_init();
    if (!f->multi || ms_timer_init(&f->timer, loop, on_time, f) < 0) {
        ms_error_set(err, -ENOMEM, "out of memory");
        if (f->multi)
            api->multi_cleanup(f->multi);
        free(f);
        return NULL;
    }
    api->multi_set(f->multi, CURLMOPT_SOCKETFUNCTION, want_socket);
    api->multi_set(f->multi, CURLMOPT_SOCKETDATA, f);
    api->multi_set(f->multi, CURLMOPT_TIMERFUNCTION, want_time);
    api->multi_set(f->multi, CURLMOPT_TIMERDATA, f);
    return f;
}

static void fetcher_free(struct ms_fetcher *f)
{
    if (f->multi)
        f->api->multi_cleanup(f->multi);
    ms_list_each (s, &f->sockets, struct socket, link)
        socket_free(s);
    ms_timer_finish(&f->timer);
    free(f);
}

void ms_fetcher_destroy(struct ms_fetcher *f)
{
    if (!f)
        return;
    ms_list_each (one, &f->fetches, struct ms_fetch, link)
        fetch_free(one);
    f->is_dead = true;
    if (!f->is_telling)
        fetcher_free(f);
}

static bool add_header(struct ms_fetch *one, const char *name, const char *value)
{
    const struct ms_curl_api *api = one->fetcher->api;
    MS_CLEANUP(ms_buf_finish) struct ms_buf line = {0};
    struct curl_slist *longer;

    if (ms_buf_printf(&line, "%s%s", name, value) < 0 || !ms_buf_str(&line))
        return false;
    longer = api->slist_append(one->headers, ms_buf_str(&line));
    if (longer)
        one->headers = longer;
    return longer != NULL;
}

static bool set_body(struct ms_fetch *one, const struct ms_fetch_spec *spec)
{
    const struct ms_curl_api *api = one->fetcher->api;
    const void *body = spec->body;

    if (!spec->type) {
        /* a POST without a body has one of no bytes */
        if (strcmp(spec->method, "POST") == 0)
            api->easy_set(one->easy, CURLOPT_POSTFIELDS, "");
        return true;
    }
    if (!spec->is_borrowed)
        body = one->body = ms_bytes_copy(spec->body, spec->len);
    if (!body || !add_header(one, "Content-Type: ", spec->type))
        return false;
    api->easy_set(one->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)spec->len);
    api->easy_set(one->easy, CURLOPT_POSTFIELDS, body);
    return true;
}

static bool set_up(struct ms_fetch *one, const struct ms_fetch_spec *spec)
{
    const struct ms_curl_api *api = one->fetcher->api;
    CURL *easy = one->easy;

    if (!set_body(one, spec) ||
        (spec->token && !add_header(one, "Authorization: Bearer ", spec->token)) ||
        !add_header(one, "Expect:", "")) /* no waiting for 100 Continue */
        return false;
    api->easy_set(easy, CURLOPT_URL, spec->url);
    api->easy_set(easy, CURLOPT_CUSTOMREQUEST, spec->method);
    api->easy_set(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    api->easy_set(easy, CURLOPT_USERAGENT, "muster/" MS_VERSION);
    api->easy_set(easy, CURLOPT_HTTPHEADER, one->headers);
    api->easy_set(easy, CURLOPT_NOSIGNAL, 1L);
    api->easy_set(easy, CURLOPT_ERRORBUFFER, one->problem);
    api->easy_set(easy, CURLOPT_WRITEFUNCTION, on_data);
    api->easy_set(easy, CURLOPT_WRITEDATA, one);
    api->easy_set(easy, CURLOPT_PRIVATE, one);
    api->easy_set(easy, CURLOPT_TIMEOUT_MS, (long)(spec->timeout_ns / MS_NS_PER_MS));
    if (spec->stall_ns > 0) {
        api->easy_set(
            easy, CURLOPT_LOW_SPEED_TIME, (long)(spec->stall_ns / MS_NS_PER_S));
        api->easy_set(easy, CURLOPT_LOW_SPEED_LIMIT, (long)STALL_BYTES_A_SECOND);
    }
    return true;
}

struct ms_fetch *ms_fetch(struct ms_fetcher *f,
                          const struct ms_fetch_spec *spec,
                          ms_fetched *done,
                          void *arg)
{
    struct ms_fetch *one = calloc(1, sizeof *one);

    if (!one)
        return NULL;
    one->fetcher = f;
    one->done = done;
    one->arg = arg;
    ms_buf_init(&one->answer);
    ms_list_add_tail(&f->fetches, &one->link);
    one->easy = f->api->easy_init();
    if (one->easy && set_up(one, spec) &&
        f->api->multi_add(f->multi, one->easy) == CURLM_OK)
        return one;
    fetch_free(one);
    return NULL;
}
