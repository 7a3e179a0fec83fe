/* test_ended.h - for tests: the end of processes that are not our children */
#ifndef MS_IO_TEST_ENDED_H
#define MS_IO_TEST_ENDED_H

#include <stdbool.h>
#include <sys/types.h>

/* Whether it runs no more; one that nobody has waited for has ended too. */
bool test_has_ended(pid_t pid);
/* Wait for that, at most 20 s. */
void test_wait_ended(pid_t pid);

#endif
