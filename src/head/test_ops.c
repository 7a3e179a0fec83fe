#include "head/test_ops.h"
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
