/* test_ops.c - for tests of the head: a home of their own, and what operations
 * come to */
#include "head/test_ops.h"
#include "base/proto.h"
#include "io/tree.h"

#include <fcntl.h>
#include <stdlib.h>

char ops_home[32];

int ops_home_make(void **state)
{
    (void)state;
    strcpy(ops_home, "/tmp/ms-test-XXXXXX");
    return mkdtemp(ops_home) && setenv("MUSTER_HOME", ops_home, 1) == 0 ? 0 : -1;
}

int ops_home_remove(void **state)
{
    (void)state;
    return ms_tree_remove(AT_FDCWD, ops_home);
}

int ops_finish(struct ms_head_op *op, struct ms_error *err)
{
    assert_int_equal(ms_head_op_wait(op, ms_now_ns() + OPS_DEADLINE_NS), 0);
    return ms_head_op_result(op, err);
}

const ProtobufCMessage *ops_message(struct ms_head_op *op)
{
    struct ms_error err = {0};

    if (ops_finish(op, &err) < 0)
        fail_msg("%s", err.text);
    return ms_head_op_message(op);
}

void ops_expect(struct ms_head_op *op, int code, const char *in_text)
{
    struct ms_error err = {0};

    assert_int_equal(ops_finish(op, &err), code);
    if (in_text && !strstr(err.text, in_text))
        fail_msg("'%s' is not in '%s'", in_text, err.text);
    ms_head_op_unref(op);
}

const Muster__Status *ops_status(struct ms_head *h, struct ms_head_op **op)
{
    *op = ms_head_status(h);
    return (const Muster__Status *)ops_message(*op);
}

struct ms_head_op *
ops_request(struct ms_head *h, Muster__DriverToHead__BodyCase what, void *body)
{
    return ms_head_request(h, what, body);
}

struct ms_head_op *ops_destroy(struct ms_head *h, const char *name, int64_t grace_ns)
{
    return ms_head_destroy_cluster(h, name, false, 0, grace_ns);
}

struct ms_head_op *ops_hold_port(struct ms_head *h, const char *node, const char *owner)
{
    Muster__HoldPort hold = MUSTER__HOLD_PORT__INIT;

    hold.owner = ms_field_text(owner);
    hold.node = ms_field_text(node);
    return ops_request(h, MUSTER__DRIVER_TO_HEAD__BODY_HOLD_PORT, &hold);
}

struct ms_head_op *ops_drop_port(struct ms_head *h, const char *owner)
{
    Muster__DropPort drop = MUSTER__DROP_PORT__INIT;

    drop.owner = ms_field_text(owner);
    return ops_request(h, MUSTER__DRIVER_TO_HEAD__BODY_DROP_PORT, &drop);
}

struct ms_head_op *ops_prepare(struct ms_head *h, Muster__ZygoteKey *key)
{
    Muster__Prepare prepare = MUSTER__PREPARE__INIT;

    prepare.key = key;
    return ops_request(h, MUSTER__DRIVER_TO_HEAD__BODY_PREPARE, &prepare);
}

struct ms_head_op *ops_find_cluster(struct ms_head *h, const char *name)
{
    Muster__FindCluster find = MUSTER__FIND_CLUSTER__INIT;

    find.name = ms_field_text(name);
    return ops_request(h, MUSTER__DRIVER_TO_HEAD__BODY_FIND, &find);
}

struct ms_head_op *ops_ask_death(struct ms_head *h, uint64_t uid)
{
    Muster__AskDeath m = MUSTER__ASK_DEATH__INIT;

    m.uid = uid;
    return ops_request(h, MUSTER__DRIVER_TO_HEAD__BODY_ASK_DEATH, &m);
}

void ops_expect_death(struct ms_head_op *op, const char *in_detail)
{
    const Muster__Exit *exit = ((const Muster__WorkerExited *)ops_message(op))->exit;

    assert_int_equal(exit->code, -1);
    if (!strstr(exit->detail, in_detail))
        fail_msg("'%s' is not in '%s'", in_detail, exit->detail);
    ms_head_op_unref(op);
}

struct ms_head_op *ops_add_step(struct ms_head *h,
                                const char *cluster,
                                Muster__Step *step,
                                const char *meta)
{
    Muster__AddStep add = MUSTER__ADD_STEP__INIT;

    add.cluster = ms_field_text(cluster);
    add.step = step;
    add.meta = (ProtobufCBinaryData){strlen(meta), (uint8_t *)ms_field_text(meta)};
    return ops_request(h, MUSTER__DRIVER_TO_HEAD__BODY_ADD_STEP, &add);
}
