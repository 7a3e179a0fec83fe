/* The end of a server, with whatever is open then. */
#include "wire/test_raw.h"

#include <sys/wait.h>
#include <unistd.h>

struct kept {
    struct ms_request *request[4];
    _Atomic unsigned count;
};

static void keep(struct rig *rig, struct ms_request *r)
{
    struct kept *k = rig->data;

    k->request[atomic_load(&k->count)] = r;
    rig_count(rig, &k->count);
}

/* Requests that are open when the server goes may still be answered. */
static void test_destroyed_with_open_requests(void **state)
{
    struct kept kept = {0};
    struct rig rig = {.engine = keep, .data = &kept, .no_client = true};
    struct iovec iov = {&kept, 1};
    struct raw raw;
    uint8_t *memory;

    (void)state;
    rig_start(&rig);
    raw_open(&raw, &rig, 1, MS_LANE_CALL);
    for (uint64_t id = 1; id <= 4; id++)
        raw_call(&raw, id, 0, "x");
    rig_wait_count(&rig, &kept.count, 4);
    rig_stop_server(&rig);
    assert_true(ms_request_is_cancelled(kept.request[0]));
    assert_int_equal(ms_request_item(kept.request[0], 0, &iov, 1), -ECANCELED);
    assert_int_equal(ms_request_item_wait(kept.request[0], MS_NEVER), -ECANCELED);
    rig_reply(kept.request[0], "nobody hears this");
    ms_request_fail_text(
        kept.request[1], MUSTER__FAILURE__KIND__RAISED, "nor %s", "that");
    ms_request_take_body(kept.request[2], &memory);
    rig_reply(kept.request[2], "");
    free(memory);
    rig_reply(kept.request[3], "");
    raw_close(&raw);
    rig_stop(&rig);
}

static void destroy_server(void *arg)
{
    struct rig *rig = arg;

    ms_server_destroy(rig->server);
}

/* While its loop runs, and with everything under way. */
static void test_destroyed_on_its_loop(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        struct rig rig = {.no_client = true, .no_engine = true};
        struct raw raw;

        rig_start(&rig);
        raw_open(&raw, &rig, 1, i % 2 ? MS_LANE_CALL : MS_LANE_CONTROL);
        for (uint64_t id = 1; id <= 10; id++)
            raw_call(&raw, id, 0, "x");
        rig_on_loop(&rig, rig.server_loop, destroy_server, &rig);
        raw_close(&raw);
        rig.server = NULL;
        ms_loop_stop(rig.server_loop);
        pthread_join(rig.server_thread, NULL);
        ms_loop_destroy(rig.server_loop);
        rig_stop(&rig);
    }
}

/* A forked child lets go of everything: nobody takes it for the server. */
static void test_a_forked_child_forgets(void **state)
{
    struct rig rig = {.no_client = true};
    struct raw raw;
    int status;
    pid_t pid;

    (void)state;
    rig_start(&rig);
    raw_open(&raw, &rig, 1, MS_LANE_CALL);
    raw_call(&raw, 1, 0, "x");
    raw_expect(&raw, 1, "x");
    pid = fork();
    if (pid == 0) {
        unsigned before = rig_open_fds();

        ms_server_forget(rig.server);
        _exit(rig_open_fds() + 7 == before ? 0
                                           : 1); /* 6 of its own, and the client's */
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    raw_call(&raw, 2, 0, "y"); /* the parent has not noticed */
    raw_expect(&raw, 2, "y");
    raw_close(&raw);
    rig_stop(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_destroyed_with_open_requests),
        cmocka_unit_test(test_destroyed_on_its_loop),
        cmocka_unit_test(test_a_forked_child_forgets),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
