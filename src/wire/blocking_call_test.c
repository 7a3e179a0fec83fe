/* blocking_call_test.c - tests of blocking_call.h: one call, blocking */
#include "io/sock.h"
#include "wire/client/blocking_call.h"
#include "wire/test_rig.h"

#include <unistd.h>

static struct ms_error err;
static int remote_code; /* of a failure that the other side answers with */

static int call(struct rig *rig, const uint8_t *secret, int64_t timeout_ns, char *text)
{
    uint8_t *reply = NULL;
    size_t len = 0;
    int rc;

    memset(&err, 0, sizeof err);
    rc = ms_blocking_call(
        rig->path, secret, MS_OP_HEALTH, "body", 4, timeout_ns, &reply, &len, &err);
    if (rc == 0) {
        assert_true(len < 64);
        memcpy(text, reply, len);
        text[len] = 0;
    } else {
        assert_null(reply);
        assert_int_equal(err.code, rc == -EREMOTEIO ? remote_code : rc);
        assert_true(strlen(err.text) > 0);
    }
    free(reply);
    return rc;
}

static void fail_it(void *arg, struct ms_request *r)
{
    (void)arg;
    ms_request_fail_text(r, MUSTER__FAILURE__KIND__REFUSED, "not %s", "today");
}

static void fail_with_code(void *arg, struct ms_request *r)
{
    char text[] = "come again";
    Muster__Failure f = MUSTER__FAILURE__INIT;

    (void)arg;
    f.kind = MUSTER__FAILURE__KIND__REFUSED;
    f.code = -EAGAIN;
    f.message = text;
    ms_request_fail(r, &f);
}

static void forget_it(void *arg, struct ms_request *r)
{
    struct rig *rig = arg;

    rig->data = r;
    rig_count(rig, &rig->held);
}

static void test_an_answer(void **state)
{
    struct rig rig = {.no_engine = true, .no_client = true};
    char text[64];

    (void)state;
    rig_start(&rig);
    assert_int_equal(call(&rig, rig.secret, RIG_DEADLINE_NS, text), 0);
    assert_string_equal(text, "loop");
    assert_int_equal(call(&rig, rig.secret, MS_NEVER, text), 0);
    rig_stop(&rig);
}

static void test_a_failure(void **state)
{
    struct rig rig = {.no_engine = true, .no_client = true, .on_request = fail_it};
    char text[64];

    (void)state;
    rig_start(&rig);
    remote_code = -EREMOTEIO;
    assert_int_equal(call(&rig, rig.secret, RIG_DEADLINE_NS, text), -EREMOTEIO);
    assert_string_equal(err.text, "not today");
    rig_stop(&rig);
}

static void test_the_code_of_a_failure(void **state)
{
    struct rig rig = {
        .no_engine = true, .no_client = true, .on_request = fail_with_code};
    char text[64];

    (void)state;
    rig_start(&rig);
    remote_code = -EAGAIN;
    assert_int_equal(call(&rig, rig.secret, RIG_DEADLINE_NS, text), -EREMOTEIO);
    assert_string_equal(err.text, "come again");
    rig_stop(&rig);
}

/* Time enough to connect and ask, on a busy machine too. */
#define NO_ANSWER_NS (2 * MS_NS_PER_S)

static void test_no_answer(void **state)
{
    struct rig rig = {.no_engine = true, .no_client = true, .on_request = forget_it};
    char text[64];

    (void)state;
    rig_start(&rig);
    assert_int_equal(call(&rig, rig.secret, NO_ANSWER_NS, text), -ETIMEDOUT);
    rig_wait_count(&rig, &rig.held, 1);
    rig_wait_count(&rig, &rig.cancelled, 1); /* its client is gone, and it is told */
    rig_reply(rig.data, "too late");
    rig_stop(&rig);
}

static void test_wrong_secret(void **state)
{
    struct rig rig = {.no_engine = true, .no_client = true};
    uint8_t wrong[32] = {0};
    char text[64];

    (void)state;
    rig_start(&rig);
    assert_int_equal(call(&rig, wrong, RIG_DEADLINE_NS, text), -EACCES);
    assert_non_null(strstr(err.text, "secret"));
    rig_stop(&rig);
}

static void test_nobody_listens(void **state)
{
    struct rig rig = {.no_engine = true, .no_client = true};
    char text[64];
    int fd;

    (void)state;
    rig_start(&rig);
    rig_stop_server(&rig);
    assert_int_equal(call(&rig, rig.secret, RIG_DEADLINE_NS, text), -ENOENT);
    fd = ms_unix_listen(rig.path, SOCK_STREAM, NULL);
    close(fd); /* the file stays */
    assert_int_equal(call(&rig, rig.secret, RIG_DEADLINE_NS, text), -ECONNREFUSED);
    unlink(rig.path);
    rig_stop(&rig);
}

/* Somebody takes the connection and hangs up. */
static void *hang_up(void *arg)
{
    int listening = *(int *)arg, fd;

    while ((fd = ms_unix_accept(listening)) < 0)
        ;
    close(fd);
    return NULL;
}

static void test_a_hang_up(void **state)
{
    struct rig rig = {.no_engine = true, .no_client = true};
    pthread_t thread;
    char text[64];
    int fd;

    (void)state;
    rig_start(&rig);
    rig_stop_server(&rig);
    fd = ms_unix_listen(rig.path, SOCK_STREAM, NULL);
    assert_int_equal(pthread_create(&thread, NULL, hang_up, &fd), 0);
    assert_int_equal(call(&rig, rig.secret, RIG_DEADLINE_NS, text), -EPIPE);
    pthread_join(thread, NULL);
    close(fd);
    unlink(rig.path);
    rig_stop(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_answer),
        cmocka_unit_test(test_a_failure),
        cmocka_unit_test(test_the_code_of_a_failure),
        cmocka_unit_test(test_no_answer),
        cmocka_unit_test(test_wrong_secret),
        cmocka_unit_test(test_nobody_listens),
        cmocka_unit_test(test_a_hang_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
