/* hardware_test.c - what a text says: does it blame the hardware, and what happened */
#include "job/core/spec.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static enum ms_job_cause cause_of(int code, bool signaled, const char *text)
{
    return ms_job_classify(
        &(struct ms_job_exit){.code = code, .signaled = signaled, .text = text});
}

static void test_texts_that_blame_the_hardware(void **state)
{
    static const char *const texts[] = {
        "RuntimeError: CUDA error: uncorrectable ECC error encountered\nCUDA kernel "
        "errors might be asynchronously reported",
        "torch.AcceleratorError: CUDA error: uncorrectable NVLink error detected "
        "during "
        "the execution",
        "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
        "cuda: CUDA_ERROR_ECC_UNCORRECTABLE (214)",
        "kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.",
        "Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost.",
        "n1:12:34 [0] transport/net_ib.cc:94 NCCL WARN NET/IB : Got async event : "
        "device "
        "fatal",
        "EE1001 hbm multi bit ecc error, device id 3",
        "[ 12.3] {1}[Hardware Error]: event severity: fatal",
    };

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        assert_non_null(ms_job_find_hardware(texts[i]));
        assert_int_equal(cause_of(1, false, texts[i]), MS_JOB_HARDWARE);
        assert_int_equal(cause_of(6, true, texts[i]), MS_JOB_HARDWARE); /* aborted */
    }
    assert_string_equal(ms_job_find_hardware(texts[4]), "NVRM: Xid");
}

/* They are the program's, or another machine's. */
static void test_texts_that_do_not(void **state)
{
    static const char *const texts[] = {
        "",
        "ValueError: shapes (2,3) and (4,) do not match",
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "RuntimeError: CUDA error: device-side assert triggered",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "torch.distributed.DistBackendError: NCCL error: remote process exited or "
        "there "
        "was a network error",
        "NET/IB : Got completion from peer 10.0.0.2 with status=12",
    };

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        assert_int_equal(cause_of(1, false, texts[i]), MS_JOB_APPLICATION);
    assert_int_equal(cause_of(1, false, NULL), MS_JOB_APPLICATION);
}

static void test_other_causes_stay(void **state)
{
    static const char text[] = "CUDA error: uncorrectable ECC error encountered";
    struct ms_job_exit exit = {.code = 9, .signaled = true, .text = text};

    (void)state;
    assert_int_equal(cause_of(0, false, text), MS_JOB_SUCCEEDED);
    assert_int_equal(ms_job_classify(&exit), MS_JOB_PREEMPTED);
    exit.out_of_memory = true;
    assert_int_equal(ms_job_classify(&exit), MS_JOB_OUT_OF_MEMORY);
    exit.unreachable = true;
    assert_int_equal(ms_job_classify(&exit), MS_JOB_NODE_LOST);
}

static void test_the_last_line_says_what_happened(void **state)
{
    static const char *const texts[][2] = {
        {"", ""},
        {"one", "one"},
        {"Traceback:\n  File \"x\"\nValueError: no\n\n  \n", "ValueError: no"},
        {"\n\n", ""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        int len;
        const char *last = ms_job_last_line(texts[i][0], &len);

        assert_int_equal(len, strlen(texts[i][1]));
        assert_memory_equal(last, texts[i][1], (size_t)len);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts_that_blame_the_hardware),
        cmocka_unit_test(test_texts_that_do_not),
        cmocka_unit_test(test_other_causes_stay),
        cmocka_unit_test(test_the_last_line_says_what_happened),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
