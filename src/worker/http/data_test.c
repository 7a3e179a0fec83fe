/* A worker's HTTP: tensors that come and go, and how many may ask. */
#include "base/limits.h"
#include "worker/http/http_impl.h"
#include "worker/http/test_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

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

/* Wherever a body ends too early, also within an escape. */
static void test_half_a_tensor(void **state)
{
    char body[sizeof tensor + 1];
    struct rig rig;

    (void)state;
    rig_start(&rig, true);
    rig_connect(&rig);
    for (size_t len = 0; len < strlen(tensor); len++) {
        snprintf(body, sizeof body, "%.*s%s", (int)len, tensor, len % 2 ? "\\" : "");
        rig_send(&rig, "PUT /data/1", "", body);
        rig_expect(&rig, "500", "error");
    }
    rig_stop(&rig);
}

/* ---- limits ------------------------------------------------------------------------ */

static void get_count(struct rig *rig, void *arg)
{
    *(unsigned *)arg = rig->http->server.count;
}

/* Those that ask leave descriptors to the engine, whether they say something or not. */
static void test_descriptors(void **state)
{
    enum { FILES = 64, CLIENTS = 60 };
    struct rlimit before, few;
    int clients[CLIENTS];
    unsigned count = 0;
    struct rig rig;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = (struct rlimit){FILES, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    rig_start(&rig, true);
    assert_int_equal(ms_worker_http_conns_max(4), FILES / 4);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = rig_connect_one(&rig);
        assert_int_equal(send(clients[i], "G", 1, MSG_NOSIGNAL), 1);
    }
    on_loop(&rig, get_count, &count);
    assert_int_equal(count, FILES / 2);
    rig_connect(&rig);
    rig_send(&rig, "GET /health", "", "");
    rig_expect(&rig, "200", "healthy");
    for (int i = 0; i < CLIENTS; i++)
        close(clients[i]);
    rig_stop(&rig);
    assert_int_equal(ms_worker_http_conns_max(1),
                     before.rlim_cur < MS_HTTP_CONNS_MAX ? before.rlim_cur
                                                         : MS_HTTP_CONNS_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_data),
        cmocka_unit_test(test_half_a_tensor),
        cmocka_unit_test(test_descriptors),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
