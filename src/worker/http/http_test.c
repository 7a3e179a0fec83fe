/* A worker's HTTP without a worker: the test is the client, the engine and the agent. */
#include "base/clock.h"
#include "io/http/token.h"
#include "io/sock.h"
#include "worker/http/http.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define DEADLINE_MS 20000
#define JSON        "Content-Type: application/json\r\n"

struct rig {
    struct ms_loop *loop;
    struct ms_server *server;
    struct ms_worker_http *http;
    Muster__WorkerBoot boot;
    _Atomic bool has_engines;
    struct ms_http_token token;
    pthread_t thread;
    int fd;          /* the client's end */
    int to_agent[2]; /* packed messages, for the test */
    struct ms_buf got;
    uint8_t secret[32];
};

static const struct ms_server_ops server_ops = {0};

static int alloc_ports(void *arg, uint32_t count, uint32_t *ports, struct ms_error *err)
{
    (void)arg;
    if (count > 10)
        return ms_error_set(err, -EMFILE, "no more ports");
    for (uint32_t i = 0; i < count; i++)
        ports[i] = 5000 + i;
    return 0;
}

static json_t *engines(void *arg)
{
    struct rig *rig = arg;

    return atomic_load(&rig->has_engines) ? json_pack("[s, s]", "actor/0", "ref\"0")
                                          : json_array();
}

static int
tell_agent(void *arg, Muster__WorkerToAgent__BodyCase body_case, const void *body)
{
    struct rig *rig = arg;
    Muster__WorkerToAgent m = MUSTER__WORKER_TO_AGENT__INIT;
    uint8_t packed[4096];
    size_t len;

    m.body_case = body_case;
    m.ask = (Muster__AskDeath *)(uintptr_t)body;
    len = muster__worker_to_agent__pack(&m, packed);
    return send(rig->to_agent[0], packed, len, 0) == (ssize_t)len ? 0 : -EPIPE;
}

static void *run_loop(void *arg)
{
    ms_loop_run(arg);
    return NULL;
}

static void rig_start(struct rig *rig, bool is_open)
{
    *rig = (struct rig){.fd = -1, .loop = ms_loop_create()};
    muster__worker_boot__init(&rig->boot);
    memset(rig->secret, 7, sizeof rig->secret);
    rig->boot.uid = 77;
    rig->boot.secret = (ProtobufCBinaryData){sizeof rig->secret, rig->secret};
    rig->boot.http_open = is_open;
    ms_http_token_make(&rig->token, rig->secret, sizeof rig->secret);
    assert_int_equal(
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, rig->to_agent), 0);
    rig->server = ms_server_create(&(struct ms_server_options){.loop = rig->loop,
                                                               .secret = rig->secret,
                                                               .has_engine = true,
                                                               .ops = &server_ops,
                                                               .arg = rig});
    rig->http = ms_worker_http_create(
        &(struct ms_worker_http_options){.loop = rig->loop,
                                         .server = rig->server,
                                         .boot = &rig->boot,
                                         .engines = engines,
                                         .alloc_ports = alloc_ports,
                                         .tell_agent = tell_agent,
                                         .arg = rig});
    assert_non_null(rig->http);
    pthread_create(&rig->thread, NULL, run_loop, rig->loop);
}

static void rig_stop(struct rig *rig)
{
    ms_loop_stop(rig->loop);
    pthread_join(rig->thread, NULL);
    ms_server_destroy(rig->server);
    ms_worker_http_destroy(rig->http);
    ms_loop_destroy(rig->loop);
    ms_buf_finish(&rig->got);
    close(rig->to_agent[0]);
    close(rig->to_agent[1]);
    if (rig->fd >= 0)
        close(rig->fd);
}

struct task {
    struct rig *rig;
    void (*fn)(struct rig *rig, void *arg);
    void *arg;
    int done[2];
};

static void task_run(void *arg)
{
    struct task *t = arg;

    t->fn(t->rig, t->arg);
    assert_int_equal(write(t->done[1], "x", 1), 1);
}

/* On the loop's thread, and wait. */
static void on_loop(struct rig *rig, void (*fn)(struct rig *, void *), void *arg)
{
    struct task t = {.rig = rig, .fn = fn, .arg = arg};
    char byte;

    assert_int_equal(pipe(t.done), 0);
    ms_loop_post(rig->loop, task_run, &t);
    assert_int_equal(read(t.done[0], &byte, 1), 1);
    close(t.done[0]);
    close(t.done[1]);
}

static void serve(struct rig *rig, void *arg)
{
    ms_worker_http_serve(rig->http, *(int *)arg);
}

static void rig_connect(struct rig *rig)
{
    int fds[2];

    if (rig->fd >= 0)
        close(rig->fd);
    assert_int_equal(ms_unix_pair(SOCK_STREAM, fds), 0);
    rig->fd = fds[1];
    on_loop(rig, serve, &fds[0]);
}

static void
rig_send(struct rig *rig, const char *what, const char *headers, const char *body)
{
    struct ms_buf b;

    ms_buf_init(&b);
    ms_buf_printf(&b,
                  "%s HTTP/1.1\r\nHost: a\r\n%sContent-Length: %zu\r\n\r\n%s",
                  what,
                  headers,
                  strlen(body),
                  body);
    assert_int_equal(send(rig->fd, b.data, b.len, MSG_NOSIGNAL), b.len);
    ms_buf_finish(&b);
}

/* With the token. */
static void rig_post(struct rig *rig, const char *path, const char *body)
{
    char what[64], headers[256];

    snprintf(what, sizeof what, "POST %s", path);
    snprintf(
        headers, sizeof headers, JSON "Authorization: Bearer %s\r\n", rig->token.text);
    rig_send(rig, what, headers, body);
}

/* Wait until a whole answer has come and compare parts of it. */
static void rig_expect(struct rig *rig, const char *status, const char *part)
{
    const char *got = NULL, *end = NULL;
    char data[4096];

    rig->got.len = 0;
    while (!end || !strstr(end, "}")) {
        struct pollfd p = {.fd = rig->fd, .events = POLLIN};
        ssize_t n;

        assert_int_equal(poll(&p, 1, DEADLINE_MS), 1);
        n = recv(rig->fd, data, sizeof data, MSG_DONTWAIT);
        assert_true(n > 0);
        ms_buf_append(&rig->got, data, (size_t)n);
        got = ms_buf_str(&rig->got);
        end = strstr(got, "\r\n\r\n");
    }
    if (strncmp(got, "HTTP/1.1 ", 9) != 0 || strncmp(got + 9, status, 3) != 0 ||
        !strstr(end, part))
        fail_msg("instead of %s %s: %s", status, part, got);
}

/* The next request of the engine. */
static struct ms_request *engine_next(struct rig *rig)
{
    struct ms_request *r = NULL;

    assert_int_equal(
        ms_server_engine_next(rig->server, ms_now_ns() + 20 * MS_NS_PER_S, &r), 0);
    return r;
}

static void engine_reply(struct ms_request *r, const char *text)
{
    struct iovec iov = {(void *)(uintptr_t)text, strlen(text)};

    ms_request_reply(r, MS_CODEC_BYTES, &iov, 1);
}

static Muster__WorkerToAgent *agent_next(struct rig *rig)
{
    uint8_t packed[4096];
    struct pollfd p = {.fd = rig->to_agent[1], .events = POLLIN};
    ssize_t n;

    assert_int_equal(poll(&p, 1, DEADLINE_MS), 1);
    n = recv(rig->to_agent[1], packed, sizeof packed, 0);
    return muster__worker_to_agent__unpack(NULL, (size_t)n, packed);
}

static void agent_forked(struct rig *rig, void *arg)
{
    ms_worker_http_forked(rig->http, arg);
}

static void agent_ended(struct rig *rig, void *arg)
{
    ms_worker_http_child_ended(rig->http, arg);
}

/* ---------------------------------------------------------------------------------- */

static void test_health_is_open(void **state)
{
    struct rig rig;

    (void)state;
    rig_start(&rig, false);
    rig_connect(&rig);
    rig_send(&rig, "GET /health", "", "");
    rig_expect(&rig,
               "200",
               "{\"status\":\"healthy\",\"forked_children\":0,\"engine_count\":0,"
               "\"engines\":[]}");
    atomic_store(&rig.has_engines, true);
    rig_send(&rig, "GET /health?x=1", "", "");
    rig_expect(&rig, "200", "\"engines\":[\"actor/0\",\"ref\\\"0\"]");
    rig_send(&rig, "POST /health", "", "");
    rig_expect(&rig, "405", "error");
    rig_stop(&rig);
}

static void test_the_rest_is_not(void **state)
{
    static const char *const paths[] = {"POST /call",
                                        "POST /configure",
                                        "POST /set_env",
                                        "POST /create_engine",
                                        "POST /alloc_ports",
                                        "POST /fork",
                                        "GET /nothing",
                                        "POST /kill_forked_worker",
                                        "PUT /data/x",
                                        "GET /health/",
                                        "GET //health",
                                        "GET /%68ealth",
                                        "GET /health/../call"};
    char headers[256];
    struct rig rig;

    (void)state;
    rig_start(&rig, false);
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        rig_connect(&rig);
        rig_send(&rig, paths[i], JSON, "{}");
        rig_expect(&rig, "401", "token");
        assert_non_null(
            strstr((const char *)rig.got.data, "WWW-Authenticate: Bearer\r\n"));
        rig_connect(&rig);
        snprintf(headers, sizeof headers, JSON "Authorization: Bearer %064d\r\n", 0);
        rig_send(&rig, paths[i], headers, "{}");
        rig_expect(&rig, "401", "token");
    }
    rig_stop(&rig);
}

static void test_pages_of_browsers(void **state)
{
    struct rig rig;

    (void)state;
    rig_start(&rig, true);
    rig_connect(&rig);
    rig_send(&rig, "POST /call", "Content-Type: text/plain\r\n", "{}");
    rig_expect(&rig, "400", "application/json");
    rig_connect(&rig);
    rig_send(&rig, "POST /call", JSON "Origin: http://evil.example\r\n", "{}");
    rig_expect(&rig, "403", "web pages");
    rig_stop(&rig);
}

static void test_open_needs_no_token(void **state)
{
    struct rig rig;

    (void)state;
    rig_start(&rig, true);
    rig_connect(&rig);
    rig_send(&rig, "POST /alloc_ports", JSON, "{\"count\": 2}");
    rig_expect(&rig,
               "200",
               "{\"status\":\"success\",\"host\":\"127.0.0.1\",\"ports\":[5000,5001]}");
    rig_send(&rig, "GET /nothing", "", "");
    rig_expect(&rig, "404", "error");
    rig_stop(&rig);
}

static const char tensor[] = "{\"type\":\"tensor\",\"data\":\"AACAPw==\",\"shape\":[1],"
                             "\"dtype\":\"torch.bfloat16\"}";

static void test_data(void **state)
{
    struct rig rig;

    (void)state;
    rig_start(&rig, true);
    rig_connect(&rig);
    rig_send(&rig, "PUT /data/1", "", tensor);
    rig_expect(&rig, "200", "{\"status\":\"ok\",\"shard_id\":\"1\"}");
    rig_send(&rig, "GET /data/1", "", "");
    rig_expect(&rig, "200", tensor);
    rig_send(&rig, "DELETE /data/clear", JSON, "{\"shard_ids\": [\"1\", \"2\"]}");
    rig_expect(&rig, "200", "\"cleared_count\":1,\"num_tensors\":0");
    rig_stop(&rig);
}

static void test_alloc_ports(void **state)
{
    static const char *const bad[] = {"",
                                      "[]",
                                      "{",
                                      "{\"count\": 0}",
                                      "{\"count\": 1.5}",
                                      "{\"count\": \"1\"}",
                                      "{\"count\": -1}",
                                      "{\"count\": 99999999999}",
                                      "{}",
                                      "{\"count\": 1, \"count\": 2}"};
    struct rig rig;

    (void)state;
    rig_start(&rig, false);
    rig_connect(&rig);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        rig_post(&rig, "/alloc_ports", bad[i]);
        rig_expect(&rig, "400", "{\"status\": \"error\", \"error\": ");
    }
    rig_post(&rig, "/alloc_ports", "{\"count\": 11}");
    rig_expect(&rig, "500", "no more ports");
    rig_stop(&rig);
}

static void test_calls_go_to_the_engine(void **state)
{
    static const struct {
        const char *path;
        uint16_t op;
    } cases[] = {{"/call", MS_OP_HTTP_CALL},
                 {"/configure", MS_OP_HTTP_CONFIGURE},
                 {"/create_engine", MS_OP_HTTP_CREATE_ENGINE},
                 {"/set_env", MS_OP_HTTP_SET_ENV}};
    struct ms_request *r;
    struct rig rig;

    (void)state;
    rig_start(&rig, false);
    rig_connect(&rig);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rig_post(&rig, cases[i].path, "{\"a\": 1}");
        r = engine_next(&rig);
        assert_int_equal(r->op, cases[i].op);
        assert_int_equal(r->codec, MS_CODEC_BYTES);
        assert_int_equal(r->len, 8);
        assert_memory_equal(r->body, "{\"a\": 1}", 8);
        engine_reply(r, "404{\"error\": \"x\"}");
        rig_expect(&rig, "404", "{\"error\": \"x\"}");
    }
    rig_post(&rig, "/call", "");
    r = engine_next(&rig);
    assert_int_equal(r->len, 0);
    engine_reply(r, "no answer {}");
    rig_expect(&rig, "500", "answer");
    rig_post(&rig, "/call", "{}");
    ms_request_fail_text(
        engine_next(&rig), MUSTER__FAILURE__KIND__NO_ENGINE, "no engine \"x\"");
    rig_expect(&rig, "404", "no engine \\\"x\\\"");
    rig_stop(&rig);
}

/* A caller that goes away takes its queued call along. */
static void test_a_caller_that_goes(void **state)
{
    struct rig rig, other;
    struct ms_request *r;

    (void)state;
    rig_start(&rig, false);
    rig_connect(&rig);
    rig_post(&rig, "/call", "first");
    r = engine_next(&rig);
    other = rig; /* another client of the same server */
    other.fd = -1;
    rig_connect(&other);
    rig_post(&other, "/call", "second");
    rig_send(&rig, "GET /health", "", ""); /* waits behind the first */
    {
        char name[64];
        int64_t since;
        uint64_t queued = 0, done;

        while (!queued)
            ms_server_engine_running(
                rig.server, name, sizeof name, &since, &queued, &done);
        close(other.fd);
        while (queued)
            ms_server_engine_running(
                rig.server, name, sizeof name, &since, &queued, &done);
    }
    engine_reply(r, "200{}");
    rig_expect(&rig, "200", "{}");
    ms_buf_finish(&other.got);
    rig_stop(&rig);
}

static void test_the_end(void **state)
{
    struct rig rig;
    struct ms_request *r;

    (void)state;
    rig_start(&rig, false);
    rig_connect(&rig);
    rig_post(&rig, "/call", "runs");
    r = engine_next(&rig);
    close(rig.fd);
    rig.fd = -1;
    rig_connect(&rig);
    rig_post(&rig, "/call", "waits");
    ms_worker_http_end(rig.http);
    rig_expect(&rig, "503", "shutting down");
    rig_post(&rig, "/call", "comes late");
    rig_expect(&rig, "503", "shutting down");
    rig_send(&rig, "GET /health", "", "");
    rig_expect(&rig, "503", "shutting down");
    engine_reply(r, "200{}");
    rig_stop(&rig);
}

static void test_fork(void **state)
{
    static const char ask[] = "{\"role\": \"proxy\", \"worker_index\": 3, \"raw_cmd\": "
                              "[\"python\", \"-m\", \"x\"], \"env\": {\"A\": \"1\", "
                              "\"B\": 2}}";
    static const char name[] = "{\"role\": \"proxy\", \"worker_index\": \"3\"}";
    Muster__WorkerToAgent *m;
    Muster__Forked forked;
    Muster__WorkerExited exited;
    struct rig rig;

    (void)state;
    rig_start(&rig, false);
    rig_connect(&rig);
    rig_post(&rig, "/set_env", "{\"env\": {\"A\": \"0\", \"C\": \"3\"}}");
    engine_reply(engine_next(&rig), "200{}");
    rig_expect(&rig, "200", "{}");
    rig_post(&rig, "/fork", ask);
    m = agent_next(&rig);
    assert_int_equal(m->body_case, MUSTER__WORKER_TO_AGENT__BODY_FORK);
    assert_int_equal(m->fork->beside, 77);
    assert_string_equal(m->fork->spec->cluster, "proxy");
    assert_int_equal(m->fork->spec->rank, 3);
    assert_int_equal(m->fork->spec->start, MUSTER__START_KIND__START_COMMAND);
    assert_int_equal(m->fork->spec->n_command, 3);
    assert_string_equal(m->fork->spec->command[2], "x");
    assert_int_equal(m->fork->spec->n_env, 3);
    assert_string_equal(m->fork->spec->env[0], "A=1"); /* over what was set before */
    assert_string_equal(m->fork->spec->env[1], "C=3");
    assert_string_equal(m->fork->spec->env[2], "B=2");
    muster__forked__init(&forked);
    forked.uid = m->fork->spec->uid;
    forked.pid = 4321;
    on_loop(&rig, agent_forked, &forked);
    rig_expect(&rig, "200", "\"pid\":4321");
    muster__worker_to_agent__free_unpacked(m, NULL);

    rig_send(&rig, "GET /health", "", "");
    rig_expect(&rig, "200", "\"forked_children\":1");
    rig_post(&rig, "/fork", ask); /* the name is this one's from now on */
    m = agent_next(&rig);
    assert_int_not_equal(m->fork->spec->uid, forked.uid);
    forked.uid = m->fork->spec->uid;
    on_loop(&rig, agent_forked, &forked);
    rig_expect(&rig, "200", "\"pid\":4321");
    muster__worker_to_agent__free_unpacked(m, NULL);
    rig_post(&rig, "/kill_forked_worker", name);
    m = agent_next(&rig);
    assert_int_equal(m->body_case, MUSTER__WORKER_TO_AGENT__BODY_KILL);
    assert_int_equal(m->kill->uids[0], forked.uid);
    muster__worker_to_agent__free_unpacked(m, NULL);
    muster__worker_exited__init(&exited);
    exited.uid = forked.uid;
    on_loop(&rig, agent_ended, &exited);
    rig_expect(&rig, "200", "\"status\":\"success\"");
    rig_post(&rig, "/kill_forked_worker", name);
    rig_expect(&rig, "404", "no child");
    rig_send(&rig, "GET /health", "", "");
    rig_expect(&rig, "200", "\"forked_children\":1");
    rig_stop(&rig);
}

static void test_forks_that_fail(void **state)
{
    static const char *const bad[] = {
        "{}",
        "{\"role\": \"../../etc\", \"worker_index\": 0, \"raw_cmd\": [\"x\"]}",
        "{\"role\": \"a\", \"raw_cmd\": [\"x\"]}",
        "{\"role\": \"a\", \"worker_index\": -1, \"raw_cmd\": [\"x\"]}",
        "{\"role\": \"a\", \"worker_index\": 0}",
        "{\"role\": \"a\", \"worker_index\": 0, \"raw_cmd\": []}",
        "{\"role\": \"a\", \"worker_index\": 0, \"raw_cmd\": \"ls\"}",
        "{\"role\": \"a\", \"worker_index\": 0, \"raw_cmd\": [1]}",
        "{\"role\": \"a\", \"worker_index\": 0, \"raw_cmd\": [\"x\"], \"env\": [1]}",
        ("{\"role\": \"a\", \"worker_index\": 0, \"raw_cmd\": [\"x\"], "
         "\"env\": {\"A=B\": 1}}")};
    char problem[] = "no such file";
    Muster__WorkerToAgent *m;
    Muster__Forked forked;
    struct rig rig;

    (void)state;
    rig_start(&rig, false);
    rig_connect(&rig);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        rig_post(&rig, "/fork", bad[i]);
        rig_expect(&rig, "400", "error");
    }
    rig_post(
        &rig, "/fork", "{\"role\": \"a\", \"worker_index\": 0, \"raw_cmd\": [\"x\"]}");
    m = agent_next(&rig);
    muster__forked__init(&forked);
    forked.uid = m->fork->spec->uid;
    forked.problem = problem;
    on_loop(&rig, agent_forked, &forked);
    rig_expect(&rig, "500", "no such file");
    muster__worker_to_agent__free_unpacked(m, NULL);
    rig_send(&rig, "GET /health", "", "");
    rig_expect(&rig, "200", "\"forked_children\":0");
    rig_stop(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_health_is_open),
        cmocka_unit_test(test_the_rest_is_not),
        cmocka_unit_test(test_pages_of_browsers),
        cmocka_unit_test(test_open_needs_no_token),
        cmocka_unit_test(test_data),
        cmocka_unit_test(test_alloc_ports),
        cmocka_unit_test(test_calls_go_to_the_engine),
        cmocka_unit_test(test_a_caller_that_goes),
        cmocka_unit_test(test_the_end),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_forks_that_fail),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
