#include "session/jobs_head.h"

#include "base/buf.h"
#include "base/proto.h"
#include "wire/test_rig.h"

#include <stdio.h>

/* A head that refuses the first `refusals` times, with this code. */
struct head {
    struct rig rig; /* first: it is the argument of on_request */
    _Atomic unsigned refusals, questions;
    int code;
};

static void refuse(const struct head *h, struct ms_request *r)
{
    char text[] = "not now";
    Muster__Failure f = MUSTER__FAILURE__INIT;

    f.kind = MUSTER__FAILURE__KIND__REFUSED;
    f.code = h->code;
    f.message = text;
    ms_request_fail(r, &f);
}

static void answer(struct ms_request *r)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf packed = {0};
    Muster__HeadToDriver m = MUSTER__HEAD_TO_DRIVER__INIT;
    Muster__JobStatus status = MUSTER__JOB_STATUS__INIT;
    char name[] = "mine";
    struct iovec iov;

    status.name = name;
    m.body_case = MUSTER__HEAD_TO_DRIVER__BODY_JOB;
    m.job = &status;
    assert_int_equal(ms_proto_pack(&m.base, &packed), 0);
    iov = (struct iovec){packed.data, packed.len};
    ms_request_reply(r, MS_CODEC_PROTO, &iov, 1);
}

static void on_request(void *arg, struct ms_request *r)
{
    struct head *h = arg;

    h->questions++;
    if (h->refusals > 0) {
        h->refusals--;
        refuse(h, r);
    } else {
        answer(r);
    }
}

/* `muster stop job`, to a head that refuses so often. */
static int ask_stop(struct head *h, int code, unsigned refusals, struct ms_error *err)
{
    Muster__JobRef want = MUSTER__JOB_REF__INIT;
    ProtobufCMessage *got = NULL;
    char name[] = "mine";
    int rc;

    *h = (struct head){
        .rig = {.no_engine = true, .no_client = true, .on_request = on_request},
        .refusals = refusals,
        .code = code};
    want.name = name;
    rig_start(&h->rig);
    rc = ms_jobs_head_ask(h->rig.path,
                          h->rig.secret,
                          MUSTER__DRIVER_TO_HEAD__BODY_STOP_JOB,
                          &want.base,
                          RIG_DEADLINE_NS,
                          &got,
                          err);
    if (rc == 0)
        assert_string_equal(((Muster__JobStatus *)got)->name, "mine");
    else
        assert_null(got);
    protobuf_c_message_free_unpacked(got, NULL);
    rig_stop(&h->rig);
    return rc;
}

static void test_a_head_that_has_just_started_again_is_asked_again(void **state)
{
    struct ms_error err = {0};
    struct head h;

    (void)state;
    assert_int_equal(ask_stop(&h, -EAGAIN, 2, &err), 0);
    assert_int_equal(h.questions, 3);
}

static void test_a_refusal_is_final(void **state)
{
    struct ms_error err = {0};
    struct head h;

    (void)state;
    assert_int_equal(ask_stop(&h, -EALREADY, 1, &err), -EREMOTEIO);
    assert_int_equal(h.questions, 1);
    assert_int_equal(err.code, -EALREADY);
    assert_string_equal(err.text, "not now");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_head_that_has_just_started_again_is_asked_again),
        cmocka_unit_test(test_a_refusal_is_final),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
