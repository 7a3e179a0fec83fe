/* readers_test.c - tests of readers.h: requests for pieces of logs, held until
 * there is something to answer */
#include "agent/logs/readers.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "io/tree.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char actor_0[] = "actor-0.log", actor_1[] = "actor-1.log";

static struct {
    char dir[32];
    struct ms_loop *loop;
    struct ms_log_readers waits;
    /* the last answer */
    unsigned answers, refusals;
    uint64_t request, file, offset, time_ns;
    char text[64];
} rig;

static void on_piece(void *arg, uint64_t request, const Muster__LogPiece *piece)
{
    assert_ptr_equal(arg, &rig);
    assert_true(piece->data.len < sizeof rig.text);
    rig.answers++;
    rig.request = request;
    rig.file = piece->file;
    rig.offset = piece->offset;
    rig.time_ns = piece->time_ns;
    memset(rig.text, 0, sizeof rig.text);
    if (piece->data.len)
        memcpy(rig.text, piece->data.data, piece->data.len);
}

static void on_refused(void *arg, uint64_t request, const char *why)
{
    (void)arg;
    rig.refusals++;
    rig.request = request;
    snprintf(rig.text, sizeof rig.text, "%.40s", why);
}

static const struct ms_log_readers_ops ops = {on_piece, on_refused};

static int setup(void **state)
{
    char logs[64];

    (void)state;
    memset(&rig, 0, sizeof rig);
    strcpy(rig.dir, "/tmp/ms-logwait-XXXXXX");
    if (!mkdtemp(rig.dir))
        return -1;
    snprintf(logs, sizeof logs, "%s/logs", rig.dir);
    rig.loop = ms_loop_create();
    ms_log_readers_init(&rig.waits, rig.loop, rig.dir, &ops, &rig);
    return rig.loop ? mkdir(logs, 0700) : -1;
}

static int teardown(void **state)
{
    (void)state;
    ms_log_readers_finish(&rig.waits);
    ms_loop_destroy(rig.loop);
    return ms_tree_remove(AT_FDCWD, rig.dir);
}

static void put(const char *name, const char *text)
{
    char path[96];
    FILE *f;

    snprintf(path, sizeof path, "%s/logs/%s", rig.dir, name);
    f = fopen(path, "a");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    fclose(f);
}

/* From where the last answer ended. */
static void ask(uint64_t request, char *name, int64_t wait_ns)
{
    Muster__ReadLog want = MUSTER__READ_LOG__INIT;

    want.name = name;
    want.all = true;
    want.file = rig.file;
    want.offset = rig.offset;
    want.wait_ns = (uint64_t)wait_ns;
    ms_log_readers_ask(&rig.waits, request, &want);
}

static void run_until(unsigned answers)
{
    while (rig.answers + rig.refusals < answers)
        assert_int_equal(ms_loop_run_once(rig.loop, true), 0);
}

static void test_what_is_there_is_answered_at_once(void **state)
{
    int64_t before_ns = ms_wall_ns();

    (void)state;
    put(actor_0, "one\n");
    ask(1, actor_0, MS_HOLD_MAX_NS);
    assert_int_equal(rig.answers, 1);
    assert_string_equal(rig.text, "one\n");
    assert_in_range(rig.time_ns, before_ns, ms_wall_ns());
    ask(2, actor_0, 0); /* it does not want to wait */
    assert_int_equal(rig.answers, 2);
    assert_string_equal(rig.text, "");
    assert_int_equal(rig.waits.inotify, -1);
}

static void test_a_line_wakes_who_waits_for_it(void **state)
{
    (void)state;
    put(actor_0, "one\n");
    ask(1, actor_0, MS_HOLD_MAX_NS);
    ask(2, actor_0, MS_HOLD_MAX_NS);
    ask(3, actor_1, MS_HOLD_MAX_NS); /* which is not there yet */
    assert_int_equal(rig.answers, 1);
    put(actor_0, "two\n");
    run_until(2);
    assert_int_equal(rig.request, 2);
    assert_string_equal(rig.text, "two\n");
    assert_int_equal(rig.waits.count, 1);
    put(actor_1, "other\n");
    run_until(3);
    assert_int_equal(rig.request, 3);
    assert_int_equal(rig.waits.inotify, -1); /* nothing is watched any more */
}

static void test_a_rotated_file_goes_on(void **state)
{
    char from[96], to[128];

    (void)state;
    put(actor_0, "one\n");
    ask(1, actor_0, MS_HOLD_MAX_NS);
    ask(2, actor_0, MS_HOLD_MAX_NS);
    snprintf(from, sizeof from, "%s/logs/%s", rig.dir, actor_0);
    snprintf(to, sizeof to, "%s.1", from);
    assert_int_equal(rename(from, to), 0);
    put(actor_0, "new\n");
    run_until(2);
    assert_string_equal(rig.text, "new\n");
}

static void test_the_time_is_over(void **state)
{
    (void)state;
    ask(1, actor_0, MS_NS_PER_MS);
    assert_int_equal(rig.answers, 0);
    run_until(1);
    assert_string_equal(rig.text, "");
    assert_int_equal(rig.waits.count, 0);
    assert_int_equal(rig.waits.inotify, -1);
}

static void test_refusals(void **state)
{
    char bad[] = "../secret.log", logs[64];

    (void)state;
    ask(1, bad, MS_HOLD_MAX_NS);
    assert_int_equal(rig.refusals, 1);
    for (size_t i = 0; i < MS_LOG_WAITERS_MAX; i++)
        ask(2 + i, actor_0, MS_HOLD_MAX_NS);
    assert_int_equal(rig.refusals, 1);
    ask(9, actor_1, MS_HOLD_MAX_NS);
    assert_int_equal(rig.refusals, 2);
    assert_non_null(strstr(rig.text, "too many"));
    ms_log_readers_finish(&rig.waits);
    snprintf(logs, sizeof logs, "%s/logs", rig.dir);
    assert_int_equal(rmdir(logs), 0);
    ask(10, actor_1, MS_HOLD_MAX_NS);
    assert_int_equal(rig.refusals, 3);
    assert_non_null(strstr(rig.text, "cannot watch"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            test_what_is_there_is_answered_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_a_line_wakes_who_waits_for_it, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_rotated_file_goes_on, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_time_is_over, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refusals, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
