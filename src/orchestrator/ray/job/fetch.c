/* fetch.c - HTTP requests by libcurl, one at a time, that another thread can end */
#include "orchestrator/ray/job/fetch.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "orchestrator/ray/job/curl_api.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

enum { STALL_BYTES_A_SECOND = 1024, LOOK_MS = 1000 };

/* Where distributions keep their CA bundle. A libcurl that came in a wheel only
 * knows the place of the machine that it was built for. */
static const char *const ca_bundles[] = {
    "/etc/ssl/certs/ca-certificates.crt", /* Debian, Ubuntu */
    "/etc/pki/tls/certs/ca-bundle.crt",   /* Fedora */
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem", /* SUSE */
    "/etc/ssl/cert.pem",      /* Alpine */
};

struct ms_fetcher {
    const struct ms_curl_api *api;
    CURLM *multi;
    CURL *easy;
    struct curl_slist *headers;
    struct ms_buf answer;
    _Atomic int64_t until_ns;
    char problem[CURL_ERROR_SIZE];
};

struct ms_fetcher *ms_fetcher_create(struct ms_error *err)
{
    const struct ms_curl_api *api = ms_curl_api(err);
    struct ms_fetcher *f = api ? calloc(1, sizeof *f) : NULL;

    if (!api)
        return NULL;
    if (f) {
        f->api = api;
        f->until_ns = MS_NEVER;
        f->multi = api->multi_init();
        f->easy = api->easy_init();
    }
    if (f && f->multi && f->easy)
        return f;
    ms_error_set(err, -ENOMEM, "out of memory");
    ms_fetcher_destroy(f);
    return NULL;
}

void ms_fetcher_destroy(struct ms_fetcher *f)
{
    if (!f)
        return;
    if (f->easy)
        f->api->easy_cleanup(f->easy);
    if (f->multi)
        f->api->multi_cleanup(f->multi);
    f->api->slist_free(f->headers);
    ms_buf_finish(&f->answer);
    free(f);
}

void ms_fetcher_end_by(struct ms_fetcher *f, int64_t until_ns)
{
    f->until_ns = until_ns;
    f->api->multi_wakeup(f->multi);
}

static size_t on_data(char *data, size_t size, size_t count, void *arg)
{
    struct ms_fetcher *f = arg;

    if (f->answer.len + size * count > MS_FETCH_ANSWER_MAX ||
        ms_buf_append(&f->answer, data, size * count) < 0)
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
    case CURLE_ABORTED_BY_CALLBACK:
        return -ECANCELED;
    default:
        return -EIO;
    }
}

static bool add_header(struct ms_fetcher *f, const char *name, const char *value)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf line = {0};
    struct curl_slist *longer;

    if (ms_buf_printf(&line, "%s%s", name, value) < 0 || !ms_buf_str(&line))
        return false;
    longer = f->api->slist_append(f->headers, ms_buf_str(&line));
    if (longer)
        f->headers = longer;
    return longer != NULL;
}

/* NULL: libcurl's own. */
static const char *find_ca_bundle(void)
{
    const char *told = getenv("SSL_CERT_FILE"); /* as OpenSSL and Python read it */

    if (told && *told)
        return told;
    for (size_t i = 0; i < MS_COUNT(ca_bundles); i++)
        if (access(ca_bundles[i], R_OK) == 0)
            return ca_bundles[i];
    return NULL;
}

static bool set_up(struct ms_fetcher *f, const struct ms_fetch_spec *spec)
{
    CURLcode (*set)(CURL * easy, CURLoption option, ...) = f->api->easy_set;
    const char *ca_bundle = find_ca_bundle();
    CURL *easy = f->easy;

    f->api->easy_reset(easy);
    f->api->slist_free(MS_TAKE(f->headers));
    if ((spec->type && !add_header(f, "Content-Type: ", spec->type)) ||
        (spec->token && !add_header(f, "Authorization: Bearer ", spec->token)) ||
        !add_header(f, "Expect:", "")) /* no waiting for 100 Continue */
        return false;
    if (spec->type || strcmp(spec->method, "POST") == 0) {
        /* a POST without a body has one of no bytes */
        set(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)spec->len);
        set(easy, CURLOPT_POSTFIELDS, spec->body ? spec->body : "");
    }
    set(easy, CURLOPT_URL, spec->url);
    set(easy, CURLOPT_CUSTOMREQUEST, spec->method);
    set(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    set(easy, CURLOPT_USERAGENT, "muster/" MS_VERSION);
    set(easy, CURLOPT_HTTPHEADER, f->headers);
    if (ca_bundle)
        set(easy, CURLOPT_CAINFO, ca_bundle);
    set(easy, CURLOPT_NOSIGNAL, 1L);
    set(easy, CURLOPT_ERRORBUFFER, f->problem);
    set(easy, CURLOPT_WRITEFUNCTION, on_data);
    set(easy, CURLOPT_WRITEDATA, f);
    set(easy, CURLOPT_TIMEOUT_MS, (long)(spec->timeout_ns / MS_NS_PER_MS));
    if (spec->stall_ns > 0) {
        set(easy, CURLOPT_LOW_SPEED_TIME, (long)(spec->stall_ns / MS_NS_PER_S));
        set(easy, CURLOPT_LOW_SPEED_LIMIT, (long)STALL_BYTES_A_SECOND);
    }
    return true;
}

/* How long to wait for something to happen; 0: its time is over. */
static int wait_ms(const struct ms_fetcher *f)
{
    int64_t left_ns = f->until_ns - ms_now_ns();

    return left_ns <= 0                        ? 0
           : left_ns >= LOOK_MS * MS_NS_PER_MS ? LOOK_MS
                                               : (int)(left_ns / MS_NS_PER_MS) + 1;
}

static CURLcode perform(struct ms_fetcher *f)
{
    const struct ms_curl_api *api = f->api;
    CURLcode code = CURLE_ABORTED_BY_CALLBACK;
    const CURLMsg *message;
    int running = 1, left;

    if (api->multi_add(f->multi, f->easy) != CURLM_OK)
        return CURLE_OUT_OF_MEMORY;
    while (running && wait_ms(f) > 0) {
        api->multi_perform(f->multi, &running);
        if (running)
            api->multi_poll(f->multi, NULL, 0, wait_ms(f), NULL);
    }
    while ((message = api->multi_read(f->multi, &left)))
        if (message->msg == CURLMSG_DONE)
            code = message->data.result;
    api->multi_remove(f->multi, f->easy);
    return code;
}

void ms_fetch(struct ms_fetcher *f,
              const struct ms_fetch_spec *spec,
              struct ms_fetch_answer *a)
{
    char *type = NULL, *local = NULL;
    long status = 0;
    CURLcode code;

    ms_buf_consume(&f->answer, f->answer.len);
    f->problem[0] = 0;
    code = set_up(f, spec) ? perform(f) : CURLE_OUT_OF_MEMORY;
    f->api->easy_get(f->easy, CURLINFO_RESPONSE_CODE, &status);
    f->api->easy_get(f->easy, CURLINFO_CONTENT_TYPE, &type);
    f->api->easy_get(f->easy, CURLINFO_LOCAL_IP, &local);
    *a = (struct ms_fetch_answer){.status = (int)status,
                                  .type = type ? type : "",
                                  .local = local ? local : "",
                                  .body = ms_buf_str(&f->answer),
                                  .len = f->answer.len};
    if (code != CURLE_OK)
        a->rc = ms_error_set(&a->why,
                             code_of(code),
                             "%s",
                             f->problem[0] ? f->problem : f->api->easy_strerror(code));
    else if (!a->body)
        a->rc = ms_error_set(&a->why, -ENOMEM, "out of memory");
}
