/* test_site.c - for tests of links: a server on a loop, and ends that talk in
 * numbers */
#include "wire/link/test_site.h"
#include "base/cleanup.h"
#include "base/name.h"
#include "io/tcp.h"
#include "proto/muster.pb-c.h"

#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- ends -------------------------------------------------------------------------- */

int site_send_number(struct ms_link *l, uint64_t number, size_t padding)
{
    Muster__LogLine m = MUSTER__LOG_LINE__INIT;
    MS_CLEANUP(ms_cleanup_free) uint8_t *text = calloc(1, padding + 1);

    m.uid = number;
    m.text.data = text;
    m.text.len = padding;
    return ms_link_send(l, &m.base);
}

static void on_body(void *arg, const uint8_t *body, size_t len)
{
    struct site_end *e = arg;
    Muster__LogLine *m = muster__log_line__unpack(NULL, len, body);

    assert_non_null(m);
    e->sum += m->uid;
    e->count++;
    if (e->echo)
        assert_int_equal(site_send_number(e->link, m->uid, m->text.len), 0);
    muster__log_line__free_unpacked(m, NULL);
}

static void on_closed(void *arg, const struct ms_error *why)
{
    struct site_end *e = arg;

    e->closed++;
    e->why = *why;
}

static void on_open(void *arg)
{
    struct site_end *e = arg;

    e->opened++;
}

static void on_suspect(void *arg, bool is_suspect)
{
    struct site_end *e = arg;

    if (is_suspect)
        e->suspected++;
    else
        e->cleared++;
}

const struct ms_link_ops site_link_ops = {.on_body = on_body,
                                          .on_closed = on_closed,
                                          .on_open = on_open,
                                          .on_suspect = on_suspect};

void site_end_finish(struct site_end *e)
{
    ms_link_destroy(e->link);
    e->link = NULL;
}

/* ---- the server -------------------------------------------------------------------- */

static void on_request(void *arg, struct ms_request *r)
{
    (void)arg;
    ms_request_fail_text(r, MUSTER__FAILURE__KIND__REFUSED, "no");
}

static void on_link(void *arg, struct ms_link *l)
{
    struct site *s = arg;

    s->links++;
    ms_link_destroy(s->there.link);
    s->there = (struct site_end){.link = l, .echo = true};
    ms_link_accept(l, &site_link_ops, &s->there);
}

static void on_refused(void *arg, const char *peer, const struct ms_error *why)
{
    struct site *s = arg;

    assert_non_null(strchr(peer, ':'));
    s->refused++;
    s->refusal = *why;
}

static void on_http(void *arg, int fd, const struct sockaddr_storage *peer)
{
    struct site *s = arg;
    char text[16] = {0};

    assert_true(ms_sockaddr_is_loopback(peer));
    assert_int_equal(recv(fd, text, 4, MSG_DONTWAIT), 4);
    assert_string_equal(text, "GET ");
    s->http++;
    close(fd);
}

static const struct ms_server_ops server_ops = {
    .on_request = on_request,
    .on_link = on_link,
    .on_http = on_http,
    .on_refused = on_refused,
};

void site_listen(struct site *s, const char *host)
{
    int fd = ms_tcp_listen(host, &s->port, NULL);

    assert_true(fd >= 0);
    assert_int_equal(ms_server_listen(s->server, fd), 0);
    snprintf(s->address,
             sizeof s->address,
             strchr(host, ':') ? "[%s]:%u" : "%s:%u",
             host,
             s->port);
}

static void
start(struct site *s, const char *host, enum ms_tls_mode tls, int64_t handshake_ns)
{
    *s = (struct site){.loop = ms_loop_create()};
    assert_int_equal(ms_random_bytes(s->secret, sizeof s->secret), 0);
    s->server = ms_server_create(&(struct ms_server_options){
        .loop = s->loop,
        .secret = s->secret,
        .identity = 5,
        .tls = tls,
        .ops = &server_ops,
        .arg = s,
        .handshake_ns = handshake_ns,
    });
    assert_non_null(s->server);
    if (host)
        site_listen(s, host);
}

void site_start(struct site *s, const char *host, enum ms_tls_mode tls)
{
    start(s, host, tls, 0);
}

void site_start_hasty(struct site *s, const char *host, enum ms_tls_mode tls)
{
    start(s, host, tls, SITE_HASTY_NS);
}

void site_stop(struct site *s)
{
    site_end_finish(&s->there);
    ms_server_destroy(s->server);
    ms_loop_destroy(s->loop);
}

void site_dial_with(struct site *s,
                    struct site_end *e,
                    const char *addresses,
                    enum ms_tls_mode tls,
                    const uint8_t *secret,
                    int64_t within_ns)
{
    struct ms_link_dial d = {.addresses = addresses,
                             .secret = secret,
                             .tls = tls,
                             .deadline_ns = ms_now_ns() + within_ns};
    struct ms_error err = {0};

    e->link = ms_link_dial(s->loop, &d, &site_link_ops, e, &err);
    if (!e->link)
        print_error("%s\n", err.text);
    assert_non_null(e->link);
    assert_int_equal(site_send_number(e->link, 1, 0), -ENOTCONN);
}

void site_dial(struct site *s, struct site_end *e, enum ms_tls_mode tls)
{
    site_dial_with(s, e, s->address, tls, s->secret, SITE_DEADLINE_NS);
}

void site_run_until(struct site *s, const unsigned *count, unsigned least)
{
    int64_t until_ns = ms_now_ns() + SITE_DEADLINE_NS;

    while (*count < least) {
        assert_true(ms_now_ns() < until_ns);
        ms_loop_run_once(s->loop, true);
    }
}

void site_talk(struct site *s, struct site_end *e)
{
    static const size_t sizes[] = {0, 10, 3000, 70000, 1 << 20, 5};
    uint64_t want = 0;
    unsigned n = e->count;

    for (size_t i = 0; i < MS_COUNT(sizes); i++) {
        assert_int_equal(site_send_number(e->link, i + 1, sizes[i]), 0);
        want += i + 1;
    }
    e->sum = 0;
    site_run_until(s, &e->count, n + MS_COUNT(sizes));
    assert_int_equal(e->sum, want);
}
