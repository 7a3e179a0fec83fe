/* In a forked child no function waits for the lock, which a thread of the parent may hold. */
#include "rollout/rollout_impl.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

enum { CHILD_S = 10 };

static bool refuses(struct ms_rollout *r)
{
    struct ms_rollout_submit s = {.samples = 1, .max_new_tokens = 1};
    struct ms_rollout_group *g = NULL;
    struct ms_explanation x;
    struct ms_error err = {0};
    char text[MS_ROLLOUT_RID], rid[MS_ROLLOUT_RID];
    uint64_t id = 0;
    uint32_t n = 0;

    ms_rollout_rid_print(r, 1, rid);
    return ms_rollout_status(r) == -ECHILD && ms_rollout_listen(r) == -ECHILD &&
           ms_rollout_submit(r, &s, &id, &err) == -ECHILD &&
           strstr(err.text, "forked child") &&
           ms_rollout_follow(r, NULL, 0, NULL) == -ECHILD &&
           ms_rollout_limit(r, 1) == -ECHILD && ms_rollout_drain(r, &n, 1) == -ECHILD &&
           ms_rollout_undrain(r, &n, 1) == -ECHILD &&
           ms_rollout_replica(r, 0, &n) == -ECHILD &&
           ms_rollout_session_open(r, 1, 0, &id, NULL) == -ECHILD &&
           ms_rollout_session_finish(r, 1) == -ECHILD &&
           ms_rollout_session_replica(r, 1, &n) == -ECHILD &&
           ms_rollout_pull(r, 1, &g) == -ECHILD &&
           ms_rollout_lease(r, 1, &g, &id) == -ECHILD &&
           ms_rollout_consumed(r, 1) == -ECHILD &&
           ms_rollout_give_back(r, 1) == -ECHILD &&
           ms_rollout_take(r, 1, &g) == -ECHILD &&
           ms_rollout_take_dropped(r, &g) == -ECHILD &&
           ms_rollout_judge(r, &g) == -ECHILD &&
           ms_rollout_verdict(r, 1, true) == -ECHILD &&
           ms_rollout_cancel(r, 1) == -ECHILD && ms_rollout_cancel_all(r) == -ECHILD &&
           ms_rollout_cancel_rid(r, rid) == -ECHILD &&
           ms_rollout_weights_begin(r, 1, MS_WEIGHTS_ABORT, false, MS_NEVER) ==
               -ECHILD &&
           ms_rollout_weights_next(r, &n) == -ECHILD &&
           ms_rollout_weights_ready(r, 0) == -ECHILD &&
           ms_rollout_weights_failed(r) == -ECHILD &&
           ms_rollout_restored(r, 0) == -ECHILD &&
           ms_rollout_pause(r, MS_WEIGHTS_KEEP) == -ECHILD &&
           ms_rollout_is_paused(r) == -ECHILD && ms_rollout_resume(r) == -ECHILD &&
           ms_rollout_explain(r, rid, &x, text, sizeof text) == -ECHILD &&
           ms_rollout_rid(r, 1, 0, text) == -ECHILD;
}

static bool gives_nothing(struct ms_rollout *r)
{
    struct ms_rollout_stats s = {.submitted = 7};
    struct ms_rollout_replica_stats replica;
    struct ms_rollout_mark mark;
    uint64_t next = 0;

    ms_rollout_stats(r, &s);
    ms_rollout_unlisten(r, 0);
    return s.submitted == 0 && !ms_rollout_replica_stats(r, 0, &replica) &&
           ms_rollout_wait(r, 7, MS_NEVER) == 7 &&
           ms_rollout_rank(r, 0) == MS_NOWHERE && ms_rollout_version(r) == 0 &&
           ms_rollout_take_refill(r) == 0 &&
           ms_rollout_marks(r, 3, &mark, 1, &next) == 0 && next == 3;
}

static void test_the_lock_was_held_at_the_fork(void **state)
{
    const struct ms_rollout_options o = {.slots = 1};
    struct ms_rollout *r = ms_rollout_create(&o, NULL);
    int status = -1;
    pid_t child;

    (void)state;
    assert_non_null(r);
    pthread_mutex_lock(&r->lock);
    child = fork();
    if (child == 0) {
        alarm(CHILD_S);
        _exit(refuses(r) ? gives_nothing(r) ? 0 : 2 : 1);
    }
    pthread_mutex_unlock(&r->lock);
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status)); /* SIGALRM: it waits */
    assert_int_equal(WEXITSTATUS(status), 0);
    ms_rollout_destroy(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_lock_was_held_at_the_fork),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
