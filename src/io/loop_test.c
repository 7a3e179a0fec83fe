/* loop_test.c - tests of loop.h: the event loop */
#include "base/cleanup.h"
#include "base/clock.h"
#include "io/loop.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

#define DEADLINE_NS (20 * MS_NS_PER_S)

struct probe {
    struct ms_loop *loop;
    struct ms_watch watch;
    struct ms_timer timer;
    int fds[2];
    unsigned count, events;
    bool finish_inside, stop_inside;
};

static void start(struct probe *p)
{
    *p = (struct probe){.loop = ms_loop_create()};
    assert_non_null(p->loop);
    assert_int_equal(pipe2(p->fds, O_CLOEXEC | O_NONBLOCK), 0);
}

static void stop(struct probe *p)
{
    ms_watch_finish(&p->watch);
    ms_timer_finish(&p->timer);
    ms_loop_destroy(p->loop);
    ms_fd_close(&p->fds[0]);
    ms_fd_close(&p->fds[1]);
}

static void run_until(struct probe *p, unsigned count)
{
    int64_t until_ns = ms_now_ns() + DEADLINE_NS;

    while (p->count < count) {
        assert_int_equal(ms_loop_run_once(p->loop, true), 0);
        assert_true(ms_now_ns() < until_ns);
    }
}

static void on_ready(void *arg, unsigned events)
{
    struct probe *p = arg;

    p->count++;
    p->events = events;
    if (p->finish_inside)
        ms_watch_finish(&p->watch);
    if (p->stop_inside)
        ms_loop_stop(p->loop);
}

static void on_time(void *arg)
{
    struct probe *p = arg;

    p->count++;
    if (p->finish_inside)
        ms_timer_finish(&p->timer);
}

/* ---- watches --------------------------------------------------------------------- */

static void test_a_watch_is_level_triggered(void **state)
{
    struct probe p;

    (void)state;
    start(&p);
    assert_int_equal(ms_watch_init(&p.watch, p.loop, p.fds[0], MS_READ, on_ready, &p),
                     0);
    ms_loop_run_once(p.loop, false);
    assert_int_equal(p.count, 0);
    assert_int_equal(write(p.fds[1], "x", 1), 1);
    run_until(&p, 3); /* nobody reads it: it stays ready */
    assert_int_equal(p.events, MS_READ);
    stop(&p);
}

static void test_a_watch_is_switched(void **state)
{
    struct probe p;

    (void)state;
    start(&p);
    assert_int_equal(ms_watch_init(&p.watch, p.loop, p.fds[1], 0, on_ready, &p), 0);
    ms_loop_run_once(p.loop, false);
    assert_int_equal(p.count, 0);
    assert_int_equal(ms_watch_set(&p.watch, MS_WRITE), 0);
    assert_int_equal(ms_watch_set(&p.watch, MS_WRITE), 0);
    run_until(&p, 1);
    assert_int_equal(p.events, MS_WRITE);
    assert_int_equal(ms_watch_set(&p.watch, 0), 0);
    p.count = 0;
    ms_loop_run_once(p.loop, false);
    ms_loop_run_once(p.loop, false);
    assert_int_equal(p.count, 0);
    stop(&p);
}

static void test_a_watch_finishes_itself(void **state)
{
    struct probe p;

    (void)state;
    start(&p);
    p.finish_inside = true;
    assert_int_equal(ms_watch_init(&p.watch, p.loop, p.fds[1], MS_WRITE, on_ready, &p),
                     0);
    run_until(&p, 1);
    ms_loop_run_once(p.loop, false);
    assert_int_equal(p.count, 1);
    ms_watch_finish(&p.watch); /* again: nothing */
    stop(&p);
}

static void test_the_end_of_a_pipe_is_readable(void **state)
{
    struct probe p;

    (void)state;
    start(&p);
    assert_int_equal(ms_watch_init(&p.watch, p.loop, p.fds[0], MS_READ, on_ready, &p),
                     0);
    ms_fd_close(&p.fds[1]);
    run_until(&p, 1);
    assert_int_equal(p.events, MS_READ);
    stop(&p);
}

static void test_what_was_never_made_is_finished(void **state)
{
    struct ms_watch w = {0};
    struct ms_timer t = {0};

    (void)state;
    ms_watch_finish(&w);
    ms_timer_cancel(&t);
    ms_timer_finish(&t);
    ms_loop_destroy(NULL);
}

/* ---- timers ---------------------------------------------------------------------- */

static void test_a_timer_fires_once(void **state)
{
    struct probe p;
    int64_t before_ns;

    (void)state;
    start(&p);
    assert_int_equal(ms_timer_init(&p.timer, p.loop, on_time, &p), 0);
    before_ns = ms_now_ns();
    assert_int_equal(ms_timer_set(&p.timer, 3 * MS_NS_PER_MS), 0);
    run_until(&p, 1);
    assert_true(ms_now_ns() - before_ns >= 2 * MS_NS_PER_MS);
    ms_loop_run_once(p.loop, false);
    assert_int_equal(p.count, 1);
    assert_int_equal(ms_timer_set(&p.timer, -5), 0); /* past: at once */
    run_until(&p, 2);
    stop(&p);
}

static void test_a_timer_is_moved_and_cancelled(void **state)
{
    struct probe p;

    (void)state;
    start(&p);
    assert_int_equal(ms_timer_init(&p.timer, p.loop, on_time, &p), 0);
    assert_int_equal(ms_timer_set(&p.timer, MS_NEVER), 0); /* far away */
    assert_int_equal(ms_timer_set(&p.timer, 0), 0);
    run_until(&p, 1);
    assert_int_equal(ms_timer_set(&p.timer, 0), 0);
    ms_timer_cancel(&p.timer);
    ms_loop_run_once(p.loop, false);
    assert_int_equal(p.count, 1);
    stop(&p);
}

static void test_a_timer_finishes_itself(void **state)
{
    struct probe p;

    (void)state;
    start(&p);
    p.finish_inside = true;
    assert_int_equal(ms_timer_init(&p.timer, p.loop, on_time, &p), 0);
    assert_int_equal(ms_timer_set(&p.timer, 0), 0);
    run_until(&p, 1);
    stop(&p);
}

/* ---- posts ----------------------------------------------------------------------- */

enum { POSTERS = 4, POSTS = 500 };

struct crowd {
    struct ms_loop *loop;
    pthread_t thread;
    unsigned last[POSTERS], count;
    bool out_of_order, elsewhere;
};

struct errand {
    struct crowd *crowd;
    unsigned poster, number;
};

static struct errand errands[POSTERS][POSTS];

static void run_errand(void *arg)
{
    struct errand *e = arg;
    struct crowd *c = e->crowd;

    c->elsewhere |= !pthread_equal(pthread_self(), c->thread);
    c->out_of_order |= c->last[e->poster] + 1 != e->number;
    c->last[e->poster] = e->number;
    if (++c->count == POSTERS * POSTS)
        ms_loop_stop(c->loop);
}

static void *post_all(void *arg)
{
    struct errand *e = arg;

    for (unsigned i = 0; i < POSTS; i++)
        if (ms_loop_post(e->crowd->loop, run_errand, &e[i]) < 0)
            abort();
    return NULL;
}

static void test_posts_run_in_order_on_the_loop(void **state)
{
    struct crowd c = {.loop = ms_loop_create(), .thread = pthread_self()};
    pthread_t posters[POSTERS];

    (void)state;
    for (unsigned p = 0; p < POSTERS; p++) {
        for (unsigned i = 0; i < POSTS; i++)
            errands[p][i] = (struct errand){&c, p, i + 1};
        assert_int_equal(pthread_create(&posters[p], NULL, post_all, errands[p]), 0);
    }
    assert_int_equal(ms_loop_run(c.loop), 0);
    for (unsigned p = 0; p < POSTERS; p++)
        pthread_join(posters[p], NULL);
    assert_int_equal(c.count, POSTERS * POSTS);
    assert_false(c.out_of_order);
    assert_false(c.elsewhere);
    ms_loop_destroy(c.loop);
}

static void post_again(void *arg)
{
    struct probe *p = arg;

    if (++p->count < 3)
        assert_int_equal(ms_loop_post(p->loop, post_again, p), 0);
}

static void test_a_post_may_post(void **state)
{
    struct probe p;

    (void)state;
    start(&p);
    assert_int_equal(ms_loop_post(p.loop, post_again, &p), 0);
    run_until(&p, 3);
    stop(&p);
}

static void must_not_run(void *arg)
{
    (void)arg;
    abort();
}

static void test_what_was_not_run_is_dropped(void **state)
{
    struct probe p;

    (void)state;
    start(&p);
    assert_int_equal(ms_loop_post(p.loop, must_not_run, NULL), 0);
    stop(&p); /* and the leak sanitizer is content */
}

/* ---- stopping -------------------------------------------------------------------- */

static void *stop_it(void *arg)
{
    ms_loop_stop(arg);
    return NULL;
}

static void test_stopped_from_another_thread(void **state)
{
    struct ms_loop *loop = ms_loop_create();
    pthread_t thread;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, stop_it, loop), 0);
    assert_int_equal(ms_loop_run(loop), 0); /* also if it was stopped before */
    pthread_join(thread, NULL);
    ms_loop_destroy(loop);
}

static void test_stopped_from_inside(void **state)
{
    struct probe p;

    (void)state;
    start(&p);
    p.stop_inside = true;
    assert_int_equal(ms_watch_init(&p.watch, p.loop, p.fds[1], MS_WRITE, on_ready, &p),
                     0);
    assert_int_equal(ms_loop_run(p.loop), 0);
    assert_true(p.count >= 1);
    stop(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_watch_is_level_triggered),
        cmocka_unit_test(test_a_watch_is_switched),
        cmocka_unit_test(test_a_watch_finishes_itself),
        cmocka_unit_test(test_the_end_of_a_pipe_is_readable),
        cmocka_unit_test(test_what_was_never_made_is_finished),
        cmocka_unit_test(test_a_timer_fires_once),
        cmocka_unit_test(test_a_timer_is_moved_and_cancelled),
        cmocka_unit_test(test_a_timer_finishes_itself),
        cmocka_unit_test(test_posts_run_in_order_on_the_loop),
        cmocka_unit_test(test_a_post_may_post),
        cmocka_unit_test(test_what_was_not_run_is_dropped),
        cmocka_unit_test(test_stopped_from_another_thread),
        cmocka_unit_test(test_stopped_from_inside),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
