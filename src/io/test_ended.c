/* test_ended.c - for tests: the end of processes that are not our children */
#include "io/test_ended.h"
#include "base/cleanup.h"
#include "io/spawn.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { DEADLINE_MS = 20000 };

static bool ends_within(pid_t pid, int timeout_ms)
{
    MS_CLEANUP(ms_cleanup_fd) int fd = ms_process_open(pid);
    struct pollfd p = {.fd = fd, .events = POLLIN};

    assert_true(pid > 1);
    return fd < 0 || poll(&p, 1, timeout_ms) == 1;
}

bool test_has_ended(pid_t pid)
{
    return ends_within(pid, 0);
}

void test_wait_ended(pid_t pid)
{
    assert_true(ends_within(pid, DEADLINE_MS));
}
