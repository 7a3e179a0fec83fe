/* test_pair.h - for the tests of operations on clusters: a head, two nodes and a driver
 *
 * The agents of nodes "a" and "b" only pretend. Each test has them anew; one that stops
 * the driver itself takes it (MS_TAKE). It defines what it declares: one program includes
 * it once.
 */
#ifndef MS_HEAD_CLUSTERS_TEST_PAIR_H
#define MS_HEAD_CLUSTERS_TEST_PAIR_H

#include "base/cleanup.h"
#include "head/test_serve.h"

static struct test_agent *a, *b;
static struct test_events seen;
static struct ms_head *driver;

static int setup(void **state)
{
    if (serve_setup(state) < 0)
        return -1;
    a = serve_agent("a");
    b = serve_agent("b");
    events_init(&seen);
    driver = serve_join(&seen);
    return 0;
}

static int teardown(void **state)
{
    if (driver)
        ms_head_stop(MS_TAKE(driver), 0);
    return serve_teardown(state);
}

#endif
