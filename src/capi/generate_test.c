/* Generation by a driver in C on workers in C. */
#include "capi/test_rig.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define WAIT_NS (60 * MS_NS_PER_S)
enum { CHILD_S = 10 };

static int group_setup(void **state)
{
    (void)state;
    return rig_start(NULL);
}

static void scheduler_free(struct muster_scheduler **s)
{
    muster_scheduler_destroy(*s);
}

static void samples_free(struct muster_samples **s)
{
    muster_samples_destroy(*s);
}
#define SCHEDULER MS_CLEANUP(scheduler_free) struct muster_scheduler *
#define SAMPLES   MS_CLEANUP(samples_free) struct muster_samples *

static struct muster_scheduler *make(struct muster_scheduler_options o)
{
    struct muster_scheduler *s = muster_scheduler_create(cluster, &o, &err);

    if (!s)
        print_error("%s\n", err.message);
    assert_non_null(s);
    return s;
}

static struct muster_value *sampling_of(int64_t length, int64_t pace_us, bool fails)
{
    struct muster_value *map = muster_value_map();

    muster_map_set(map, "length", muster_value_int(length));
    muster_map_set(map, "pace_us", muster_value_int(pace_us));
    muster_map_set(map, "fail", muster_value_int(fails));
    return map;
}

/* Of a prompt of one token; MUSTER_SUBMIT_OPTIONS with what differs. */
static uint64_t submit(struct muster_scheduler *s,
                       int64_t prompt,
                       struct muster_value *sampling,
                       uint32_t samples,
                       uint32_t max_new)
{
    struct muster_submit_options o = MUSTER_SUBMIT_OPTIONS;
    VALUE list = one(prompt);
    VALUE owned = sampling;
    uint64_t group = 0;

    o.samples = samples;
    o.key = (uint64_t)prompt;
    o.max_new_tokens = max_new;
    o.sampling = owned;
    assert_int_equal(muster_scheduler_submit(s, list, &o, &group, &err), 0);
    return group;
}

static void check(const struct muster_samples *done, size_t samples, size_t length)
{
    assert_null(muster_samples_dropped(done));
    assert_int_equal(muster_samples_count(done), samples);
    for (size_t i = 0; i < samples; i++) {
        struct muster_sample one_;
        int64_t sum = (int64_t)muster_samples_key(done);

        assert_true(muster_samples_at(done, i, &one_));
        assert_int_equal(one_.count, length);
        for (size_t k = 0; k < length; k++) {
            assert_int_equal(one_.tokens[k], sum % 10007 + 1);
            sum += one_.tokens[k];
        }
        assert_null(one_.logprobs);
        assert_string_equal(one_.finish_reason, "stop");
        assert_int_equal(strlen(one_.rid), 32);
    }
    assert_false(muster_samples_at(done, samples, &(struct muster_sample){0}));
}

static void await_tokens(struct muster_scheduler *s, uint64_t tokens)
{
    struct muster_scheduler_stats stats;

    do {
        usleep(10000);
        muster_scheduler_get_stats(s, &stats);
    } while (stats.streamed < tokens);
}

/* A session without a turn is forgotten by itself. On a busy machine that may be late: then
 * another one is tried. */
static void await_end_of_time(struct muster_scheduler *s)
{
    uint64_t talk;
    int rc;

    do {
        assert_int_equal(muster_scheduler_session(s, 5, 4, &talk, &err), 0);
        usleep(400000); /* nothing but time is waited for */
        rc = muster_scheduler_session_finish(s, talk);
    } while (rc == 0);
    assert_int_equal(rc, -ENOENT);
}

static void test_groups(void **state)
{
    SCHEDULER s = make((struct muster_scheduler_options)MUSTER_SCHEDULER_OPTIONS);
    struct muster_samples *done[5];
    struct muster_scheduler_stats stats;

    (void)state;
    for (int64_t i = 0; i < 5; i++)
        submit(s, i, sampling_of(20, 0, false), 3, 100);
    assert_int_equal(muster_scheduler_get_batch(s, 5, WAIT_NS, done, &err), 0);
    for (int i = 0; i < 5; i++) {
        check(done[i], 3, 20);
        muster_samples_destroy(done[i]);
    }
    muster_scheduler_get_stats(s, &stats);
    assert_int_equal(stats.delivered, 5);
    assert_int_equal(stats.sent, 15);
    assert_int_equal(stats.replicas_up, WORKERS);
    assert_int_equal(muster_scheduler_get_batch(s, 1, MS_NS_PER_MS, done, &err),
                     -ETIMEDOUT);
}

static void test_a_batch_that_is_given_back_comes_again(void **state)
{
    SCHEDULER s = make((struct muster_scheduler_options)MUSTER_SCHEDULER_OPTIONS);
    struct muster_samples *done[2], *again[2];
    struct muster_scheduler_stats stats;
    uint64_t batch = 0;

    (void)state;
    for (int64_t i = 1; i <= 2; i++)
        submit(s, i, sampling_of(20, 0, false), 2, 100);
    assert_int_equal(muster_scheduler_lease(s, 2, WAIT_NS, done, &batch, &err), 0);
    assert_int_equal(muster_scheduler_get_batch(s, 1, MS_NS_PER_MS, again, &err),
                     -ETIMEDOUT);
    assert_int_equal(muster_scheduler_give_back(s, batch), 0);
    assert_int_equal(muster_scheduler_give_back(s, batch), -ENOENT);
    assert_int_equal(muster_scheduler_lease(s, 2, WAIT_NS, again, &batch, &err), 0);
    for (int i = 0; i < 2; i++) {
        check(done[i], 2, 20);
        check(again[i], 2, 20);
        assert_int_equal(muster_samples_group(done[i]), muster_samples_group(again[i]));
        muster_samples_destroy(done[i]);
        muster_samples_destroy(again[i]);
    }
    assert_int_equal(muster_scheduler_consumed(s, batch), 0);
    assert_int_equal(muster_scheduler_consumed(s, batch), -ENOENT);
    muster_scheduler_get_stats(s, &stats);
    assert_int_equal(stats.delivered, 2);
    assert_int_equal(stats.sent, 4);
}

static void test_a_killed_worker_and_its_successor(void **state)
{
    SCHEDULER s = make((struct muster_scheduler_options)MUSTER_SCHEDULER_OPTIONS);
    struct muster_samples *done[3];
    struct muster_scheduler_stats stats;
    uint32_t rank = 1;

    (void)state;
    for (int64_t i = 0; i < 3; i++)
        submit(s, i, sampling_of(60, 10000, false), 1, 100);
    await_tokens(s, 121); /* so each has some */
    assert_int_equal(kill(muster_cluster_pid(cluster, rank), SIGKILL), 0);
    assert_int_equal(muster_scheduler_get_batch(s, 3, WAIT_NS, done, &err), 0);
    for (int i = 0; i < 3; i++) {
        check(done[i], 1, 60);
        muster_samples_destroy(done[i]);
    }
    muster_scheduler_get_stats(s, &stats);
    assert_int_equal(stats.sent, 4);
    assert_int_equal(stats.resumed, 1);
    assert_int_equal(muster_cluster_restart(cluster, &rank, 1, MS_NS_PER_S, &err), 0);
    do {
        usleep(20000);
        muster_scheduler_get_stats(s, &stats);
    } while (stats.replicas_up < WORKERS);
    submit(s, 7, sampling_of(10, 0, false), 9, 100);
    assert_int_equal(muster_scheduler_get_batch(s, 1, WAIT_NS, done, &err), 0);
    check(done[0], 9, 10);
    muster_samples_destroy(done[0]);
}

static void await_up(struct muster_scheduler *s, uint32_t replicas)
{
    struct muster_scheduler_stats stats;

    do {
        usleep(20000);
        muster_scheduler_get_stats(s, &stats);
    } while (stats.replicas_up != replicas);
}

/* `count` groups of one sample of 60 tokens each, whatever becomes of replicas meanwhile. */
static void submit_slow(struct muster_scheduler *s, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        submit(s, i, sampling_of(60, 10000, false), 1, 100);
}

static void check_slow(struct muster_scheduler *s, uint32_t count)
{
    struct muster_samples *done[WORKERS + 1];

    assert_int_equal(muster_scheduler_get_batch(s, count, WAIT_NS, done, &err), 0);
    for (uint32_t i = 0; i < count; i++) {
        check(done[i], 1, 60);
        muster_samples_destroy(done[i]);
    }
}

static void test_resized_with_work_kept(void **state)
{
    SCHEDULER s = make((struct muster_scheduler_options)MUSTER_SCHEDULER_OPTIONS);
    struct muster_scheduler_stats stats;

    (void)state;
    submit_slow(s, WORKERS);
    await_tokens(s, 121); /* so each has some */
    assert_int_equal(muster_scheduler_resize(s, 0, WAIT_NS, &err), -EINVAL);
    assert_int_equal(muster_scheduler_resize(s, 1, WAIT_NS, &err), 0);
    assert_int_equal(muster_cluster_world_size(cluster), 1);
    check_slow(s, WORKERS);
    muster_scheduler_get_stats(s, &stats);
    assert_int_equal(stats.replicas_up, 1);
    assert_int_equal(stats.resumed, 2);
    assert_true(stats.streamed <= 60 * WORKERS); /* no token was made twice */
    submit_slow(s, WORKERS);
    assert_int_equal(muster_scheduler_resize(s, WORKERS, WAIT_NS, &err), 0);
    await_up(s, WORKERS);
    check_slow(s, WORKERS);
}

/* The scheduler is not asked, and follows whoever resizes the cluster. */
static void test_a_resized_cluster_is_followed(void **state)
{
    SCHEDULER s = make((struct muster_scheduler_options)MUSTER_SCHEDULER_OPTIONS);
    struct muster_cluster *handle = muster_cluster_open(session, "three", &err);

    (void)state;
    assert_non_null(handle);
    submit_slow(s, WORKERS);
    await_tokens(s, 121);
    assert_int_equal(muster_cluster_resize(handle, 1, MS_NS_PER_S, &err), 0);
    check_slow(s, WORKERS); /* from what had come of the two that ended */
    await_up(s, 1);
    assert_int_equal(muster_cluster_resize(handle, WORKERS + 1, MS_NS_PER_S, &err), 0);
    submit_slow(s, WORKERS + 1);
    await_up(s, WORKERS + 1);
    check_slow(s, WORKERS + 1);
    muster_cluster_close(handle);
    assert_int_equal(muster_cluster_resize(cluster, WORKERS, MS_NS_PER_S, &err), 0);
}

static void update(struct muster_scheduler *s, uint32_t version, bool rolling);

/* What comes after an update has not got its weights. */
static void test_a_new_replica_waits_for_weights(void **state)
{
    SCHEDULER s = make((struct muster_scheduler_options)MUSTER_SCHEDULER_OPTIONS);

    (void)state;
    update(s, 1, false);
    assert_int_equal(muster_scheduler_restored(s, 1), -EAGAIN);
    assert_int_equal(muster_scheduler_resize(s, WORKERS - 1, WAIT_NS, &err), 0);
    await_up(s, WORKERS - 1);
    assert_int_equal(muster_scheduler_resize(s, WORKERS, WAIT_NS, &err), 0);
    submit_slow(s, 2);
    check_slow(s, 2);
    await_up(s, WORKERS - 1);
    assert_int_equal(muster_scheduler_restored(s, WORKERS - 1), 0);
    await_up(s, WORKERS);
    assert_int_equal(muster_scheduler_restored(s, WORKERS), -ENOENT);
}

static void test_cancel_deadline_and_failure(void **state)
{
    SCHEDULER s = make((struct muster_scheduler_options)MUSTER_SCHEDULER_OPTIONS);
    struct muster_submit_options late = MUSTER_SUBMIT_OPTIONS;
    struct muster_samples *batch;
    struct muster_sample first;
    uint64_t group = submit(s, 1, sampling_of(1000000, 1000, false), 2, 1000000);
    VALUE prompt = one(3);
    VALUE slow = sampling_of(1000000, 1000, false);

    (void)state;
    assert_int_equal(muster_scheduler_cancel(s, group), 0);
    {
        SAMPLES gone = NULL;

        assert_int_equal(muster_scheduler_wait(s, group, WAIT_NS, &gone, &err), 0);
        assert_string_equal(muster_samples_dropped(gone), "cancelled");
    }
    assert_int_equal(muster_scheduler_cancel(s, 99), -ENOENT);
    assert_int_equal(muster_scheduler_cancel_rid(s, "1"), -ENOENT);
    submit(s, 2, sampling_of(10, 0, true), 1, 100);
    assert_int_equal(muster_scheduler_get_batch(s, 1, WAIT_NS, &batch, &err),
                     -EREMOTEIO);
    assert_non_null(strstr(err.message, "poison"));
    assert_non_null(strstr(err.message, "no tokens today"));
    late.max_new_tokens = 1000000;
    late.timeout_ns = 200 * MS_NS_PER_MS;
    late.sampling = slow;
    assert_int_equal(muster_scheduler_submit(s, prompt, &late, &group, &err), 0);
    {
        SAMPLES over = NULL;

        assert_int_equal(muster_scheduler_wait(s, group, WAIT_NS, &over, &err), 0);
        assert_string_equal(muster_samples_dropped(over), "deadline");
        assert_true(muster_samples_at(over, 0, &first));
    }
    submit(
        s, 4, sampling_of(10, 0, false), 1, 100); /* and the workers are free again */
    assert_int_equal(muster_scheduler_get_batch(s, 1, WAIT_NS, &batch, &err), 0);
    check(batch, 1, 10);
    muster_samples_destroy(batch);
}

/* Of open samples, by the ids that they have before they are handed out. */
static void test_requests_by_their_ids(void **state)
{
    struct muster_scheduler_options o = MUSTER_SCHEDULER_OPTIONS;
    SCHEDULER s = NULL;
    SAMPLES done = NULL;
    char first[MUSTER_RID], second[MUSTER_RID], text[512];
    struct muster_sample sample;
    uint64_t group;

    (void)state;
    o.ageing = 10;
    s = make(o);
    group = submit(s, 5, sampling_of(100, 5000, false), 2, 1000);
    assert_int_equal(muster_scheduler_rid(s, group, 0, first), 0);
    assert_int_equal(muster_scheduler_rid(s, group, 1, second), 0);
    assert_string_not_equal(first, second);
    assert_int_equal(muster_scheduler_rid(s, group, 2, text), -ENOENT);
    await_tokens(s, 2);
    assert_int_equal(muster_scheduler_explain(s, first, text, sizeof text), 0);
    assert_non_null(strstr(text, "running"));
    assert_int_equal(muster_scheduler_cancel_rid(s, first), 0);
    assert_int_equal(muster_scheduler_wait(s, group, WAIT_NS, &done, &err), 0);
    check(done, 1, 100); /* one less was wanted */
    assert_true(muster_samples_at(done, 0, &sample));
    assert_string_equal(sample.rid, second);
    assert_int_equal(muster_scheduler_rid(s, group, 0, first), -ENOENT);
    assert_true(muster_scheduler_bias(s) >= 0 && muster_scheduler_bias(s) <= 1);
}

/* Nothing blocks: the driver waits in a poll of its own. */
static void test_news_of_a_descriptor(void **state)
{
    SCHEDULER s = make((struct muster_scheduler_options)MUSTER_SCHEDULER_OPTIONS);
    struct pollfd news = {.fd = muster_scheduler_listen(s), .events = POLLIN};
    SAMPLES done = NULL;
    uint64_t count, group = submit(s, 5, sampling_of(50, 1000, false), 1, 100);
    int rc;

    (void)state;
    assert_true(news.fd >= 0);
    while ((rc = muster_scheduler_wait(s, group, 0, &done, &err)) == -ETIMEDOUT) {
        assert_int_equal(poll(&news, 1, WAIT_NS / MS_NS_PER_MS), 1);
        assert_int_equal(read(news.fd, &count, sizeof count), sizeof count);
    }
    assert_int_equal(rc, 0);
    check(done, 1, 50);
    muster_scheduler_unlisten(s, news.fd);
}

static void test_drained_and_used_again(void **state)
{
    SCHEDULER s = make((struct muster_scheduler_options)MUSTER_SCHEDULER_OPTIONS);
    struct muster_scheduler_stats stats;

    (void)state;
    submit_slow(s, WORKERS);
    await_tokens(s, 121); /* so each has some */
    for (uint32_t rank = 1; rank < WORKERS; rank++)
        assert_int_equal(muster_scheduler_drain(s, rank, WAIT_NS, &err), 0);
    assert_int_equal(muster_scheduler_drain(s, 1, WAIT_NS, &err), 0);
    assert_int_equal(muster_scheduler_drain(s, 0, WAIT_NS, &err), -EINVAL);
    assert_int_equal(muster_scheduler_drain(s, WORKERS, WAIT_NS, &err), -EINVAL);
    muster_scheduler_get_stats(s, &stats);
    assert_int_equal(stats.replicas_up, 1);
    check_slow(s, WORKERS); /* on rank 0, from what they had */
    muster_scheduler_get_stats(s, &stats);
    assert_int_equal(stats.resumed, WORKERS - 1);
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        assert_int_equal(muster_scheduler_undrain(s, rank, &err), 0);
    assert_int_equal(muster_scheduler_undrain(s, WORKERS, &err), -EINVAL);
    await_up(s, WORKERS);
    submit_slow(s, WORKERS);
    check_slow(s, WORKERS);
}

static bool is_refused(int rc)
{
    return rc == -ECHILD && strstr(err.message, "forked child");
}

static void test_a_forked_child(void **state)
{
    SCHEDULER s = make((struct muster_scheduler_options)MUSTER_SCHEDULER_OPTIONS);
    int status = 0;
    pid_t pid;

    (void)state;
    pid = fork();
    if (pid == 0) {
        alarm(CHILD_S);
        _exit(!is_refused(muster_scheduler_drain(s, 1, WAIT_NS, &err)) ||
              !is_refused(muster_scheduler_undrain(s, 1, &err)) ||
              !is_refused(muster_scheduler_resize(s, 1, WAIT_NS, &err)));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(muster_scheduler_drain(s, 1, WAIT_NS, &err), 0);
    assert_int_equal(muster_scheduler_undrain(s, 1, &err), 0);
}

static void update(struct muster_scheduler *s, uint32_t version, bool rolling)
{
    uint32_t rank = 99;

    assert_int_equal(muster_scheduler_weights_begin(
                         s, version, MUSTER_WEIGHTS_ABORT, rolling, 0, &err),
                     0);
    for (uint32_t i = 0; i < WORKERS; i++) {
        assert_int_equal(muster_scheduler_weights_next(s, WAIT_NS, &rank, &err), 1);
        assert_int_equal(rank, i);
        if (rolling)
            assert_int_equal(muster_scheduler_weights_ready(s, i), 0);
    }
    assert_int_equal(muster_scheduler_weights_next(s, WAIT_NS, &rank, &err), 0);
    for (uint32_t i = 0; !rolling && i < WORKERS; i++)
        assert_int_equal(muster_scheduler_weights_ready(s, i), 0);
}

static void test_weights_filter_and_pause(void **state)
{
    struct muster_scheduler_options o = MUSTER_SCHEDULER_OPTIONS;
    SCHEDULER s = NULL;
    struct muster_samples *done;
    struct muster_sample sample;
    uint64_t group;

    (void)state;
    o.filter = true;
    o.policy = "fifo";
    s = make(o);
    group = submit(s, 5, sampling_of(80, 10000, false), 1, 100);
    await_tokens(s, 10);
    update(s, 1, false);
    await_tokens(s, 20);
    update(s, 2, true);
    assert_int_equal(
        muster_scheduler_weights_begin(s, 2, MUSTER_WEIGHTS_ABORT, false, 0, &err),
        -EINVAL);
    assert_int_equal(muster_scheduler_pause(s, MUSTER_WEIGHTS_ABORT, WAIT_NS, &err), 0);
    assert_int_equal(muster_scheduler_resume(s), 0);
    assert_int_equal(muster_scheduler_judge(s, WAIT_NS, &done, &err), 0);
    check(done, 1, 80);
    assert_true(muster_samples_at(done, 0, &sample));
    assert_int_equal(sample.versions[0].version, 0);
    assert_int_equal(sample.versions[sample.version_count - 1].version, 2);
    muster_samples_destroy(done);
    assert_int_equal(muster_scheduler_verdict(s, group, false), 0);
    assert_int_equal(muster_scheduler_missing(s), 1);
    assert_int_equal(muster_scheduler_wait(s, group, WAIT_NS, &done, &err), 0);
    assert_string_equal(muster_samples_dropped(done), "filtered");
    muster_samples_destroy(done);
}

/* A replica of three ranks: the first one is asked, and any of them names it. */
static void test_a_replica_of_several_ranks(void **state)
{
    struct muster_scheduler_options o = MUSTER_SCHEDULER_OPTIONS;
    struct muster_scheduler_stats stats;
    SCHEDULER s = NULL;
    uint32_t rank = 99;

    (void)state;
    o.pp = WORKERS;
    s = make(o);
    muster_scheduler_get_stats(s, &stats);
    assert_int_equal(stats.replicas_up, 1);
    submit_slow(s, 2);
    check_slow(s, 2);
    assert_int_equal(muster_scheduler_drain(s, WORKERS - 1, WAIT_NS, &err), -EINVAL);
    assert_non_null(strstr(err.message, "at least one"));
    assert_int_equal(muster_scheduler_drain(s, WORKERS, WAIT_NS, &err), -EINVAL);
    assert_int_equal(muster_scheduler_resize(s, WORKERS + 1, WAIT_NS, &err), -EINVAL);
    assert_non_null(strstr(err.message, "3 ranks"));
    assert_int_equal(
        muster_scheduler_weights_begin(s, 1, MUSTER_WEIGHTS_ABORT, false, 0, &err), 0);
    assert_int_equal(muster_scheduler_weights_next(s, WAIT_NS, &rank, &err), 1);
    assert_int_equal(rank, 0);
    assert_int_equal(muster_scheduler_weights_next(s, WAIT_NS, &rank, &err), 0);
    assert_int_equal(muster_scheduler_weights_ready(s, WORKERS - 1), 0);
    o.pp = WORKERS - 1; /* no such mesh has three ranks */
    assert_null(muster_scheduler_create(cluster, &o, &err));
}

/* Turns go where the prefix is, until the session is finished or forgotten. */
static void test_sessions(void **state)
{
    struct muster_scheduler_options o = MUSTER_SCHEDULER_OPTIONS;
    struct muster_submit_options turn = MUSTER_SUBMIT_OPTIONS;
    SCHEDULER s = NULL;
    VALUE prompt = one(5);
    uint64_t talk, group;
    int32_t replica = -1;

    (void)state;
    o.session_ttl_ns = 300 * MS_NS_PER_MS;
    s = make(o);
    turn.max_new_tokens = 5;
    assert_int_equal(muster_scheduler_session(s, 5, 0, &talk, &err), 0);
    for (turn.session = talk; turn.turn < 4; turn.turn++) {
        SAMPLES done = NULL;
        struct muster_sample sample;

        assert_int_equal(muster_scheduler_submit(s, prompt, &turn, &group, &err), 0);
        assert_int_equal(muster_scheduler_wait(s, group, WAIT_NS, &done, &err), 0);
        assert_true(muster_samples_at(done, 0, &sample));
        assert_true(replica == -1 || sample.replica == replica);
        replica = sample.replica;
    }
    assert_int_equal(muster_scheduler_session_finish(s, talk), 0);
    assert_int_equal(muster_scheduler_session_finish(s, talk), -ENOENT);
    assert_int_equal(muster_scheduler_submit(s, prompt, &turn, &group, &err), -ENOENT);
    assert_non_null(strstr(err.message, "session"));
    await_end_of_time(s);
}

static void test_misuse(void **state)
{
    struct muster_scheduler_options o = MUSTER_SCHEDULER_OPTIONS;

    (void)state;
    assert_null(muster_scheduler_create(NULL, &o, &err));
    o.policy = "best";
    assert_null(muster_scheduler_create(cluster, &o, &err));
    assert_non_null(strstr(err.message, "best"));
    o.policy = NULL;
    o.slots = 0;
    assert_null(muster_scheduler_create(cluster, &o, &err));
    muster_scheduler_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_a_batch_that_is_given_back_comes_again),
        cmocka_unit_test(test_a_killed_worker_and_its_successor),
        cmocka_unit_test(test_resized_with_work_kept),
        cmocka_unit_test(test_a_resized_cluster_is_followed),
        cmocka_unit_test(test_a_new_replica_waits_for_weights),
        cmocka_unit_test(test_cancel_deadline_and_failure),
        cmocka_unit_test(test_requests_by_their_ids),
        cmocka_unit_test(test_news_of_a_descriptor),
        cmocka_unit_test(test_drained_and_used_again),
        cmocka_unit_test(test_a_forked_child),
        cmocka_unit_test(test_weights_filter_and_pause),
        cmocka_unit_test(test_a_replica_of_several_ranks),
        cmocka_unit_test(test_sessions),
        cmocka_unit_test(test_misuse),
    };

    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
