/* logs_test.c - tests of logs.h: what workers print */
#include "agent/logs/logs.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/timestamp.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define DEADLINE_NS (20 * MS_NS_PER_S)

struct bench {
    char dir[64];
    const char *cluster;
    struct ms_loop *loop;
    struct ms_logs *logs;
    struct ms_log *log;
    int out, err;        /* the worker's ends */
    size_t queued;       /* as the link would say */
    struct ms_buf lines; /* as the head would get them: "O:text|", "E:text|" */
    uint64_t dropped;
    unsigned batches, count;
};

static size_t queued(void *arg)
{
    return ((struct bench *)arg)->queued;
}

static void on_send(void *arg, const Muster__LogLines *lines)
{
    struct bench *b = arg;

    b->batches++;
    b->dropped += lines->dropped;
    for (size_t i = 0; i < lines->n_lines; i++) {
        const Muster__LogLine *l = lines->lines[i];

        assert_int_equal(l->uid, 7);
        assert_string_equal(l->cluster, b->cluster);
        assert_int_equal(l->rank, 3);
        ms_buf_printf(&b->lines, "%c:", l->is_stderr ? 'E' : 'O');
        ms_buf_append(&b->lines, l->text.data, l->text.len);
        ms_buf_append(&b->lines, "|", 1);
        b->count++;
    }
}

static const struct ms_log_batch_ops ops = {.queued = queued, .send = on_send};

static void make_pipe(int *ours, int *theirs)
{
    int fds[2];

    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    fcntl(fds[0], F_SETFL, O_NONBLOCK);
    *ours = fds[0];
    *theirs = fds[1];
}

static void open_log(struct bench *b)
{
    struct ms_log_source from = {.uid = 7, .cluster = b->cluster, .rank = 3};
    int out, err;

    make_pipe(&out, &b->out);
    make_pipe(&err, &b->err);
    b->log = ms_log_open(b->logs, &from, out, err);
    assert_non_null(b->log);
}

static void close_log(struct bench *b)
{
    ms_fd_close(&b->out);
    ms_fd_close(&b->err);
    ms_log_close(b->log);
}

static int set_up(void **state)
{
    static struct bench b;

    b = (struct bench){.dir = "/tmp/muster-logs-XXXXXX", .cluster = "actor"};
    if (!mkdtemp(b.dir))
        return -1;
    b.loop = ms_loop_create();
    b.logs = ms_logs_create(b.loop, b.dir, "here", &ops, &b);
    open_log(&b);
    *state = &b;
    return 0;
}

static int tear_down(void **state)
{
    struct bench *b = *state;
    char command[128];

    close_log(b);
    ms_logs_destroy(b->logs);
    ms_loop_destroy(b->loop);
    ms_buf_finish(&b->lines);
    snprintf(command, sizeof command, "rm -r '%s'", b->dir);
    return system(command);
}

static void print(int fd, const char *text)
{
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

static void run_until(struct bench *b, unsigned count)
{
    int64_t deadline = ms_now_ns() + DEADLINE_NS;

    while (b->count < count) {
        assert_true(ms_now_ns() < deadline);
        assert_int_equal(ms_loop_run_once(b->loop, true), 0);
    }
}

/* Lines begin with the time at which they were read, or were so with the line before: take it
 * off. */
static void take_times(char *text)
{
    int64_t now_ns = ms_wall_ns(), last_ns = 0, ns;

    for (char *line = text; *line; line = strchr(line, '\n') + 1) {
        if (!ms_timestamp_read(line, strlen(line), &ns)) {
            assert_true(last_ns > 0);
            continue;
        }
        assert_true(ns >= last_ns && ns <= now_ns && now_ns - ns < DEADLINE_NS);
        last_ns = ns;
        memmove(line, line + MS_TIMESTAMP_LEN + 1, strlen(line) - MS_TIMESTAMP_LEN);
    }
}

static const char *content(struct bench *b, const char *name)
{
    static char text[8192];
    char path[128];
    int fd;
    ssize_t n;

    snprintf(path, sizeof path, "%s/%s", b->dir, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    n = read(fd, text, sizeof text - 1);
    close(fd);
    assert_true(n >= 0);
    text[n] = 0;
    take_times(text);
    return text;
}

static void test_lines_go_everywhere(void **state)
{
    struct bench *b = *state;

    print(b->out, "hello\nwor");
    print(b->err, "oh\n");
    run_until(b, 2);
    assert_int_equal(b->batches, 1); /* together */
    print(b->out, "ld\n");
    run_until(b, 3);
    assert_string_equal(ms_buf_str(&b->lines), "O:hello|E:oh|O:world|");
    assert_string_equal(content(b, "actor-3.log"), "hello\noh\nworld\n");
    assert_string_equal(content(b, "merged.log"),
                        "actor/3@here: hello\nactor/3@here: oh\nactor/3@here: world\n");
    assert_string_equal(ms_tail_get(ms_log_tail(b->log), 0), "hello");
    assert_string_equal(ms_tail_get(ms_log_tail(b->log), 2), "world");
}

/* One time for what was read at once, but none of the worker's own is taken for it. */
static void test_times_are_not_repeated(void **state)
{
    static const char own[] = "2026-11-18T05:00:00.000000Z mine\n";
    struct bench *b = *state;
    const char *file;

    print(b->out, "one\ntwo\n");
    print(b->out, own);
    run_until(b, 3);
    assert_string_equal(content(b, "actor-3.log") + strlen("one\ntwo\n"), own);
    file = content(b, "merged.log");
    assert_non_null(strstr(file, "actor/3@here: two\nactor/3@here: 2026-11-18T05"));
}

static void test_drain_takes_what_is_left(void **state)
{
    struct bench *b = *state;

    print(b->out, "one\nunfinished");
    print(b->err, "also this");
    ms_log_drain(b->log); /* though b->out is still open */
    ms_logs_flush(b->logs);
    assert_string_equal(ms_buf_str(&b->lines), "O:one|O:unfinished|E:also this|");
    assert_string_equal(content(b, "actor-3.log"), "one\nunfinished\nalso this\n");
    ms_log_drain(b->log);
    ms_logs_flush(b->logs);
    assert_int_equal(b->count, 3);
}

static void test_end_of_pipe_gives_the_unfinished_line(void **state)
{
    struct bench *b = *state;

    print(b->out, "unfinished");
    ms_fd_close(&b->out);
    run_until(b, 1);
    assert_string_equal(ms_buf_str(&b->lines), "O:unfinished|");
}

static void test_slow_head_drops_and_counts(void **state)
{
    struct bench *b = *state;

    b->queued = MS_LOG_BACKLOG_MAX + 1;
    print(b->out, "one\ntwo\n");
    ms_log_drain(b->log);
    ms_logs_flush(b->logs);
    assert_int_equal(b->batches, 0);
    b->queued = 0;
    ms_log_note(b->log, "three");
    ms_logs_flush(b->logs);
    assert_string_equal(ms_buf_str(&b->lines), "E:three|");
    assert_int_equal(b->dropped, 2);
    assert_string_equal(content(b, "actor-3.log"), "one\ntwo\nthree\n");
}

static void test_full_disk_is_told_once(void **state)
{
    struct bench *b = *state;
    char path[128];

    snprintf(path, sizeof path, "%s/full-3.log", b->dir);
    assert_int_equal(symlink("/dev/full", path), 0);
    close_log(b);
    b->cluster = "full";
    open_log(b);
    print(b->out, "12345\n");
    print(b->err, "67890\n");
    ms_log_drain(b->log);
    ms_logs_flush(b->logs);
    assert_int_equal(b->count, 3); /* two lines, and one notice */
    assert_non_null(strstr(ms_buf_str(&b->lines), "full-3.log is full (No space left"));
    assert_non_null(strstr(ms_buf_str(&b->lines), "34 bytes lost so far|E:67890|"));
    assert_string_equal(content(b, "merged.log"),
                        "full/3@here: 12345\nfull/3@here: 67890\n");
}

static void test_flood_is_read_in_turns(void **state)
{
    struct bench *b = *state;
    char chunk[4096];
    ssize_t n;
    size_t total = 0;

    memset(chunk, '\n', sizeof chunk);
    fcntl(b->out, F_SETFL, O_NONBLOCK);
    fcntl(b->out, F_SETPIPE_SZ, 1 << 20);
    while ((n = write(b->out, chunk, sizeof chunk)) > 0)
        total += (size_t)n;
    assert_true(total > 4 * MS_LOG_READ_MAX);
    print(b->err, "me too\n");
    for (int i = 0; i < 2; i++) /* both are heard, the flood is not over */
        assert_int_equal(ms_loop_run_once(b->loop, false), 0);
    ms_logs_flush(b->logs);
    assert_non_null(strstr(ms_buf_str(&b->lines), "E:me too|"));
    assert_true(b->count < total);
}

static void test_many_lines_are_several_batches(void **state)
{
    struct bench *b = *state;
    char text[101];

    memset(text, 'x', 99);
    text[99] = '\n';
    text[100] = 0;
    for (int i = 0; i < 100 * 100; i++) {
        print(b->out, text);
        if (i % 100 == 99) /* a pipe has 64 KiB */
            ms_loop_run_once(b->loop, false);
    }
    run_until(b, 10000);
    assert_true(b->batches >= 4);
}

#define LOGS_TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        LOGS_TEST(test_lines_go_everywhere),
        LOGS_TEST(test_times_are_not_repeated),
        LOGS_TEST(test_drain_takes_what_is_left),
        LOGS_TEST(test_end_of_pipe_gives_the_unfinished_line),
        LOGS_TEST(test_slow_head_drops_and_counts),
        LOGS_TEST(test_full_disk_is_told_once),
        LOGS_TEST(test_flood_is_read_in_turns),
        LOGS_TEST(test_many_lines_are_several_batches),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
