/* A worker's HTTP: who may, calls, ports, forks. */
#include "base/clock.h"
#include "worker/http/test_rig.h"

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

/* Its exit code is told to all, what it printed to those who may kill it. */
static void test_a_child_that_ends(void **state)
{
    static const char name[] = "{\"role\": \"kid\", \"worker_index\": 3}";
    static const char ask[] =
        "{\"role\": \"kid\", \"worker_index\": 3, \"raw_cmd\": [\"x\"]}";
    static const char end[] = "\"engines\":[],\"ended_children\":[{\"role\":\"kid\","
                              "\"worker_index\":3,\"exit_code\":-9}]}";
    char *lines[] = {(char[]){"no such \"module\""}};
    Muster__Exit exit = MUSTER__EXIT__INIT;
    Muster__WorkerExited exited = MUSTER__WORKER_EXITED__INIT;
    Muster__Forked forked = MUSTER__FORKED__INIT;
    Muster__WorkerToAgent *m;
    struct rig rig;

    (void)state;
    rig_start(&rig, false);
    rig_connect(&rig);
    exit.signaled = true;
    exit.code = 9;
    exit.n_last_lines = 1;
    exit.last_lines = lines;
    exited.exit = &exit;
    for (int i = 0; i < 2; i++) { /* after the first one another is forked */
        rig_post(&rig, "/fork", ask);
        m = agent_next(&rig);
        exited.uid = forked.uid = m->fork->spec->uid;
        muster__worker_to_agent__free_unpacked(m, NULL);
        on_loop(&rig, agent_forked, &forked);
        rig_expect(&rig, "200", "\"pid\":0");
        rig_send(&rig, "GET /health", "", "");
        rig_expect(&rig, "200", "\"engines\":[]}");
        on_loop(&rig, agent_ended, &exited);
        rig_send(&rig, "GET /health", "", "");
        rig_expect(&rig, "200", end);
    }
    rig_post(&rig, "/kill_forked_worker", name);
    rig_expect(
        &rig, "200", "\"exit_code\":-9,\"last_lines\":[\"no such \\\"module\\\"\"]");
    rig_send(&rig, "GET /health", "", "");
    rig_expect(&rig, "200", "\"engines\":[]}");
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
        cmocka_unit_test(test_alloc_ports),
        cmocka_unit_test(test_calls_go_to_the_engine),
        cmocka_unit_test(test_a_caller_that_goes),
        cmocka_unit_test(test_the_end),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_a_child_that_ends),
        cmocka_unit_test(test_forks_that_fail),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
