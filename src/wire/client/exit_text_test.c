/* exit_text_test.c - a clause for each way in which a worker can end */
#include "wire/client/exit_text.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>

#include <cmocka.h>

static void expect(Muster__Exit e, const char *text)
{
    char out[MS_EXIT_TEXT_MAX];

    assert_string_equal(ms_exit_describe(&e, out), text);
}

static void test_each_end(void **state)
{
    Muster__Exit e = MUSTER__EXIT__INIT;

    (void)state;
    e.code = 3;
    expect(e, "exited with code 3");
    e.code = -1; /* its end was not seen */
    expect(e, "died");
    e.signaled = true;
    e.code = SIGKILL;
    expect(e, "was killed by signal 9 (SIGKILL)");
    e.code = 200; /* no such signal */
    expect(e, "was killed by signal 200");
    e.code = SIGKILL;
    e.out_of_memory = true;
    expect(e, "was killed because it reached its memory limit");
    e.requested = true;
    expect(e, "was stopped on request");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_end)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
